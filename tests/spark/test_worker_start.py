"""A worker that Spark starts by itself connects before its own Python has started; and whose workers do."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from proving import proves
from tidelog.spark.worker_entry import ACCEPTED, PATH, PORT, SECRET, SIZE_BYTES
from tidelog.spark.worker_launch import NAME, connect_first, script_for_launch, script_of

WAIT_S = 300
SECRET_TEXT = b"not for everyone"
# As Spark's own: it connects by PySpark, which writes its number; then it says how it was started.
WORKER = """
import json, os, sys
from pyspark.worker_util import get_sock_file_to_executor

with get_sock_file_to_executor(timeout=None) as file:
    assert file.readline() == b"go\\n"
    file.write(json.dumps([__name__, sys.path[0] == os.getcwd(), len(sys.argv)]).encode())
"""


class Listening(NamedTuple):
    """What Spark does for a worker, without a JVM."""

    socket: socket.socket
    told: dict[str, str]


@pytest.fixture(params=["path", "port"])
def listening(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Listening]:
    if request.param == "path":
        made, told = socket.socket(socket.AF_UNIX), {PATH: str(tmp_path / "socket")}
        made.bind(told[PATH])
    else:
        made = socket.socket(socket.AF_INET)
        made.bind(("127.0.0.1", 0))
        told = {PORT: str(made.getsockname()[1]), SECRET: SECRET_TEXT.decode()}
    with made:
        made.listen(1)
        made.settimeout(WAIT_S)
        yield Listening(made, told)


def launcher(folder: Path, python: str) -> Path:
    return program(folder / NAME, script_of(python))


def program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o700)
    return path


def sized(text: bytes) -> bytes:
    return len(text).to_bytes(SIZE_BYTES) + text


def environment(folder: Path, told: dict[str, str]) -> dict[str, str]:
    (folder / "a_worker.py").write_text(WORKER)
    return os.environ | told | {"PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])}


@proves("P1", "F1")
def test_a_worker_is_connected_before_its_python_starts_and_then_is_as_spark_started_it(
    listening: Listening, tmp_path: Path
) -> None:
    slow = program(tmp_path / "slow python", f'#!/bin/sh\nread go < "{tmp_path}/start"\nexec {sys.executable} "$@"\n')
    os.mkfifo(tmp_path / "start")
    command = [launcher(tmp_path, str(slow)), "-m", "a_worker"]
    with subprocess.Popen(command, env=environment(tmp_path, listening.told), cwd=tmp_path) as process:
        connection, _ = listening.socket.accept()
        with connection, connection.makefile("rb") as said:
            if SECRET in listening.told:
                assert said.read(SIZE_BYTES + len(SECRET_TEXT)) == sized(SECRET_TEXT)
                connection.sendall(sized(ACCEPTED))
            listening.socket.close()  # as Spark does: there is no second connection
            (tmp_path / "start").write_text("go\n")
            assert int.from_bytes(said.read(4)) == process.pid
            connection.sendall(b"go\n")
            assert said.read() == b'["__main__", true, 1]'
        assert process.wait(WAIT_S) == 0


@proves("P1", "F1")
def test_a_worker_that_cannot_connect_says_so_as_without_us(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(tmp_path / "deaf"))
    ended = ended_worker(tmp_path, tmp_path / "deaf")
    assert ended.returncode == 1 and "CANNOT_OPEN_SOCKET" in ended.stderr


@proves("P1", "F1")
def test_a_worker_whose_socket_spark_has_removed_ends_without_a_word(tmp_path: Path) -> None:
    ended = ended_worker(tmp_path, tmp_path / "gone")
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", "")


def ended_worker(folder: Path, place: Path) -> subprocess.CompletedProcess[str]:
    command = [launcher(folder, sys.executable), "-m", "a_worker"]
    told = environment(folder, {PATH: str(place)})
    return subprocess.run(command, env=told, capture_output=True, text=True, timeout=WAIT_S)


@proves("P1", "F1")
@pytest.mark.parametrize("told", [{}, {PATH: "/nowhere"}], ids=["a daemon", "not a module"])
def test_what_is_no_such_worker_runs_in_the_python_that_was_asked_for(tmp_path: Path, told: dict[str, str]) -> None:
    script = launcher(tmp_path, sys.executable)
    command = [script, "-c", "import sys; print(sys.argv, sys.executable)", "a b", "$c"]
    ended = subprocess.run(command, env=os.environ | told, capture_output=True, text=True, timeout=WAIT_S)
    assert ended.stdout == f"{['-c', 'a b', '$c']} {sys.executable}\n"


@proves("P1", "F1")
def test_a_session_of_ours_starts_its_workers_so_and_once(spark: SparkSession) -> None:
    before = spark.sparkContext.pythonExec
    assert Path(before).name == NAME and sys.executable in Path(before).read_text()
    connect_first(spark)
    assert spark.sparkContext.pythonExec == before


@proves("P1", "F1")
@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "local-cluster[2,1,1024]"])
def test_on_a_cluster_the_python_is_the_clusters(master: str) -> None:
    """Its executors start what has that name on their machines."""
    context = SimpleNamespace(master=master, pythonExec="python3")
    session: Any = SimpleNamespace(_sc=context)
    connect_first(session)
    assert context.pythonExec == "python3"


@proves("P1", "F1")
def test_a_session_without_a_context_here_is_left_alone() -> None:
    session: Any = SimpleNamespace()
    connect_first(session)
    assert vars(session) == {}


@proves("P1", "F1")
@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f'#!/bin/sh\nexec {sys.executable} "$@"\n', True),
        (
            f"#!{sys.executable}\nimport subprocess, sys\nsys.exit(subprocess.call([sys.executable, *sys.argv[1:]]))\n",
            False,
        ),
        ("#!/bin/sh\nexit 3\n", False),
        ("#!/nowhere\n", False),
    ],
    ids=["becomes it", "starts another process", "ends", "is not there"],
)
def test_a_python_that_would_lose_its_connection_is_left_alone(tmp_path: Path, text: str, kept: bool) -> None:
    python = str(program(tmp_path / "python", text))
    context = SimpleNamespace(master="local", pythonExec=python, _temp_dir=str(tmp_path))
    session: Any = SimpleNamespace(_sc=context)
    connect_first(session)
    assert (context.pythonExec == python) is not kept


@proves("P1", "F1")
def test_a_python_that_needs_its_environment_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = SimpleNamespace(master="local[2]", pythonExec=sys.executable, _temp_dir=str(tmp_path))
    session: Any = SimpleNamespace(_sc=context)
    monkeypatch.setenv("PYTHONHOME", "/somewhere")
    connect_first(session)
    assert context.pythonExec == sys.executable
    monkeypatch.delenv("PYTHONHOME")
    connect_first(session)
    assert context.pythonExec.endswith(NAME)


# Forked ones ----------------------------------------------------------------------------------------------------------


@proves("P1")
def test_a_daemon_imports_without_a_thread_what_a_fork_would_have_broken() -> None:
    program = (
        "import sys, threading; from tidelog.spark.worker_daemon import OF_ALL, OF_TASKS, TASKS, preload;"
        " preload(TASKS); assert {TASKS, *OF_ALL, *OF_TASKS} <= set(sys.modules); assert threading.active_count() == 1"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@proves("P1")
def test_a_worker_has_imported_before_it_was_forked(spark: SparkSession) -> None:
    def told(_: Any) -> Iterator[Any]:
        import pyarrow as pa

        words = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().split(b"\0")
        yield pa.record_batch([pa.array([b" ".join(words)])], names=["parent"])

    rows = spark.range(1, numPartitions=1).mapInArrow(told, "parent binary").collect()
    assert b"tidelog.spark.worker_daemon pyspark.worker" in rows[0].parent


@proves("P1", "F1")
def test_a_daemon_of_sparks_own_becomes_ours_in_the_drivers_python_alone(tmp_path: Path) -> None:
    """Spark names its own, whatever its settings say, where it only looks at a format."""
    for place in ("tidelog/spark", "pyspark"):
        (tmp_path / place).mkdir(parents=True)
        for folder in (tmp_path / place, (tmp_path / place).parent):
            if folder != tmp_path:
                (folder / "__init__.py").touch()
    (tmp_path / "tidelog" / "spark" / "worker_daemon.py").write_text("import sys; print('ours', *sys.argv[1:])")
    (tmp_path / "pyspark" / "daemon.py").write_text("import sys; print('theirs', *sys.argv[1:])")
    told = os.environ | {"PYTHONPATH": str(tmp_path)}

    def said(python: str, *words: str) -> str:
        ran = subprocess.run([launcher(tmp_path, python), *words], env=told, capture_output=True, text=True, check=True)
        return ran.stdout.strip()

    other = str(program(tmp_path / "python3", f'#!/bin/sh\nexec {sys.executable} "$@"\n'))
    assert said(sys.executable, "-m", "pyspark.daemon", "pyspark.worker", "a b") == "ours pyspark.worker a b"
    assert said(other, "-m", "pyspark.daemon", "pyspark.worker") == "theirs pyspark.worker"
    assert said(sys.executable, "-c", "print('as it is')") == "as it is"


@proves("P1")
def test_a_launch_has_a_script_as_long_as_its_process_is_there(tmp_path: Path) -> None:
    script = script_for_launch()
    assert script is not None and os.access(script, os.X_OK) and Path(script).name == NAME
    show = "from tidelog.spark.worker_launch import script_for_launch; print(script_for_launch())"
    of_another = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True).stdout.strip()
    assert of_another and not Path(of_another).exists()
