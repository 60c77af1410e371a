"""A thread's connection to the JVM, and with it Spark's active session, while other threads start processes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest
from pyspark.sql import SparkSession

from proving import proves


def with_python_before_its_program() -> None:
    subprocess.run(["true"], preexec_fn=os.getpid, check=True)


def as_a_fork_that_goes_on() -> None:
    if (pid := os.fork()) == 0:
        os._exit(0)
    os.waitpid(pid, 0)


@pytest.mark.parametrize("start", [with_python_before_its_program, as_a_fork_that_goes_on])
@proves("P1")
def test_a_child_of_another_thread_leaves_this_one_its_connection(
    spark: SparkSession, start: Callable[[], None]
) -> None:
    jvm: Any = spark._jvm
    before = jvm.java.lang.Thread.currentThread().getName()
    assert SparkSession.getActiveSession() is not None
    starting = Thread(target=start)
    starting.start()
    starting.join()
    assert jvm.java.lang.Thread.currentThread().getName() == before
    assert SparkSession.getActiveSession() is not None
