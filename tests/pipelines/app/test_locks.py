"""One run an output: locks beside checkpoints, freed by the kernel when a run is killed."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from proving import proves
from tidelog.errors import DataFolderError
from tidelog.pipelines.locks import LockHolder, OutputLocks, local_folder

HOLDS = """
import subprocess, sys
from pathlib import Path
from tidelog.pipelines.locks import OutputLocks

locks = OutputLocks(Path(sys.argv[1]), sys.argv[2:])
assert locks.take() is None
child = subprocess.Popen(["sleep", "600"])  # which outlives it
print(child.pid, flush=True)
sys.stdin.read()
"""


@proves("P3")
def test_of_two_runs_one_has_all_outputs_and_the_other_none(tmp_path: Path) -> None:
    first, second = OutputLocks(tmp_path / "shop", ["b", "a"]), OutputLocks(tmp_path / "shop", ["c", "b"])
    assert first.take() is None
    holder = second.take()
    assert holder is not None and (holder.output, holder.pid) == ("b", os.getpid())
    third = OutputLocks(tmp_path / "shop", ["c"])
    assert third.take() is None, "what it could not have all of it has none of"
    third.release()
    first.release()
    assert second.take() is None


@proves("P3")
def test_a_killed_process_has_no_lock_also_where_its_children_live_on(tmp_path: Path) -> None:
    line = [sys.executable, "-c", HOLDS, str(tmp_path / "shop"), "revenue", "big-orders"]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        child = int(other.stdout.readline())
        try:
            locks, met = OutputLocks(tmp_path / "shop", ["revenue"]), []
            holder = locks.take()
            assert holder is not None and holder.pid == other.pid
            waiting = threading.Thread(target=lambda: met.append(locks.wait(threading.Event(), met.append)))
            waiting.start()
            other.send_signal(signal.SIGKILL)
            other.wait()
            waiting.join(60)
            assert met[-1] is True and all(isinstance(one, LockHolder) for one in met[:-1])
            os.kill(child, 0)  # it is there still
        finally:
            os.kill(child, signal.SIGKILL)


@proves("P3")
def test_who_waits_tells_of_whom_once_and_may_be_stopped(tmp_path: Path) -> None:
    first, second = (OutputLocks(tmp_path, ["revenue"]) for _ in range(2))
    first.take()
    stopping, told = threading.Event(), []

    def tell(holder: LockHolder) -> None:
        told.append(str(holder))
        threading.Timer(0.7, stopping.set).start()

    assert second.wait(stopping, tell) is False
    assert told == [f"process {os.getpid()}"]


@proves("P3")
def test_a_folder_that_cannot_be_written_to_is_told_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    locks = OutputLocks(tmp_path / "file" / "shop", ["revenue"])
    with pytest.raises(DataFolderError, match=r"checkpoints cannot be written to .*/file/shop: .*; give a folder"):
        locks.take()


@proves("P3")
def test_a_lock_that_says_nothing_yet_or_something_else_is_a_lock(tmp_path: Path) -> None:
    first, second = (OutputLocks(tmp_path, ["revenue"]) for _ in range(2))
    first.take()
    for content in ("", "{", "7", '{"pid": null}'):
        (tmp_path / "revenue@lock").write_text(content)
        assert str(second.take()) == "another process"


@proves("P3")
def test_only_checkpoints_on_this_machine_have_locks() -> None:
    assert local_folder("/srv/check points") == local_folder("file:///srv/check%20points") == Path("/srv/check points")
    assert local_folder("hdfs://host/checkpoints") is None and local_folder("s3a://bucket/checkpoints") is None


@proves("P3")
def test_a_file_system_without_locks_is_no_reason_not_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(lock: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    locks = OutputLocks(tmp_path, ["revenue"])
    assert locks.take() is None and not locks.are_kept


@proves("P3")
def test_a_disk_that_is_full_is_told_and_no_lock_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(lock: int, told: bytes, at: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    locks = OutputLocks(tmp_path, ["revenue"])
    with monkeypatch.context() as full:
        full.setattr("os.pwrite", refuse)
        with pytest.raises(DataFolderError, match="No space left on device"):
            locks.take()
    assert OutputLocks(tmp_path, ["revenue"]).take() is None
