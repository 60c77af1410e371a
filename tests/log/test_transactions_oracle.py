"""Transactions of a log against a list of its batches: whatever fails, is lost, deleted or folded anew."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EIO, ENOSPC
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from log.partition import Partition, batch
from proving import proves
from tidelog.errors import StorageError
from tidelog.log import transactions
from tidelog.log.clean_mark import CleanMark
from tidelog.log.log import Log
from tidelog.log.settings import LogSettings
from tidelog.log.transactions import Aborted
from tidelog.testing.disk import SimulatedDisk

PRODUCERS = st.sampled_from([1, 2, 3])
MEMORY = Path("/dev/shm")


class Entry(NamedTuple):
    """A batch; `commit` is None when it is no marker."""

    offset: int
    next_offset: int
    producer_id: int
    epoch: int
    transactional: bool = False
    commit: bool | None = None


def fold(entries: list[Entry]) -> tuple[dict[int, int], list[Aborted]]:
    """What a reader of all batches would say: first offsets of open transactions, and the aborted ones."""
    begun: dict[int, int] = {}
    aborted = []
    for entry in entries:
        if entry.transactional and entry.commit is None:
            begun.setdefault(entry.producer_id, entry.offset)
        elif entry.transactional and entry.producer_id in begun:
            first = begun.pop(entry.producer_id)
            if not entry.commit:
                aborted.append(Aborted(entry.producer_id, first, entry.offset))
    return begun, sorted(aborted, key=lambda one: one.first_offset)


class TransactionsAgainstList(RuleBasedStateMachine):
    """`entries` are the batches up to the end; those below the high watermark are there for good."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        self.entries: list[Entry] = []
        self.lives = 0
        self.promised = 0  # the high watermark that was seen
        self.start = 0

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @initialize(segment_bytes=st.sampled_from([4600, 5200, 90_000]), durable=st.booleans())
    def begin(self, segment_bytes: int, durable: bool) -> None:
        self.settings = LogSettings(segment_bytes=segment_bytes, index_interval_bytes=300, durable=durable)
        self.disk = SimulatedDisk(self.folder / "life0")
        self.open(None)

    def open(self, clean: CleanMark | None) -> None:
        self.partition = Partition(self.disk.folder / "p", self.disk, self.settings, clean)

    @property
    def log(self) -> Log:
        return self.partition.log

    # What clients do --------------------------------------------------------------------------------------------------

    def epoch_of(self, producer_id: int) -> int:
        return next((one.epoch for one in reversed(self.entries) if one.producer_id == producer_id), 0)

    def append(self, producer_id: int, *, transactional: bool) -> None:
        epoch = self.epoch_of(producer_id)
        written = [
            one for one in self.entries if (one.producer_id, one.epoch, one.commit) == (producer_id, epoch, None)
        ]
        sequence = sum(one.next_offset - one.offset for one in written)
        producer = (producer_id, epoch, sequence) if producer_id >= 0 else (-1, -1, -1)
        done = self.partition.append(batch(b"a", b"b", producer=producer, transactional=transactional))
        assert not done.duplicate
        self.note(Entry(done.base_offset, done.last_offset + 1, producer_id, epoch, transactional))

    def note(self, entry: Entry) -> None:
        assert entry.offset == (self.entries[-1].next_offset if self.entries else 0)
        self.entries.append(entry)

    @rule()
    def plain(self) -> None:
        with self.powered():
            self.append(-1, transactional=False)

    @rule(producer_id=PRODUCERS)
    def write(self, producer_id: int) -> None:
        with self.powered():
            self.append(producer_id, transactional=True)

    @rule(producer_id=PRODUCERS, commit=st.booleans(), fence=st.booleans())
    def end(self, producer_id: int, commit: bool, fence: bool) -> None:
        with self.powered():
            self.mark(producer_id, self.epoch_of(producer_id) + fence, commit=commit)

    def mark(self, producer_id: int, epoch: int, *, commit: bool) -> None:
        """Also where nothing is open: a marker that was written before."""
        done = self.partition.mark(producer_id, epoch, commit=commit)
        if not done.duplicate:
            self.note(Entry(done.base_offset, done.last_offset + 1, producer_id, epoch, True, commit))

    @rule()
    def commit(self) -> None:
        with self.powered():
            self.partition.commit()
            assert self.log.high_watermark == self.log.end_offset

    @rule(producer_id=PRODUCERS, commit=st.one_of(st.none(), st.booleans()))
    def commit_and_go_on(self, producer_id: int, commit: bool | None) -> None:
        """What comes while the disk is busy is not visible with what was there before."""
        with self.powered():
            self.partition.committer.write_round()
            if commit is None:
                self.append(producer_id, transactional=True)
            else:
                self.mark(producer_id, self.epoch_of(producer_id), commit=commit)
            self.partition.committer.sync_round()
            self.partition.committer.pool.wait()
            self.partition.committer.drain()

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        if self.log.high_watermark:
            with self.powered():
                self.start = data.draw(st.integers(self.log.start_offset, self.log.high_watermark))
                self.log.delete_before(self.start)

    # What goes wrong --------------------------------------------------------------------------------------------------

    def write_and_abort(self, producer_id: int) -> None:
        self.append(producer_id, transactional=True)
        self.mark(producer_id, self.epoch_of(producer_id), commit=False)

    @rule(producer_id=PRODUCERS, partly=st.booleans())
    def a_write_fails(self, producer_id: int, partly: bool) -> None:
        """What was queued before may be written, or fail with it."""
        with self.powered():
            if partly:
                self.partition.committer.write_round()
            self.write_and_abort(producer_id)
            self.disk.fail("write", OSError(ENOSPC, "no room"), name=".log")
            self.partition.commit()
            if not self.disk.is_off:
                self.disk.mend()
                self.take_back()

    @rule(producer_id=PRODUCERS)
    def a_sync_fails(self, producer_id: int) -> None:
        with self.powered():
            self.write_and_abort(producer_id)
            self.disk.fail("sync", OSError(EIO, "broken"), name=".log")
            self.partition.commit()
            if self.disk.is_off:
                return
            self.disk.mend()
            self.compare([one for one in self.entries if one.next_offset <= self.log.high_watermark])
            self.partition = self.partition.reopen()
            self.take_back()

    def take_back(self) -> None:
        end = self.log.end_offset
        assert end >= self.promised or not self.settings.durable
        self.entries = [one for one in self.entries if one.next_offset <= end]

    @rule(after=st.integers(1, 30))
    def power_will_fail(self, after: int) -> None:
        self.disk.cut_power_at(after)

    @contextmanager
    def powered(self) -> Iterator[None]:
        """When the power goes, the next life begins; it may end while it begins."""
        try:
            yield
        except (OSError, StorageError):
            assert self.disk.is_off
        if self.disk.is_off:
            self.next_life(seed=self.disk.steps)

    @rule(seed=st.integers(0, 1000), cut=st.one_of(st.none(), st.integers(1, 20)), forget=st.booleans())
    def next_life(self, seed: int, cut: int | None = None, forget: bool = False) -> None:
        """After a power cut. `forget` takes the snapshots away, where all batches are still there to be folded."""
        self.lives += 1
        image = self.disk.crash(self.folder / f"life{self.lives}", seed)
        if forget and (image / "p" / f"{0:020d}.log").exists():
            for path in (image / "p").glob("*.producers"):
                path.unlink()
        self.disk = SimulatedDisk(image)
        if cut is not None:
            self.disk.cut_power_at(cut)
        try:
            self.open(None)
        except (OSError, StorageError):
            assert self.disk.is_off
            self.next_life(seed)
            return
        if self.disk.is_off:
            self.next_life(seed)
            return
        self.disk.mend()
        self.take_back()

    @rule()
    def restart(self) -> None:
        with self.powered():
            self.partition.commit()
            mark = self.log.close()
            assert mark is not None or self.disk.is_off
            if mark is not None:
                self.disk.sync_all(str(self.disk.folder))
                self.open(mark)
                self.log.load()

    # What must hold ---------------------------------------------------------------------------------------------------

    @invariant()
    def is_as_the_list_says(self) -> None:
        if not hasattr(self, "partition"):
            return
        self.compare(self.entries)
        assert self.log.high_watermark >= self.promised or not self.settings.durable
        self.promised = self.log.high_watermark

    def compare(self, entries: list[Entry]) -> None:
        log, top, start = self.log, self.log.high_watermark, self.log.start_offset
        assert log.open_transactions() == fold(entries)[0]
        assert list(log.open_transactions().values()) == sorted(log.open_transactions().values())
        begun, aborted = fold([one for one in entries if one.next_offset <= top])
        assert log.last_stable_offset == max(min([top, *begun.values()]), start)
        for first in {start, (start + top) // 2}:
            for stop in {first, first + 3, (first + top) // 2, top}:
                overlapping = [one for one in aborted if one.first_offset < stop and one.last_offset >= first]
                assert log.stable().aborted_between(first, stop) == overlapping


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "BLOCK", 3)


TransactionsAgainstList.TestCase.settings = settings(stateful_step_count=50, suppress_health_check=list(HealthCheck))
TestTransactionsAgainstList = proves("T6", "crash")(TransactionsAgainstList.TestCase)
