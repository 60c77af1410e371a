"""Children that end with their parent, and what a supervisor such as systemd is told."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from proving import proves
from tidelog import process
from tidelog.process import READY, notify


@proves("P3")
def test_a_supervisor_that_has_a_socket_is_told_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert not notify(READY)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        assert notify(READY, "STATUS=all well")
        assert systemd.recv(100) == b"READY=1\nSTATUS=all well"
    assert not notify(READY), "one that is gone is no reason to fail"


SUPERVISOR = """
import sys, time
from tidelog import process
child = process.start([sys.executable, "-c", "import time; time.sleep(600)"], dies=True)
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the end of its input ends it")
@proves("P1")
def test_a_child_dies_with_a_parent_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", SUPERVISOR], stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        state = Path(f"/proc/{int(run.stdout.readline())}/stat")
        run.kill()
        run.wait()
        deadline = time.monotonic() + 60
        while state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z":
            assert time.monotonic() < deadline, "it outlives its run"
            time.sleep(0.05)


TELLING = """
import os, sys, time
print(sorted(name for name in os.environ if name in ("NOTIFY_SOCKET", "TIDELOG_BOOTSTRAP", "TIDELOG_COMMAND_CONFIG")))
print(os.getsid(0) == os.getpid(), sys.stdin.readline().strip(), flush=True)
print("one", file=sys.stderr)
print("tidelog: the last", file=sys.stderr, flush=True)
sys.stdin.read()
if "deaf" in sys.argv:
    print("deaf", flush=True)
    time.sleep(600)
"""


@proves("P1")
@pytest.mark.parametrize("words", [[], ["deaf"]], ids=["ends", "is killed"])
def test_a_child_ends_with_its_input_or_is_killed_and_gets_no_environment_of_its_parent(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in process.NOT_FOR_CHILDREN:
        monkeypatch.setenv(name, "x")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    child = process.start([sys.executable, "-c", TELLING, *words], told=b"hello\n", **pipes)
    assert child.stdout is not None and child.stderr is not None
    said = process.Said(child.stderr)
    assert [child.stdout.readline() for _ in range(2)] == [b"[]\n", b"True hello\n"]
    process.end(child, 0.2 if words else 60.0)
    said.pass_on()
    assert (child.returncode, said.last_line) == (-signal.SIGKILL if words else 0, "tidelog: the last")
    assert capfd.readouterr().err == "one\ntidelog: the last\n", "it goes where this process says things"


@proves("P1")
def test_a_process_is_told_to_end_by_a_signal_and_by_the_end_of_its_input() -> None:
    program = """
from tidelog.process import stop_on_signals, when_parent_ends
stopping = stop_on_signals()
when_parent_ends(lambda: (print("parent"), stopping.set()))
print("ready", flush=True)
stopping.wait()
"""
    for how, said in ((signal.SIGTERM, b""), (None, b"parent\n")):
        child = process.start([sys.executable, "-c", program], stdout=subprocess.PIPE)
        assert child.stdout is not None and child.stdin is not None and child.stdout.readline() == b"ready\n"
        if how is None:
            child.stdin.close()
        else:
            os.kill(child.pid, how)
        assert (child.wait(60), child.stdout.read()) == (0, said)
