"""A log against a list: whatever is done to it, in whatever order, it answers as a list of records would."""

from __future__ import annotations

import shutil
import tempfile
from bisect import bisect_right
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from log.partition import NOW, Partition, batch
from proving import proves
from tidelog.log.settings import LogSettings
from tidelog.record import codec
from tidelog.record.columns import decode

PRODUCER = 77


class LogAgainstList(RuleBasedStateMachine):
    """`records` has (timestamp, value) by offset; `bases` the base offset of every batch."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.records: list[tuple[int, bytes]] = []
        self.bases: list[int] = []
        self.visible = 0
        self.start = 0
        self.sequence = 0
        self.last: bytearray | None = None

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @initialize(segment_bytes=st.sampled_from([5000, 9000, 60_000]), interval=st.sampled_from([1, 300, 4096]))
    def begin(self, segment_bytes: int, interval: int) -> None:
        self.settings = LogSettings(segment_bytes=segment_bytes, index_interval_bytes=interval)
        self.partition = Partition(self.folder / "p", settings=self.settings, open_files_limit=3)

    @rule(
        values=st.lists(st.integers(0, 2500), min_size=1, max_size=4),
        time=st.integers(0, 100),
        idempotent=st.booleans(),
    )
    def append(self, values: list[int], time: int, idempotent: bool) -> None:
        made = [b"%d:" % (len(self.records) + at) + b"x" * size for at, size in enumerate(values)]
        producer = (PRODUCER, 0, self.sequence) if idempotent else (-1, -1, -1)
        data = batch(*made, timestamp=NOW + time, producer=producer)
        done = self.partition.append(bytearray(data))
        assert (done.base_offset, done.duplicate) == (len(self.records), False)
        self.bases.append(done.base_offset)
        self.records += [(NOW + time + at, value) for at, value in enumerate(made)]
        if idempotent:
            self.sequence += len(values)
            self.last = data

    @precondition(lambda self: self.last is not None)
    @rule()
    def repeat(self) -> None:
        done = self.partition.append(bytearray(self.last))
        assert done.duplicate
        assert self.records[done.base_offset][1] == next(decode(self.last).rows()).value

    @rule()
    def commit(self) -> None:
        self.partition.commit()
        self.visible = len(self.records)
        assert self.partition.log.high_watermark == self.visible

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        self.commit()
        self.partition = self.partition.reopen(clean=clean)
        assert self.partition.log.high_watermark == self.visible

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        self.start = data.draw(st.integers(self.start, self.visible))
        self.partition.log.delete_before(self.start)

    @rule(data=st.data(), max_bytes=st.sampled_from([1, 1000, 10_000, 1 << 20]), min_one=st.booleans())
    def read(self, data: st.DataObject, max_bytes: int, min_one: bool) -> None:
        offset = data.draw(st.integers(self.start, len(self.records)))
        limit = data.draw(st.one_of(st.none(), st.sampled_from([*self.bases, self.visible])))
        top = self.visible if limit is None else min(limit, self.visible)
        piece = self.partition.log.read(offset, max_bytes, limit=limit, min_one=min_one)
        if piece is None:
            assert offset >= top or not min_one
            return
        piece.warm()
        assert piece.size <= max_bytes or (min_one and codec.peek(piece.read()).size == piece.size)
        rows = list(decode(piece.read(), partial=False).rows())
        first = self.bases[bisect_right(self.bases, offset) - 1]
        assert [row.offset for row in rows] == list(range(first, first + len(rows)))
        assert [(row.timestamp, row.value) for row in rows] == self.records[first : first + len(rows)]
        assert offset < first + len(rows) <= top

    @rule(time=st.integers(-1, 105))
    def find_time(self, time: int) -> None:
        expected = [
            (offset, record[0])
            for offset, record in enumerate(self.records[: self.visible])
            if offset >= self.start and record[0] >= NOW + time
        ]
        assert self.partition.log.offset_at(NOW + time) == (expected[0] if expected else None)

    @precondition(lambda self: self.start == 0)
    @rule()
    def find_latest(self) -> None:
        times = [time for time, _ in self.records[: self.visible]]
        expected = (times.index(max(times)), max(times)) if times else None
        assert self.partition.log.max_timestamp() == expected

    @rule()
    def scrub(self) -> None:
        assert self.partition.log.scrub(10_000).holes == ()

    @invariant()
    def offsets_are_known(self) -> None:
        log = self.partition.log
        assert (log.start_offset, log.end_offset) == (self.start, len(self.records))
        assert log.high_watermark == self.visible
        assert self.partition.trouble == []


LogAgainstList.TestCase.settings = settings(stateful_step_count=40, suppress_health_check=list(HealthCheck))
TestLogAgainstList = proves("T1")(LogAgainstList.TestCase)
