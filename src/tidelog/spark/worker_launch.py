"""The Python that a session's workers are started by: a script that lets those connect first which Spark waits for.

Spark starts what `SparkContext.pythonExec` names, for daemons and for the few workers that no daemon forks. Those few
have 10 s to connect (`worker_entry.py`), so a busy machine was a broken one. Here the script takes the place of that
Python, and becomes it.

Daemons of Spark's own become ours (`worker_daemon.py`), where that can be imported: in the driver's Python. A command
has all of them forked from one process (`worker_forks.py`), which imports while the JVM is launched.

Rules: only where tasks run in the driver's own JVM. On a cluster the executors start what has the same name there, and
the script is on this machine alone. Where it cannot be run, where a Python loses the connection (as a script may that
starts another process and closes what that would inherit), or with a PySpark that we do not know, all stays as it is.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.spark import worker_daemon, worker_entry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "tidelog-python"
PLAIN_DAEMON = "pyspark.daemon"
FORKING, FORKS = "tidelog.spark.worker_forks", "forks"
PLACE_MAX = 80  # characters of a folder that a socket may have its name in
END_S = 5.0
ANSWER_S = 60  # how long a Python that is not this one may take to say whether it keeps a connection

_forking: dict[str, subprocess.Popen[bytes]] = {}  # by their sockets


def is_local(master: str | None) -> bool:
    """Whether tasks run in this process's JVM; `local-cluster[...]` has executors of its own."""
    return master is None or master == "local" or master.startswith("local[")


def connect_first(spark: SparkSession) -> None:
    """For what this session is given from here on; its Python stays the same. A session of Spark Connect has no
    context here.
    """
    context: Any = getattr(spark, "_sc", None)
    if context is None or not is_local(context.master) or not _can_be():
        return
    python: str = context.pythonExec
    if Path(python).name != NAME and keeps_connections(python):
        context.pythonExec = _written(Path(context._temp_dir), python, _place_of_forks())


def script_for_launch(*, forks: bool = False) -> str | None:
    """For the JVM's own environment: by what it names there Spark starts those that look at a format which it has found
    itself, whatever its session says. None where it cannot be. It is there as long as this process is. `forks`: with a
    process to fork workers from, as long as that.
    """
    import atexit
    from shutil import rmtree
    from tempfile import mkdtemp

    if not _can_be():
        return None
    folder = mkdtemp(prefix="tidelog-python-")
    atexit.register(rmtree, folder, ignore_errors=True)
    place = start_forks(folder) if forks and len(folder) < PLACE_MAX else None
    return _written(Path(folder), sys.executable, place)


def start_forks(folder: str) -> str:
    """Where it will listen. It ends with this process."""
    import atexit

    place = os.path.join(folder, FORKS)  # noqa: PTH118 (a socket's, in a script)
    told = {**os.environ, "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0")}  # as workers have it
    told["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "1")
    words = [sys.executable, "-P", "-m", FORKING, place]
    made = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=told, start_new_session=True)
    _forking[place] = made
    atexit.register(_end, made)
    return place


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_S)


def _place_of_forks() -> str | None:
    return next((place for place, process in _forking.items() if process.poll() is None), None)


def keeps_connections(python: str) -> bool:
    """Whether what this program inherits is there in the Python that it becomes."""
    if python == sys.executable:
        return True
    from fcntl import F_DUPFD, fcntl

    with open(os.devnull) as nothing:  # noqa: PTH123 (not a file of anybody's)
        kept = fcntl(nothing, F_DUPFD, worker_entry.NUMBER_MIN)
    try:
        look = [python, "-c", f"import os; os.fstat({kept})"]
        return subprocess.run(look, pass_fds=[kept], capture_output=True, timeout=ANSWER_S).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False
    finally:
        os.close(kept)


def _can_be() -> bool:
    """A Python that needs PYTHONHOME does not start without its environment."""
    from pyspark import util

    return os.name == "posix" and "PYTHONHOME" not in os.environ and hasattr(util, "_do_server_auth")


def _written(folder: Path, python: str, forks: str | None = None) -> str:
    """Beside what PySpark writes for this JVM, and deleted with it; one for each Python that it becomes."""
    from tempfile import mkdtemp

    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return python
    script = Path(mkdtemp(dir=folder)) / NAME
    script.write_text(script_of(python, forks))
    script.chmod(0o700)
    return str(script)


def script_of(python: str, forks: str | None = None) -> str:
    """`forks`: the socket of a process that forks workers, which have the driver's own Python then."""
    entry = [sys.executable, "-I", "-S", worker_entry.__file__]
    ours = python == sys.executable
    daemon = f'[ "$1 $2" = "-m {PLAIN_DAEMON}" ] && shift 2 && set -- -m {worker_daemon.__name__} "$@"' if ours else ""
    fork = shlex.join([*entry, worker_entry.FORK, forks, python]) if ours and forks else ""
    return f"""#!/bin/sh
# Spark has this daemon where it only looks at a format, whatever its settings say: ours ends without a word.
{daemon}
{f'[ "$1" = -m ] && [ -S {shlex.quote(forks)} ] && exec {fork} "$@"' if fork and forks else ""}
# Spark waits 10 s for a worker that no daemon forks: such a one connects first, and imports afterwards.
[ -n "${worker_entry.PATH}${worker_entry.PORT}" ] || exec {shlex.quote(python)} "$@"
exec {shlex.join([*entry, worker_entry.CONNECT, python])} "$@"
"""
