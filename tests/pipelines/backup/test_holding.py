"""Checkpoints that are held while Spark removes and replaces files; without Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from proving import proves
from tidelog.errors import BackupError
from tidelog.pipelines.backup import holding
from tidelog.pipelines.backup.holding import HeldCheckpoints
from tidelog.pipelines.backup.taking import AppPlaces, AppsBackup

HOLD_AND_SLEEP = """
import sys, time
from pathlib import Path
from tidelog.pipelines.backup.holding import HeldCheckpoints
HeldCheckpoints(Path(sys.argv[1]), "shop").begin()
print("held", flush=True)
time.sleep(600)
"""


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def held(one: HeldCheckpoints) -> dict[str, str]:
    return {
        path.relative_to(one.folder).as_posix(): path.read_text() for path in one.folder.rglob("*") if path.is_file()
    }


@proves("P3")
@pytest.mark.parametrize("links", [True, False], ids=["linked", "copied"])
def test_what_was_there_is_held_whatever_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    if not links:
        monkeypatch.setattr(os, "link", _no_links)
    first = write(tmp_path / "shop/sums.v1/offsets/0", "zero")
    write(tmp_path / "shop/sums.v1/offsets/.1.9f.tmp", "half")
    one = HeldCheckpoints(tmp_path, "shop")
    one.begin()
    first.unlink()
    write(tmp_path / "shop/sums.v1/offsets/1", "one")
    one.finish()
    assert held(one) == {"sums.v1/offsets/0": "zero", "sums.v1/offsets/1": "one"}
    one.release()
    assert not one.folder.exists() and (tmp_path / "shop/sums.v1/offsets/1").read_text() == "one"


def _no_links(*_: object) -> None:
    raise PermissionError(holding.EPERM, "no links here")


@proves("P3")
def test_a_file_that_was_replaced_counts_as_it_is_now(tmp_path: Path) -> None:
    path = write(tmp_path / "shop/sums.v1/commits/3", "before")
    one = HeldCheckpoints(tmp_path, "shop")
    one.begin()
    write(tmp_path / "new", "after").replace(path)
    one.finish()
    assert held(one) == {"sums.v1/commits/3": "after"}
    one.release()


@proves("P3")
def test_what_was_committed_before_the_cut_is_known(tmp_path: Path) -> None:
    for name in ("a/commits/2", "a/commits/11", "a/offsets/12", "b/commits/0", "b/commits/.0.crc", "c/offsets/0"):
        write(tmp_path / "shop" / name)
    one = HeldCheckpoints(tmp_path, "shop")
    one.begin()
    write(tmp_path / "shop/a/commits/12")
    one.finish()
    assert one.committed == {"a": 11, "b": 0} and [path.name for path in one.queries] == ["a", "b", "c"]
    one.begin()
    assert one.committed["a"] == 12, "for a newer cut"
    one.release()


@proves("P3")
def test_what_a_killed_backup_left_is_not_taken_for_the_checkpoint(tmp_path: Path) -> None:
    write(tmp_path / ".backup.shop/sums.v1/offsets/0", "old")
    write(tmp_path / "shop/sums.v1/offsets/9", "new")
    one = HeldCheckpoints(tmp_path, "shop")
    one.begin()
    one.finish()
    assert held(one) == {"sums.v1/offsets/9": "new"}
    one.release()


@proves("P3")
def test_an_app_that_has_not_run_yet_has_nothing_to_hold(tmp_path: Path) -> None:
    one = HeldCheckpoints(tmp_path / "nowhere", "shop")
    one.begin()
    one.finish()
    assert one.queries == [] and not (tmp_path / "nowhere").exists()
    one.release()


@proves("P3")
def test_a_second_backup_of_an_app_is_refused_and_takes_nothing_from_the_first(tmp_path: Path) -> None:
    write(tmp_path / "shop/sums.v1/offsets/0", "zero")
    write(tmp_path / "other/counts.v1/offsets/0", "none")
    first = HeldCheckpoints(tmp_path, "shop")
    first.begin()
    second = AppsBackup([AppPlaces(name, str(tmp_path), ()) for name in ("other", "shop")])
    with pytest.raises(BackupError, match=rf"process {os.getpid()} is taking a backup of app shop.*wait until"):
        second.before_cut(str(tmp_path / "scratch"))
    second.release()
    first.finish()
    assert held(first) == {"sums.v1/offsets/0": "zero"}
    first.release()
    second.before_cut(str(tmp_path / "scratch"))
    second.release()


@proves("P3")
def test_a_backup_that_was_killed_keeps_nobody_from_the_next(tmp_path: Path) -> None:
    write(tmp_path / "shop/sums.v1/offsets/0", "zero")
    command = [sys.executable, "-c", HOLD_AND_SLEEP, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as killed:
        try:
            assert killed.stdout is not None and killed.stdout.readline() == "held\n"
            one = HeldCheckpoints(tmp_path, "shop")
            with pytest.raises(BackupError, match=f"process {killed.pid} is taking a backup"):
                one.begin()
        finally:
            killed.send_signal(signal.SIGKILL)
    one.begin()
    one.finish()
    assert held(one) == {"sums.v1/offsets/0": "zero"}
    one.release()
