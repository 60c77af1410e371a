"""Group commit: one partition or many, disks that fill and fail, acks that wait for the disk and acks that do not."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from errno import EIO, EMFILE, ENOSPC
from pathlib import Path

import pytest

from log.partition import NOW, Partition, batch
from proving import proves
from tidelog.errors import DiskFullError, OfflineError, StorageError
from tidelog.log import commit
from tidelog.log.commit import SYNC_ALL_ANYWAY_FROM, SYNC_ALL_BYTES, SYNC_ALL_FROM, Committer
from tidelog.log.log import Log
from tidelog.log.settings import LogSettings
from tidelog.record.codec import check
from tidelog.record.columns import decode
from tidelog.testing.disk import SimulatedDisk

SMALL = LogSettings(segment_bytes=20_000, index_interval_bytes=500)
PATIENCE_S = 180.0


@pytest.fixture
def disk(tmp_path: Path) -> SimulatedDisk:
    return SimulatedDisk(tmp_path / "disk")


def open_on(disk: SimulatedDisk, settings: LogSettings = SMALL) -> Partition:
    return Partition(disk.folder / "p", disk, settings)


# A disk that fills ----------------------------------------------------------------------------------------------------


@proves("T1")
def test_a_full_disk_fails_the_appends_and_the_partition_goes_on_when_there_is_room(disk: SimulatedDisk) -> None:
    partition = open_on(disk)
    partition.put(b"first")
    disk.capacity = disk._used() + 150
    for number in range(3):
        partition.append(batch(b"lost %d" % number * 20, producer=(5, 0, number)))
    partition.commit()
    failed = [error for _, error in partition.visible if error is not None]
    assert len(failed) == 3
    assert all(isinstance(error, DiskFullError) for error in failed)
    log = partition.log
    assert (log.end_offset, log.high_watermark) == (1, 1)
    assert log.producers == {}
    disk.capacity = None
    done = partition.append(batch(b"second", producer=(5, 0, 0)))
    partition.commit()
    assert (done.base_offset, done.duplicate) == (1, False)
    assert partition.visible[-1] == (1, None)
    assert partition.values() == [b"first", b"second"]
    assert partition.reopen().values() == [b"first", b"second"]


@proves("T1")
def test_what_was_queued_behind_a_failed_write_fails_too_and_later_appends_do_not(disk: SimulatedDisk) -> None:
    partition = open_on(disk)
    partition.put(b"0")
    disk.fail("write", OSError(EIO, "bad sector"), name=".log")
    partition.append(batch(b"fails"))
    partition.committer.write_round()
    partition.append(batch(b"queued before the loop knew"))
    partition.committer.write_round()
    partition.commit()
    assert [type(error) for _, error in partition.visible] == [type(None), StorageError, StorageError]
    partition.put(b"1")
    assert partition.values() == [b"0", b"1"]


@proves("T1")
def test_a_short_write_is_finished(disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = open_on(disk)
    partition.put(b"0")
    whole: Callable[..., int] = disk.write

    def short(fd: int, buffers: list[memoryview], position: int) -> int:
        data = b"".join(bytes(buffer) for buffer in buffers)
        return whole(fd, [data[: max(1, len(data) // 3)]], position)

    monkeypatch.setattr(disk, "write", short)
    for number in range(4):
        partition.append(batch(b"%d" % number * 100))
    partition.commit()
    assert partition.values()[1:] == [b"%d" % number * 100 for number in range(4)]


@proves("T1")
def test_more_buffers_than_one_call_takes_are_written_in_order(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "p")
    partition.put(b"make the segment")
    for number in range(2500):
        partition.append(batch(b"%d" % number))
    partition.commit()
    assert partition.values()[1:] == [b"%d" % number for number in range(2500)]


@proves("T1")
def test_no_room_for_a_new_segment_leaves_no_trace_of_it(disk: SimulatedDisk) -> None:
    partition = open_on(disk)
    while partition.log.size_bytes < 15_000:
        partition.put(b"x" * 3000)
    before = partition.values()
    disk.fail("write", OSError(ENOSPC, "full"), name=f"{partition.log.end_offset:020d}.log")
    partition.append(batch(b"y" * 9000))
    partition.commit()
    assert isinstance(partition.visible[-1][1], DiskFullError)
    assert len(list(partition.folder.glob("*.log"))) == 1
    partition.put(b"y" * 9000)
    assert partition.values() == [*before, b"y" * 9000]
    assert partition.reopen().values() == [*before, b"y" * 9000]


@proves("T1")
def test_a_write_that_cannot_be_taken_back_takes_the_partition_offline(disk: SimulatedDisk) -> None:
    partition = open_on(disk)
    partition.put(b"0")
    disk.fail("write", OSError(EIO, "no"), name=".log")
    disk.fail("truncate", OSError(EIO, "no"), name=".log")
    partition.append(batch(b"1"))
    partition.commit()
    assert isinstance(partition.log.offline, OfflineError)


# A sync that fails ----------------------------------------------------------------------------------------------------


@proves("T1")
def test_a_failed_sync_takes_the_partition_offline_and_is_never_tried_again(disk: SimulatedDisk) -> None:
    partition = open_on(disk)
    partition.put(b"acked")
    disk.fail("sync", OSError(EIO, "lost the cable"), name=".log")
    partition.append(batch(b"not acked"))
    partition.commit()
    assert isinstance(partition.visible[-1][1], OfflineError)
    syncs = disk.syncs
    with pytest.raises(OfflineError, match="lost the cable; restart the broker to recover it"):
        partition.append(batch(b"refused"))
    errors: list[StorageError | None] = []
    partition.log.when_visible(99, errors.append)
    partition.commit()
    assert disk.syncs == syncs
    assert isinstance(errors[0], OfflineError)
    assert partition.values() == [b"acked"]
    assert partition.log.close() is None, "it must be recovered"


@proves("T1")
def test_an_offline_partition_comes_back_with_the_next_start(disk: SimulatedDisk) -> None:
    partition = open_on(disk)
    partition.put(b"acked")
    disk.fail("sync", OSError(EIO, "once"), name=".log")
    partition.append(batch(b"in doubt", producer=(3, 0, 0)))
    partition.commit()
    partition = partition.reopen()
    again = partition.append(batch(b"in doubt", producer=(3, 0, 0)))
    partition.commit()
    assert partition.visible[-1] == (again.base_offset, None)
    assert partition.values() == [b"acked", b"in doubt"]


@proves("T1")
def test_what_recovery_keeps_after_a_failed_sync_is_really_on_the_disk(disk: SimulatedDisk, tmp_path: Path) -> None:
    partition = open_on(disk)
    partition.put(b"acked")
    disk.fail("sync", OSError(EIO, "once"), name=".log")
    partition.append(batch(b"in the page cache only" * 300))
    partition.commit()
    again = partition.reopen()
    kept = again.values()
    assert kept == [b"acked", b"in the page cache only" * 300]
    for seed in range(10):
        image = disk.crash(tmp_path / f"image{seed}", seed)
        assert Partition(image / "p", settings=SMALL).values() == kept


# Many partitions ------------------------------------------------------------------------------------------------------


def many(disk: SimulatedDisk, count: int) -> tuple[Committer, list[Log]]:
    committer = Committer(disk, lambda: None, threads=False)
    logs = [Log.open(f"{disk.folder}/p{number}", disk, SMALL, committer) for number in range(count)]
    return committer, logs


def append_to(logs: list[Log], value: bytes) -> list[tuple[int, StorageError | None]]:
    told: list[tuple[int, StorageError | None]] = []
    for number, log in enumerate(logs):
        data = batch(value)
        done = log.append(memoryview(data), check(data), NOW)
        log.when_visible(done.last_offset + 1, lambda error, number=number: told.append((number, error)))
    return told


@proves("T1")
@pytest.mark.parametrize("others_bytes", [0, SYNC_ALL_BYTES + 1])
@pytest.mark.parametrize("count", [1, SYNC_ALL_FROM, 5, SYNC_ALL_ANYWAY_FROM])
def test_one_several_and_many_dirty_partitions_are_all_durable_when_acked(
    disk: SimulatedDisk, tmp_path: Path, count: int, others_bytes: int
) -> None:
    disk.others_bytes = others_bytes
    committer, logs = many(disk, count)
    append_to(logs, b"make the segments")
    committer.settle()
    told = append_to(logs, b"acked")
    committer.settle()
    assert sorted(told) == [(number, None) for number in range(count)]
    image = disk.crash(tmp_path / "image", 3)
    for number in range(count):
        assert Partition(image / f"p{number}", settings=SMALL).values() == [b"make the segments", b"acked"]


@proves("T1")
@pytest.mark.parametrize(
    ("count", "others_bytes", "syncs_each"),
    [
        (SYNC_ALL_FROM, 0, 0),
        (SYNC_ALL_FROM, SYNC_ALL_BYTES + 1, 1),
        (SYNC_ALL_ANYWAY_FROM - 1, SYNC_ALL_BYTES + 1, 1),
        (SYNC_ALL_ANYWAY_FROM, SYNC_ALL_BYTES + 1, 0),
    ],
)
def test_dirty_partitions_are_synced_at_once_where_that_writes_little_of_others(
    disk: SimulatedDisk, count: int, others_bytes: int, syncs_each: int
) -> None:
    disk.others_bytes = others_bytes
    committer, logs = many(disk, count)
    append_to(logs, b"make the segments")
    committer.settle()
    syncs = disk.syncs
    append_to(logs, b"one more")
    committer.settle()
    assert disk.syncs == syncs + syncs_each * count


@proves("T1")
def test_many_dirty_partitions_are_one_sync_and_record_the_commit_before(disk: SimulatedDisk) -> None:
    committer, logs = many(disk, 8)
    for value in (b"make", b"one"):
        append_to(logs, value)
        committer.settle()
    syncs = disk.syncs
    append_to(logs, b"two")
    committer.settle()
    assert disk.syncs == syncs, "no file was synced by itself"
    again = Partition(disk.folder / "p7", disk, SMALL)
    assert 0 < again.log.recovery.scanned_bytes < 200, "only the last commit was in doubt"


@proves("T1")
def test_when_the_sync_of_all_fails_only_those_at_fault_go_offline(disk: SimulatedDisk, tmp_path: Path) -> None:
    committer, logs = many(disk, 5)
    append_to(logs, b"make")
    committer.settle()
    disk.fail("sync_all", OSError(EIO, "somebody's pages"))
    disk.fail("sync", OSError(EIO, "these pages"), name="/p3/")
    told = append_to(logs, b"acked")
    committer.settle()
    assert [number for number, error in told if error is not None] == [3]
    assert [number for number, log in enumerate(logs) if log.offline] == [3]
    image = disk.crash(tmp_path / "image", 1)
    assert Partition(image / "p4", settings=SMALL).values() == [b"make", b"acked"]


@proves("T1")
def test_a_roll_holds_up_only_its_own_partition(disk: SimulatedDisk) -> None:
    committer, logs = many(disk, 2)
    append_to(logs, b"x" * 15_000)
    committer.settle()
    told = append_to(logs[:1], b"y" * 15_000)
    others = append_to(logs[1:], b"z")
    committer.write_round()
    committer.sync_round()
    committer.drain()
    assert (told, others) == ([], [(0, None)])
    committer.settle()
    assert told == [(0, None)]


def open_descriptors() -> int:
    """As many as the lowest free one, for files are opened at the lowest."""
    free = os.open("/", os.O_RDONLY)
    os.close(free)
    return free


@proves("T1")
def test_files_that_are_not_used_are_closed_and_opened_again(tmp_path: Path) -> None:
    committer = Committer(SimulatedDisk(tmp_path / "disk"), lambda: None, threads=False, open_files_limit=3)
    logs = [Log.open(f"{tmp_path}/disk/p{number}", committer.files, SMALL, committer) for number in range(20)]
    before = open_descriptors()
    for value in (b"one", b"two", b"three"):
        append_to(logs, value)
        committer.settle()
        assert len(committer.open_files) <= 3
        assert open_descriptors() <= before + 3
    pieces = [log.read(0, 1000) for log in logs]
    for piece in pieces:
        assert piece is not None
        assert len(list(decode(piece.read()).rows())) == 3, "a slice keeps its file open"


@proves("T1")
def test_when_the_process_has_no_descriptors_left_files_are_closed_and_the_append_goes_on(disk: SimulatedDisk) -> None:
    committer, logs = many(disk, 8)
    append_to(logs, b"one")
    committer.settle()
    committer.open_files.forget(f"{disk.folder}/p0/{0:020d}.log")
    disk.fail("open", OSError(EMFILE, "too many open files"), name="/p0/")
    told = append_to(logs, b"two")
    committer.settle()
    assert [error for _, error in told] == [None] * 8


# Acks that do not wait for the disk -----------------------------------------------------------------------------------

MEMORY = replace(SMALL, durable=False)


@proves("T1")
def test_memory_durability_acks_what_is_written_and_syncs_later(disk: SimulatedDisk) -> None:
    partition = open_on(disk, MEMORY)
    partition.put(b"first")
    syncs = disk.syncs
    partition.append(batch(b"second"))
    partition.committer.write_round()
    partition.committer.drain()
    assert partition.visible[-1] == (1, None)
    assert disk.syncs == syncs
    partition.committer.flush()
    assert disk.syncs == syncs + 1


@proves("T1")
def test_the_epoch_rises_after_an_unclean_stop_of_a_memory_partition_and_only_then(disk: SimulatedDisk) -> None:
    partition = open_on(disk, MEMORY)
    partition.put(b"a")
    partition.put(b"b")
    assert partition.log.leader_epoch == 0
    clean = partition.reopen(clean=True)
    assert clean.log.leader_epoch == 0
    clean.put(b"c")
    unclean = clean.reopen()
    assert unclean.log.leader_epoch == 1
    assert unclean.log.recovery.raised_epoch == 1
    assert "leader epoch is now 1" in unclean.log.recovery.lines()[0]
    unclean.put(b"d")
    assert unclean.log.end_offset_for_epoch(0) == (0, 3)
    assert unclean.log.end_offset_for_epoch(1) == (1, 4)
    assert (unclean.log.epoch_at(2), unclean.log.epoch_at(3)) == (0, 1)
    assert unclean.reopen().log.leader_epoch == 2


@proves("T1")
def test_acks_begin_to_wait_for_the_disk_when_told_to_and_the_epoch_then_stays(disk: SimulatedDisk) -> None:
    partition = open_on(disk, MEMORY)
    partition.put(b"a")
    partition.put(b"b")
    partition.log.update_settings(SMALL)
    partition.append(batch(b"c"))
    partition.committer.write_round()
    partition.committer.drain()
    assert partition.log.high_watermark == 2
    partition.commit()
    assert partition.log.high_watermark == 3
    assert partition.reopen(settings=SMALL).log.leader_epoch == 0


@proves("T1")
def test_a_partition_that_was_volatile_when_it_stopped_uncleanly_rises_whatever_it_is_now(disk: SimulatedDisk) -> None:
    partition = open_on(disk, MEMORY)
    partition.put(b"a")
    partition.put(b"b")
    assert partition.reopen(settings=SMALL).log.leader_epoch == 1


@proves("T1")
@pytest.mark.parametrize("seed", range(8))
def test_a_memory_partition_never_begins_behind_its_end(disk: SimulatedDisk, tmp_path: Path, seed: int) -> None:
    """What is deleted may be visible and not synced; a power cut then takes it, and the offsets with it."""
    partition = open_volatile(disk)
    for number in range(5):
        partition.append(batch(b"%d" % number))
    write_and_tell(partition)
    partition.log.delete_before(partition.log.high_watermark)
    write_and_tell(partition)
    image = SimulatedDisk(disk.crash(tmp_path / "image", seed))
    after = Partition(image.folder / "p", image, partition.settings)
    done = after.put(b"new")
    assert after.log.start_offset <= done.base_offset
    assert after.values() == [b"new"]
    assert after.reopen().values() == [b"new"]


@proves("T1")
@pytest.mark.parametrize("seed", range(8))
def test_what_a_memory_partition_saves_beside_its_batches_claims_nothing_that_is_not_synced(
    disk: SimulatedDisk, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.log.appending.SNAPSHOT_BYTES", 500)
    partition = open_volatile(disk)
    for number in range(6):
        partition.append(batch(b"%d" % number * 300))
        write_and_tell(partition)
    image = SimulatedDisk(disk.crash(tmp_path / "image", seed))
    after = Partition(image.folder / "p", image, partition.settings)
    assert after.log.holes == ()
    after.put(b"new")
    assert after.values()[-1] == b"new"


def open_volatile(disk: SimulatedDisk) -> Partition:
    """Acks do not wait for syncs any more: the first commit is behind it."""
    partition = open_on(disk, replace(SMALL, durable=False))
    partition.put(b"first")
    partition.put(b"second")
    return partition


def write_and_tell(partition: Partition) -> None:
    """All that happens but the flush that comes once a second."""
    committer = partition.committer
    for _ in range(3):
        committer.write_round()
        committer.sync_round()
        committer.pool.wait()
        committer.background.wait()
        committer.drain()


@proves("T1", "T5")
def test_what_was_acked_from_memory_is_flushed_while_upkeep_takes_its_time(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "FLUSH_INTERVAL", 0.01)
    told = threading.Event()
    committer = Committer(disk, told.set)
    committer.start()
    log = Log.open(f"{disk.folder}/p", disk, MEMORY, committer)
    slow, go = threading.Event(), threading.Event()
    try:
        append_and_wait(log, committer, told)  # the segment is made, and the file of facts says that acks do not wait
        committer.background.wait()
        committer.drain()
        for _ in range(commit.BACKGROUND_THREADS):
            committer.background.submit(lambda: (slow.set(), go.wait(PATIENCE_S)))  # type: ignore[arg-type, return-value]
        assert slow.wait(PATIENCE_S)
        append_and_wait(log, committer, told)
        assert not log._tail.durable
        while log._tail.synced.offset < log.end_offset and not go.is_set():  # type: ignore[union-attr]
            assert told.wait(PATIENCE_S), "the flush waits for the upkeep"
            told.clear()
            committer.drain()
    finally:
        go.set()
        committer.stop()


def append_and_wait(log: Log, committer: Committer, told: threading.Event) -> None:
    acked: list[StorageError | None] = []
    data = batch(b"x")
    done = log.append(memoryview(data), check(data), NOW)
    log.when_visible(done.last_offset + 1, acked.append)
    while not acked:
        assert told.wait(PATIENCE_S)
        told.clear()
        committer.drain()
    assert acked == [None]
