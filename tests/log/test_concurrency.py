"""What the loop, the committer's threads and readers do at the same time, step by step or with real threads."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from errno import EIO
from pathlib import Path

from log.partition import NOW, Partition, batch
from proving import proves
from tidelog.errors import OfflineError
from tidelog.log.files import Buffer, RealFiles
from tidelog.log.header_block import HEADER_BLOCK
from tidelog.log.pool import Pool
from tidelog.record.codec import check

PATIENCE_S = 180.0


@proves("T1")
def test_work_for_many_threads_does_not_wait_for_those_that_are_busy() -> None:
    faults: list[BaseException] = []
    pool = Pool(2, "test", faults.append)
    gate = threading.Event()
    for _ in range(4):
        pool.submit(lambda: gate.wait(PATIENCE_S) and None)
    done: list[int] = []
    worker = threading.Thread(target=pool.each, args=(done.append, [1, 2, 3]), daemon=True)
    worker.start()
    worker.join(PATIENCE_S / 2)
    finished = not worker.is_alive()
    gate.set()
    pool.stop()
    assert finished
    assert sorted(done) == [1, 2, 3]
    assert not faults


@proves("T1")
def test_a_reader_that_looks_while_a_batch_is_appended_sees_nothing_of_it(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "p")
    partition.put(b"visible")
    before = partition.log.read(0, 1)
    assert before is not None
    partition.append(batch(b"not yet"))
    # As it is for a moment in the middle of an append, and longer for a reader that was stopped then.
    segment = partition.log._reading.segments[-1]
    segment.recent.offsets.pop()
    segment.recent.positions.pop()
    found = partition.log.read(0, 1)
    assert found is not None
    assert (found.position, found.size) == (before.position, before.size)


class SlowDisk(RealFiles):
    """The writing of batches can be held up, and syncs fail when told to."""

    __slots__ = ("fails", "gate", "writing")

    def __init__(self) -> None:
        super().__init__()
        self.fails = False
        self.gate = threading.Event()
        self.gate.set()
        self.writing = threading.Event()

    def write(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        if position >= HEADER_BLOCK:
            self.writing.set()
            assert self.gate.wait(PATIENCE_S)
        return super().write(fd, buffers, position)

    def sync(self, fd: int) -> None:
        if self.fails:
            raise OSError(EIO, "it is broken")
        super().sync(fd)


@proves("T1")
def test_a_buffer_is_not_let_go_while_it_is_being_written_also_when_a_sync_fails(tmp_path: Path) -> None:
    disk = SlowDisk()
    partition = Partition(tmp_path / "p", disk)
    partition.put(b"first")
    partition.append(batch(b"synced in vain"))
    partition.committer.write_round()
    released = threading.Event()
    data = memoryview(batch(b"being written"))
    partition.log.append(data, check(data), NOW, released.set)
    disk.writing.clear()
    disk.gate.clear()
    disk.fails = True
    writer = threading.Thread(target=partition.committer.write_round)
    writer.start()
    assert disk.writing.wait(PATIENCE_S)
    syncer = threading.Thread(target=partition.committer.sync_round)
    syncer.start()
    syncer.join(0.3)
    partition.committer.drain()
    assert not released.is_set()
    disk.gate.set()
    writer.join(PATIENCE_S)
    syncer.join(PATIENCE_S)
    partition.committer.drain()
    assert released.is_set()
    assert isinstance(partition.log.offline, OfflineError)
