"""A partition that rests is recorded as wholly synced: what was acked a while ago is never in doubt again."""

from __future__ import annotations

from errno import EIO
from pathlib import Path

import pytest

from log.partition import NOW, UnsyncedFiles, batch
from proving import proves
from tidelog.errors import HoleError
from tidelog.log.commit import Committer
from tidelog.log.files import Files
from tidelog.log.header_block import HEADER_BLOCK, Slot, unpack_slots
from tidelog.log.idling import AT_ONCE, TURN_S
from tidelog.log.log import Log
from tidelog.log.settings import LogSettings
from tidelog.record import codec
from tidelog.testing.disk import SimulatedDisk, flip_bit

SIZE = len(batch(b"x"))


class Life:
    """Some partitions, their committer, and a clock that only the test moves."""

    def __init__(self, folder: Path, count: int = 1, files: Files | None = None, *, durable: bool = True) -> None:
        self.now = 50.0
        self.files: Files = files or UnsyncedFiles()
        self.committer = Committer(self.files, lambda: None, threads=False, clock=lambda: self.now)
        settings = LogSettings(durable=durable)
        self.folders = [folder / f"p{number}" for number in range(count)]
        self.logs = [Log.open(str(path), self.files, settings, self.committer) for path in self.folders]

    def put(self, value: bytes = b"x", number: int = 0) -> None:
        data = memoryview(batch(value))
        self.logs[number].append(data, codec.check(data), NOW)
        self.committer.settle()

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            self.now += TURN_S
            self.committer.look_for_idle()
            self.committer.settle()

    def slot(self, number: int = 0) -> Slot:
        (log,) = self.folders[number].glob("*.log")
        found = unpack_slots(log.read_bytes())
        assert found is not None
        return found


def synced(count: int) -> tuple[int, int]:
    return count, HEADER_BLOCK + count * SIZE


@proves("T6")
def test_a_partition_that_rests_is_recorded_as_wholly_synced_and_one_that_is_written_is_not(tmp_path: Path) -> None:
    life = Life(tmp_path)
    for count in range(1, 6):
        life.put()
        life.turn()
        assert life.slot()[1:] == synced(count - 1), "the slot of a busy partition lags one commit behind, as ever"
    life.turn()
    assert life.slot()[1:] == synced(5)
    before = life.slot()
    life.turn(5)
    assert life.slot() == before, "once is enough"
    life.put()
    assert life.slot() == before, "it says already what this commit would write"
    life.put()
    assert life.slot()[1:] == synced(6)


@proves("T6")
@pytest.mark.parametrize("durable", [True, False], ids=["disk", "memory"])
def test_damage_to_what_was_acked_long_ago_is_a_hole_and_is_not_cut(tmp_path: Path, durable: bool) -> None:
    life = Life(tmp_path, durable=durable)
    for _ in range(3):
        life.put()
    life.turn(3)
    (log,) = life.folders[0].glob("*.log")
    flip_bit(log, HEADER_BLOCK + 3 * SIZE - 1)
    again = Life(tmp_path, durable=durable)
    assert (again.logs[0].recovery.cut_bytes, again.logs[0].end_offset) == (0, 3)
    with pytest.raises(HoleError, match="offsets 2 to 2"):
        again.logs[0].read(2, 1 << 20).warm()


@proves("T6")
def test_what_recovery_found_in_doubt_is_recorded_when_nobody_writes_on(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.put()
    life.put()
    assert life.slot()[1:] == synced(1)
    again = Life(tmp_path)
    again.committer.settle()
    again.turn(3)
    assert again.slot()[1:] == synced(2)


@proves("T6")
def test_what_is_cut_is_not_said_to_be_unsynced(tmp_path: Path) -> None:
    """Within the second a flipped bit cannot be told from a torn write, and the line says so."""
    life = Life(tmp_path)
    life.put()
    life.put()
    (log,) = life.folders[0].glob("*.log")
    flip_bit(log, HEADER_BLOCK + 2 * SIZE - 1)
    again = Life(tmp_path).logs[0]
    (line,) = again.recovery.lines()
    assert "a write that the stop cut short, or damage to what was acked in the last second" in line
    assert (tmp_path / "p0" / again.recovery.cut_file).stat().st_size == SIZE


@proves("T6")
def test_a_thousand_that_fall_idle_at_once_are_recorded_by_a_few_syncs(tmp_path: Path) -> None:
    disk = SimulatedDisk(tmp_path)
    life = Life(tmp_path, 3 * AT_ONCE // 2, disk)
    for number in range(len(life.logs)):
        data = memoryview(batch(b"x"))
        life.logs[number].append(data, codec.check(data), NOW)
    life.committer.settle()
    calls: list[str] = []
    disk.sync, sync = (lambda fd: (calls.append("one"), sync(fd))[1]), disk.sync  # type: ignore[method-assign]
    disk.sync_all, sync_all = (lambda path: (calls.append("all"), sync_all(path))[1]), disk.sync_all  # type: ignore[method-assign]
    life.turn(3)
    assert calls == ["all", "all"]
    assert {life.slot(number)[1:] for number in range(len(life.logs))} == {synced(1)}


@proves("T1")
def test_a_sync_that_fails_while_it_records_takes_the_partition_offline(tmp_path: Path) -> None:
    """Its pages may be gone, also those of an append that was written meanwhile."""
    disk = SimulatedDisk(tmp_path)
    life = Life(tmp_path, 2, disk)
    disk.can_sync_all = False
    life.put(number=0)
    life.put(number=1)
    disk.fail("sync", OSError(EIO, "broken"), name="p0")
    life.turn(3)
    assert life.logs[0].offline is not None and life.logs[1].offline is None
    assert life.slot(1)[1:] == synced(1)


@proves("T1")
def test_a_power_cut_at_any_step_of_recording_loses_nothing_acked(tmp_path: Path) -> None:
    for step in range(1, 8):
        disk = SimulatedDisk(tmp_path / f"{step}")
        life = Life(tmp_path / f"{step}", 2, disk)
        for number in (0, 1):
            life.put(number=number)
        disk.cut_power_at(step)
        life.turn(3)
        for seed in range(3):
            image = disk.crash(tmp_path / f"{step}-{seed}", seed)
            for log in Life(image, 2).logs:
                assert (log.end_offset, log.holes) == (1, ())
