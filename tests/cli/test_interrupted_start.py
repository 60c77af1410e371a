"""Ctrl-C while a command starts Spark."""

from __future__ import annotations

import subprocess
import sys

import pytest

from proving import proves

# It comes when Spark's context is there, and its session is not yet.
INTERRUPTED = """
import os, signal
from tidelog.pipelines.app import App
from tidelog.pipelines.graph import graph_of
from tidelog.pipelines.running import Settings, session_of
from tidelog.process import stop_on_signals
from tidelog.spark import session

def interrupted(spark):
    os.kill(os.getpid(), signal.SIGINT)
    plain(spark)

app = App("shop")
app.stream("orders", value="id long")
app.topic("kept")(lambda orders: orders)
stopping, plain, session.register = stop_on_signals(), session.register, interrupted
spark = session_of(graph_of(app), Settings("127.0.0.1:1", "checkpoints", memory="512m"))
print(stopping.is_set(), spark.range(3).count(), flush=True)
os.kill(os.getpid(), signal.SIGINT)
print(spark.range(3).count(), flush=True)
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.real_interpreter
@proves("P3")
def test_ctrl_c_while_spark_starts_is_the_commands_own() -> None:
    ran = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=110)
    assert ran.stdout == "True 3\n3\n", ran.stderr[-2000:]
    assert "Traceback" not in ran.stderr
