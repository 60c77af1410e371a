"""Transactions in a compacted partition, read as a client reads committed records: against a dictionary, at random.

The reader does what Kafka's clients do with what a fetch gives them: a producer counts as aborted from the first offset
of an aborted transaction on, until its marker comes. If a marker went while its transaction is still named, or a record
that was aborted stayed when it is not, this reader would see it.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from crash.power_cut import quick_folder
from crash.seeds import run_seeds
from log.compaction.table import SETTINGS, Table
from log.partition import NOW
from proving import proves
from tidelog.log.settings import DAY_MS
from tidelog.record import codec
from tidelog.record.columns import Row, decode, encode
from tidelog.record.control import ABORT, COMMIT, read_marker
from tidelog.record.header import BatchHeader
from tidelog.testing.disk import SimulatedDisk

MANY = int(os.environ.get("TIDELOG_SEEDS", "300"))
FIRST = int(os.environ.get("TIDELOG_SEED", "1"))
KEYS = [b"key-%d" % number for number in range(6)]
PRODUCERS = (1, 2, 3)


def read_committed(table: Table, start: int, max_bytes: int) -> list[Row]:
    rows: list[Row] = []
    log, offset = table.log, start
    while (piece := log.read(offset, max_bytes, limit=log.last_stable_offset)) is not None:
        data = piece.read()
        headers = codec.scan(data).headers
        named = sorted(log.stable().aborted_between(offset, headers[-1].next_offset), key=lambda one: one.first_offset)
        aborted: set[int] = set()
        position = 0
        for header in headers:
            batch = data[position : position + header.size]
            position += header.size
            while named and named[0].first_offset <= header.last_offset:
                aborted.add(named.pop(0).producer_id)
            if header.is_control:
                if read_marker(batch).kind == ABORT:
                    aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                rows += [row for row in decode(batch).rows() if row.offset >= offset]
        offset = headers[-1].next_offset
    return rows


class History:
    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = SimulatedDisk(folder / "disk", seed=seed)
        self.table = Table(self.disk.folder / "p", self.disk, SETTINGS)
        self.now = NOW
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.open: dict[int, list[Row]] = {}
        self.committed: list[Row] = []

    def write(self) -> None:
        producer = self.rng.choice(PRODUCERS)
        rows = []
        for _ in range(self.rng.randint(1, 3)):
            value = None if self.rng.random() < 0.1 else b"%d" % self.rng.randrange(1000) + b"x" * 300
            rows.append((self.rng.choice(KEYS), value, None, self.now))
        data = encode(
            rows,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=self.sequences[producer],
            transactional=True,
            compression=self.rng.choice(("none", "zstd")),
        )
        self.sequences[producer] += len(rows)
        self.table.append(data, self.now)
        self.open.setdefault(producer, []).extend(decode(data).rows())

    def end(self, producer: int, *, commit: bool) -> None:
        self.table.mark(producer, commit=commit)
        rows = self.open.pop(producer)
        if commit:
            self.committed += rows

    def plain(self) -> None:
        data = encode([(self.rng.choice(KEYS), b"plain" * 60, None, self.now)])
        self.table.append(data, self.now)
        self.committed += decode(data).rows()

    def step(self) -> None:
        choice = self.rng.random()
        if choice < 0.45:
            self.write()
        elif choice < 0.55:
            self.plain()
        elif choice < 0.75 and self.open:
            self.end(self.rng.choice(list(self.open)), commit=self.rng.random() < 0.6)
        elif choice < 0.9:
            self.table.commit()
            self.table.turn(self.now, self.rng.choice((2000, 1 << 20)))
        elif choice < 0.94:
            self.now += self.rng.choice((1000, DAY_MS, 3 * DAY_MS))
        elif choice < 0.97:
            self.table.commit()
            self.table = self.table.again(clean=self.rng.random() < 0.5)
        else:
            self.look()

    def look(self) -> None:
        table = self.table
        table.commit()
        stable = table.log.last_stable_offset
        assert stable == min([rows[0].offset for rows in self.open.values()], default=table.log.high_watermark)
        assert table.log.open_transactions() == {producer: rows[0].offset for producer, rows in self.open.items()}
        known = {row.offset: row for row in self.committed if row.offset < stable}
        seen = read_committed(table, 0, self.rng.choice((1, 3000, 1 << 20)))
        assert [row.offset for row in seen] == sorted({row.offset for row in seen})
        for row in seen:
            assert known[row.offset] == row
        last = {row.key: row for _, row in sorted(known.items())}
        for key, row in last.items():
            newest = max((one.offset for one in seen if one.key == key), default=-1)
            assert newest == row.offset or (row.value is None and newest == -1)

    def finish(self) -> None:
        """All ends, all is compacted again and again: nothing is left but the last of each key."""
        for producer in list(self.open):
            self.end(producer, commit=self.rng.random() < 0.5)
        table = self.table
        for _ in range(4):
            self.now += 2 * DAY_MS
            self.committed += [self._push() for _ in range(25)]
            table.commit()
            table.compact(self.now)
            self.look()
        below = table.active
        left = [row for row in table.records() if row.offset < below and row.key in KEYS]
        last = {row.key: row for row in sorted(self.committed) if row.offset < below and row.key in KEYS}
        assert left == sorted(row for row in last.values() if row.value is not None)
        assert table.log.stable().aborted_between(0, below) == []
        going_on: set[int] = set()
        for header in self._headers():
            if header.is_control and header.count and header.base_offset < below:
                assert header.producer_id in going_on, "a marker of which nothing is left is still there"
                going_on.remove(header.producer_id)
            elif header.is_transactional and header.count:
                going_on.add(header.producer_id)

    def _push(self) -> Row:
        data = encode([(b"push", b"z" * 500, None, self.now)])
        self.table.append(data, self.now)
        (row,) = decode(data).rows()
        return row

    def _headers(self) -> list[BatchHeader]:
        found: list[BatchHeader] = []
        offset = 0
        while (piece := self.table.log.read(offset, 1 << 20)) is not None:
            found += codec.scan(piece.read()).headers
            offset = found[-1].next_offset
        return found


def tell(folder: Path, seed: int) -> None:
    history = History(folder, seed)
    for _ in range(history.rng.randint(20, 250)):
        history.step()
    history.look()
    history.finish()


@proves("T6", "D5")
@given(seed=st.integers(0, 1 << 32))
@pytest.mark.slow
def test_readers_of_committed_records_see_what_was_committed_last(seed: int) -> None:
    note(f"seed {seed}")
    with quick_folder() as folder:
        tell(folder, seed)


@proves("T6", "D5")
@pytest.mark.soak
def test_readers_of_committed_records_see_it_for_many_seeds() -> None:
    with quick_folder() as folder:
        run_seeds(folder, MANY, tell, FIRST * MANY)


@proves("T6", "D5")
def test_a_transaction_that_is_open_is_not_touched(tmp_path: Path) -> None:
    table = Table(tmp_path / "p")
    table.fill(15, keys=1)
    first = table.write((b"key-0", b"open"), producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    table.fill(30, keys=1)
    table.compact()
    assert table.first_dirty <= first
    assert [row.value for row in table.records() if row.offset == first] == [b"open"]
    assert len([row for row in table.records() if row.offset > first]) == 30
    table.mark(1, commit=True)
    table.fill(12, keys=1)
    table.compact()
    assert first not in [row.offset for row in table.records()]
    assert COMMIT in {_kind(table, header.base_offset) for header in _control(table)}


def _control(table: Table) -> list:  # type: ignore[type-arg]
    piece = table.log.read(0, 1 << 20)
    found, offset = [], 0
    while piece is not None:
        headers = codec.scan(piece.read()).headers
        found += [header for header in headers if header.is_control]
        offset = headers[-1].next_offset
        piece = table.log.read(offset, 1 << 20)
    return found


def _kind(table: Table, offset: int) -> int:
    piece = table.log.read(offset, 1)
    assert piece is not None
    return read_marker(piece.read()).kind
