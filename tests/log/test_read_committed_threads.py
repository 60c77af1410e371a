"""Readers of committed records in threads of their own, beside producers, commits, aborts, failures and deletions."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from errno import ENOSPC
from pathlib import Path

import pytest

from log.partition import Partition, batch
from proving import proves
from tidelog.client.visible import visible
from tidelog.errors import OffsetOutOfRange
from tidelog.log.settings import LogSettings
from tidelog.record.columns import decode
from tidelog.testing.disk import SimulatedDisk

READERS = 3
PRODUCERS = 4
STEPS = 1500
PATIENCE_S = 180.0


@pytest.fixture(autouse=True)
def threads_take_turns_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


class Reader:
    """What a consumer with isolation.level=read_committed is given, by offset."""

    def __init__(self, partition: Partition) -> None:
        self.log = partition.log
        self.seen: dict[int, bytes | None] = {}
        self.offset = 0
        self.finish = False
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        try:
            while True:
                last_round = self.finish
                while self.read_some():
                    pass
                if last_round:
                    return
        except BaseException as error:
            self.error = error

    def read_some(self) -> bool:
        stable = self.log.stable()
        try:
            piece = self.log.read(self.offset, 2000, limit=stable.offset)
        except OffsetOutOfRange as error:
            self.offset = error.start
            return True
        if piece is None:
            return False
        data = memoryview(piece.read())
        aborted = [
            (one.producer_id, one.first_offset) for one in stable.aborted_between(self.offset, piece.stop_offset)
        ]
        for run in visible(data, aborted):
            self.seen |= {row.offset: row.value for row in decode(run).rows() if row.offset >= self.offset}
        self.offset = decode(data).batches[-1].next_offset
        return True


class Producers:
    """`committed` is what readers must see: values by offset, of transactions that were committed."""

    def __init__(self, partition: Partition, disk: SimulatedDisk, rng: random.Random) -> None:
        self.partition = partition
        self.disk = disk
        self.rng = rng
        self.sequences = [0] * PRODUCERS
        self.open: list[dict[int, bytes]] = [{} for _ in range(PRODUCERS)]
        self.committed: dict[int, bytes] = {}

    def step(self, number: int) -> None:
        producer_id = self.rng.randrange(PRODUCERS)
        if not self.open[producer_id] or self.rng.random() < 0.5:
            value = b"%d" % number
            data = batch(value, producer=(producer_id, 0, self.sequences[producer_id]), transactional=True)
            self.open[producer_id][self.partition.append(data).base_offset] = value
            self.sequences[producer_id] += 1
        else:
            self.end(producer_id, commit=self.rng.random() < 0.5)

    def end(self, producer_id: int, *, commit: bool) -> None:
        self.partition.mark(producer_id, commit=commit)
        if commit:
            self.committed |= self.open[producer_id]
        self.open[producer_id] = {}

    def fail(self) -> None:
        """A transaction that the disk does not take, when nothing else is under way."""
        self.partition.commit()
        data = batch(b"lost", producer=(99, 0, 0), transactional=True)
        self.partition.append(data)
        self.partition.mark(99, commit=True)
        self.disk.fail("write", OSError(ENOSPC, "no room"), name=".log")
        self.partition.commit()


@proves("T6")
def test_readers_in_threads_get_all_that_is_committed_and_nothing_else(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    disk = SimulatedDisk(tmp_path)
    settings = LogSettings(segment_bytes=12_000, index_interval_bytes=500)
    partition = Partition(tmp_path / "p", disk, settings)
    producers = Producers(partition, disk, rng)
    producers.step(0)
    partition.commit()
    readers = [Reader(partition) for _ in range(READERS)]
    for number in range(1, STEPS):
        producers.step(number)
        chance = rng.random()
        if chance < 0.3:
            partition.commit()
        elif chance < 0.31:
            producers.fail()
        elif chance < 0.32:
            partition.log.delete_before(rng.randrange(partition.log.start_offset, partition.log.high_watermark))
    for producer_id in range(PRODUCERS):
        producers.end(producer_id, commit=True)
    partition.commit()
    start = partition.log.start_offset
    for reader in readers:
        reader.finish = True
        reader.thread.join(PATIENCE_S)
        assert reader.error is None
        assert reader.seen.items() <= producers.committed.items()
        assert {offset for offset in producers.committed if offset >= start} <= reader.seen.keys()
