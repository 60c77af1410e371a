"""An archive of the classes that a run on Spark loads, as a JVM has them in memory: the next one reads, checks and lays
out none of them anew. Half of a start's CPU is that.

    absent    the JVM writes down which classes it loads, beside where the archive will be
    making    after the stop of a run that was ready, a process of its own (`main`) waits for the end of that JVM, and
              has Java write the archive to another name
    there     it is renamed into place; every later JVM of this Java with these jars starts with it

Rules:
- One for each Java and set of jars: their paths, sizes and times are in its name. A JVM that cannot use it, as one with
  another layout of its heap, goes on without it, and says nothing.
- It is a cache: `$XDG_CACHE_HOME/tidelog`, else `~/.cache/tidelog`, about 200 MB. Who cannot write there does without.
  TIDELOG_CLASS_ARCHIVE=off turns all of it off, and the file may be deleted at any time.
- Nobody waits for it: a stop only starts the process, which has the lowest priority and ends by itself.
- Where the user's own options of the JVM speak of archives, theirs count.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.java import Java

SWITCH, OFF = "TIDELOG_CLASS_ARCHIVE", ("off", "0", "false", "no")
CACHE = "XDG_CACHE_HOME"
SUBMIT_OPTIONS = "SPARK_SUBMIT_OPTS"  # of the driver's JVM
OF_ARCHIVES = ("SharedArchiveFile", "ArchiveClassesAtExit", "SharedClassListFile", "DumpLoadedClassList", "-Xshare")
QUIETLY = "-Xlog:disable -Xlog:all=error,cds*=off:stderr"  # a Java that cannot use it says nothing of it
FREE_MIN = 1 << 30  # of bytes, before one is made
LISTED_MIN = 5_000  # classes: a run on Spark has more than ten thousand
ENDS_WITHIN_S, MADE_WITHIN_S, LOOK_S = 60.0, 600.0, 0.2
ABOUT_MB = 200


class Making(NamedTuple):
    """What the process needs that makes one."""

    archive: str
    listed: str
    java: str
    class_path: str
    pid: int  # of the JVM that writes the list


# Decisions ------------------------------------------------------------------------------------------------------------


def folder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Where archives are; None where they are turned off."""
    if environment.get(SWITCH, "").strip().lower() in OFF:
        return None
    cache = environment.get(CACHE)
    return (Path(cache) if cache else Path.home() / ".cache") / "tidelog"


def name_of(java: Java, jars: Iterable[Path]) -> str:
    """Of the archive for this Java with these jars; what has changed in either has another one."""
    seen = [f"{java.version} {_said(java.home / 'bin' / 'java')} {_said(java.home / 'release')}"]
    seen += sorted(_said(jar) for jar in jars)
    return f"classes-{sha256(chr(10).join(seen).encode()).hexdigest()[:16]}.jsa"


def _said(path: Path) -> str:
    try:
        found = path.stat()
    except OSError:
        return f"{path} -"
    return f"{path} {found.st_size} {found.st_mtime_ns}"


def options_of(archive: Path, given: str, *, listing: bool) -> str:
    """Java's options at a launch: `given` are the user's, which win. `listing`: where there is none, it is begun."""
    if any(word in given for word in OF_ARCHIVES):
        return given
    if archive.exists():
        return f'"-XX:SharedArchiveFile={archive}" {QUIETLY} {given}'.strip()
    if listing:
        return f'"-XX:DumpLoadedClassList={list_of(archive)}" {given}'.strip()
    return given


def list_of(archive: Path, pid: int | None = None) -> Path:
    """Of this process's JVM."""
    return archive.with_suffix(f".{os.getpid() if pid is None else pid}.list")


# In a session ---------------------------------------------------------------------------------------------------------


def launch_options(java: Java, jars: Iterable[Path], *, listing: bool) -> dict[str, str]:
    """The environment by which a JVM is launched with an archive, or towards one."""
    where, given = folder(), os.environ.get(SUBMIT_OPTIONS, "")
    if where is None:
        return {}
    if listing:
        try:
            where.mkdir(mode=0o700, parents=True, exist_ok=True)
            _remove_old(where)
        except OSError:
            listing = False
    options = options_of(where / name_of(java, jars), given, listing=listing)
    return {SUBMIT_OPTIONS: options} if options != given else {}


def _remove_old(where: Path) -> None:
    """Lists of processes that were killed."""
    for path in where.glob("classes-*.list"):
        pid = path.suffixes[-2].lstrip(".") if len(path.suffixes) > 1 else ""
        if pid.isdigit() and not _is_there(int(pid)):
            path.unlink(missing_ok=True)


def begun_by(spark: SparkSession) -> Making | None:
    """What is to be made once this session's JVM has ended; None where nothing is. To be asked before it is stopped."""
    where = folder()
    if where is None or spark.sparkContext._gateway is None:
        return None
    own = list(where.glob(f"classes-*.{os.getpid()}.list"))
    process: Any = getattr(spark.sparkContext._gateway, "proc", None)
    if len(own) != 1 or process is None:
        return None
    properties: Any = spark.sparkContext._jvm.java.lang.System  # type: ignore[union-attr]
    archive = own[0].with_name(own[0].name.split(".")[0] + ".jsa")
    java = str(Path(properties.getProperty("java.home")) / "bin" / "java")
    return Making(str(archive), str(own[0]), java, properties.getProperty("java.class.path"), process.pid)


def start(making: Making) -> None:
    """A process of its own, in no session or pipe of this one's: the JVM ends when its pipe does."""
    words = [sys.executable, "-m", "tidelog.spark.class_archive", json.dumps(making._asdict())]
    nothing = subprocess.DEVNULL
    subprocess.Popen(words, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True, cwd="/")


# The process that makes one -------------------------------------------------------------------------------------------


def main(told: str) -> int:
    making = Making(**json.loads(told))
    os.nice(19)
    try:
        return _make(making)
    finally:
        Path(making.listed).unlink(missing_ok=True)


def _make(making: Making) -> int:
    """0 where the archive is there."""
    from fcntl import LOCK_EX, LOCK_NB, flock

    archive, listed = Path(making.archive), Path(making.listed)
    deadline = time.monotonic() + ENDS_WITHIN_S
    while _is_there(making.pid) and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    with archive.with_suffix(".lock").open("w") as lock:
        try:
            flock(lock, LOCK_EX | LOCK_NB)
        except OSError:
            return 1  # another one is at it
        if archive.exists():
            return 0
        if _lines_in(listed) < LISTED_MIN or _free_at(archive.parent) < FREE_MIN:
            return 1
        unfinished = archive.with_suffix(".new")
        try:
            words = [making.java, "-Xshare:dump", f"-XX:SharedClassListFile={listed}"]
            words += [f"-XX:SharedArchiveFile={unfinished}", "-Xmx1g", "-Xlog:disable", "-cp", making.class_path]
            made = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=MADE_WITHIN_S)
            if made.returncode != 0 or not unfinished.exists():
                return 1
            unfinished.rename(archive)
            return 0
        except (OSError, subprocess.SubprocessError):
            return 1
        finally:
            unfinished.unlink(missing_ok=True)


def _lines_in(path: Path) -> int:
    with suppress(OSError), path.open("rb") as file:
        return sum(1 for _ in file)
    return 0


def _free_at(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
