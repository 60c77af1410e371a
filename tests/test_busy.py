"""The script that makes the machine busy leaves it as it was, and takes the files that need Spark."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import psutil
import pytest

from against.patience import eventually
from programs import is_running
from proving import proves

SCRIPTS = Path(__file__).parent.parent / "scripts"
KILLED = f"""
import sys
sys.path.insert(0, {str(SCRIPTS)!r})
import busy
with busy.busy(2) as loops:
    print(*(loop.pid for loop in loops), flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import busy

    return busy


@proves("tiers")
def test_the_files_are_those_that_need_spark(busy: ModuleType) -> None:
    files = busy.spark_files()
    assert {"tests/spark/test_sink.py", "tests/pipelines/driver/test_steps.py"} <= set(files)
    assert not {"tests/log/test_log.py", "tests/test_examples.py"} & set(files)


@proves("tiers")
def test_loops_run_and_end_with_what_they_are_beside(busy: ModuleType) -> None:
    with busy.busy(2) as loops:
        assert [loop.poll() for loop in loops] == [None, None]
    assert [loop.returncode for loop in loops] == [-signal.SIGKILL] * 2


@proves("tiers")
def test_loops_end_when_the_script_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as script:
        assert script.stdout is not None
        loops = [int(word) for word in script.stdout.readline().split()]
        assert len(loops) == 2 and all(map(psutil.pid_exists, loops))
        script.kill()
    eventually(lambda: not any(is_running(loop) for loop in loops), seconds=60)
