"""The process that workers are forked from: what a fork takes over, who is turned away, and how all of it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from proving import proves
from spark.test_worker_start import WORKER, launcher, program
from tidelog.spark import worker_launch
from tidelog.spark.worker_entry import PATH
from tidelog.spark.worker_forks import ForkWanted, interpreters, path_of
from tidelog.spark.worker_launch import NAME, script_of

WAIT_S = 300
TELLS = """
import json, os, sys
from pyspark.worker_util import get_sock_file_to_executor

with get_sock_file_to_executor(timeout=None) as file:
    told = {"name": __name__, "words": sys.argv[1:], "path": sys.path[:2], "here": os.getcwd(), "parent": os.getppid()}
    told |= {"one": os.environ.get("ONE"), "imported": "pyarrow" in sys.modules}
    told["threads"] = len(os.listdir("/proc/self/task"))
    file.write(json.dumps(told).encode() + b"\\n")
    file.flush()
    print("said")
    if file.readline() == b"fail\\n":
        sys.exit(7)
"""


@pytest.fixture
def forks(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process to fork from, and the script that asks it."""
    place = worker_launch.start_forks(str(tmp_path))
    made = worker_launch._forking.pop(place)
    program(tmp_path / NAME, script_of(sys.executable, place))
    until(lambda: Path(place).exists())
    yield made
    worker_launch._end(made)


def until(done: object) -> None:
    deadline = time.monotonic() + WAIT_S
    while not done():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Worker:
    """Started by its script as Spark starts it."""

    def __init__(self, folder: Path, module: str = "tells", **more: str) -> None:
        (folder / "tells.py").write_text(TELLS)
        (folder / "a_worker.py").write_text(WORKER)
        place = str(folder / f"{module}.socket")
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(place)
            listening.listen(1)
            listening.settimeout(WAIT_S)
            told = os.environ | {PATH: place, "PYTHONPATH": f"{folder}{os.pathsep}/other"} | more
            self.asked = subprocess.Popen(
                [folder / NAME, "-m", module, "a b"], env=told, cwd=folder, stdout=subprocess.PIPE, text=True
            )
            self.connection, _ = listening.accept()
        self.said = self.connection.makefile("rb")
        self.pid = int.from_bytes(self.said.read(4))

    def told(self) -> dict[str, object]:
        import json

        found: dict[str, object] = json.loads(self.said.readline())
        return found

    def close(self) -> int:
        self.said.close()
        self.connection.close()
        return self.asked.wait(WAIT_S)


@proves("P1", "F1")
@pytest.mark.slow
def test_a_fork_is_the_worker_that_was_asked_for(forks: subprocess.Popen[bytes], tmp_path: Path) -> None:
    much = {f"MUCH_{number}": "x" * 100_000 for number in range(4)}  # more than a socket holds
    worker = Worker(tmp_path, ONE="two", **much)
    told = worker.told()
    assert told["parent"] == forks.pid and worker.pid != worker.asked.pid
    assert told["imported"] and told["threads"] == 1
    assert (told["name"], told["words"], told["one"]) == ("__main__", ["a b"], "two")
    assert told["path"] == [str(tmp_path), str(tmp_path)] and told["here"] == str(tmp_path)
    worker.connection.sendall(b"fail\n")
    assert worker.close() == 7, "who asked ends with its exit code"
    assert worker.asked.stdout is not None and worker.asked.stdout.read() == "said\n"
    again = Worker(tmp_path, "a_worker")  # and the next one is another
    again.connection.sendall(b"go\n")
    assert again.said.read() == b'["__main__", true, 2]' and again.close() == 0


@proves("P1", "F1")
@pytest.mark.slow
def test_a_fork_ends_with_who_asked_for_it_and_all_end_with_the_driver(
    forks: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    killed = Worker(tmp_path)
    killed.told()
    fork = psutil.Process(killed.pid)
    killed.asked.send_signal(signal.SIGKILL)
    until(lambda: not fork.is_running() or fork.status() == psutil.STATUS_ZOMBIE)
    left = Worker(tmp_path, "a_worker")
    worker_launch._end(forks)
    assert forks.returncode == 0
    left.connection.sendall(b"go\n")
    assert left.said.read() == b'["__main__", true, 2]', "a worker ends with Spark's connection"
    assert left.close() == 1, "and nobody can say how"


@proves("P1", "F1")
@pytest.mark.full
def test_who_needs_another_interpreter_and_who_finds_nobody_starts_its_own(
    forks: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    worker = Worker(tmp_path, PYTHONDEVMODE="1")
    told = worker.told()
    assert worker.pid == worker.asked.pid and told["parent"] == os.getpid() and not told["imported"]
    worker.connection.sendall(b"\n")
    worker.close()
    forks.kill()
    forks.wait()
    alone = Worker(tmp_path, "a_worker")
    assert alone.pid == alone.asked.pid
    alone.connection.sendall(b"go\n")
    assert alone.said.read() == b'["__main__", true, 2]' and alone.close() == 0


@proves("P1")
def test_what_makes_an_interpreter_is_its_own_part_of_the_environment() -> None:
    plain = interpreters({"HOME": "/", "PYTHONPATH": "x", "PYTHON_WORKER_FACTORY_PORT": "1"})
    assert plain == interpreters({"PYTHONUNBUFFERED": "YES"})
    assert interpreters({"PYTHONOPTIMIZE": "2"}) != plain and interpreters({"PYTHONHASHSEED": "7"}) != plain


@proves("P1")
def test_the_path_of_a_fork_is_what_its_own_python_would_have() -> None:
    wanted = ForkWanted(("m",), {"PYTHONPATH": os.pathsep.join(["/a", "", "/b"])}, "/here", ())
    assert path_of(["/old", "/lib", "/site"], "/old", wanted) == ["/here", "/a", "/b", "/lib", "/site"]


@proves("P1")
def test_only_the_drivers_own_python_is_forked(tmp_path: Path) -> None:
    assert "forks.socket" in script_of(sys.executable, "forks.socket")
    assert "forks.socket" not in script_of("python3.99", "forks.socket")
    assert launcher(tmp_path, sys.executable).read_text() == script_of(sys.executable)
