"""Any history of a compacted partition, read from the beginning, gives the last record of every key as it was written.

The oracle is a list of every record that was acked, in order. A history is drawn: batches of any compression, keys that
come again, tombstones, headers, idempotent producers, segments of any size, a clock that jumps both ways, clean stops,
kills and power cuts at any operation of the disk. At each look:

- what is there was written there: offset, timestamp, key, value, headers, byte by byte, in order;
- the last record of each key is there, unless it is a tombstone that compaction has seen and given its time;
- below the first dirty offset no key is there twice;
- every offset from the start to the end is in exactly one batch, and no producer is forgotten.
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
from log.partition import NOW
from proving import proves
from tidelog.errors import StorageError
from tidelog.log.clean_mark import CleanMark
from tidelog.log.commit import Committer
from tidelog.log.compaction.compactor import Turn
from tidelog.log.log import Log
from tidelog.log.settings import LogSettings
from tidelog.record import codec
from tidelog.record.columns import Row, decode, encode
from tidelog.testing.disk import SimulatedDisk

MANY = int(os.environ.get("TIDELOG_SEEDS", "300"))
FIRST = int(os.environ.get("TIDELOG_SEED", "1"))
COMPRESSIONS = ("none", "none", "gzip", "snappy", "lz4", "zstd")
DAY = 86_400_000
STEP_BYTES = 3000
LATER = 4_000_000_000_000  # a head that was being made when the power went gets the real time


def settings_of(rng: random.Random) -> LogSettings:
    return LogSettings(
        segment_bytes=rng.choice((5000, 7000, 20_000)),
        index_interval_bytes=rng.choice((0, 300, 4096)),
        compact=True,
        min_cleanable_ratio=rng.choice((0.0, 0.5)),
        min_compaction_lag_ms=rng.choice((0, 0, DAY)),
        max_compaction_lag_ms=rng.choice((DAY, (1 << 63) - 1)),
        delete_retention_ms=rng.choice((0, DAY)),
        producer_expiration_ms=1000 * DAY,
    )


class History:
    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.folder = folder
        self.settings = settings_of(self.rng)
        self.keys = [b"key-%d" % number for number in range(self.rng.choice((1, 4, 40)))] + [b""]
        self.key_bytes = self.rng.choice((27 * 3, 27 * 20, 1 << 20))
        self.now = NOW
        self.lives = 0
        self.number = 0
        self.written: dict[int, Row] = {}  # everything that was ever given an offset and may be there
        self.acked = 0  # offsets below are there for good
        self.sent: dict[int, int] = {}  # sequences of the idempotent producer, by offset: the last of each batch
        self.passes = 0
        self.disk = SimulatedDisk(folder / "life0", seed=seed)
        self.clean: CleanMark | None = None
        self.log = self._open()

    # What happens -----------------------------------------------------------------------------------------------------

    def _open(self) -> Log:
        self.committer = Committer(self.disk, lambda: None, threads=False)
        clean, self.clean = self.clean, None
        self.log = Log.open(f"{self.disk.folder}/p", self.disk, self.settings, self.committer, clean=clean)
        return self.log

    def append(self) -> None:
        rng = self.rng
        self.number += 1
        rows = []
        for at in range(rng.choice((1, 1, 2, 5))):
            value = None if rng.random() < 0.15 else b"%d.%d-" % (self.number, at) + b"x" * rng.choice((0, 20, 700))
            headers = [("h", None), ("n", b"%d" % self.number)][: rng.choice((0, 0, 2))]
            rows.append((rng.choice(self.keys), value, headers, self.now + rng.randrange(-DAY, DAY)))
        mine = rng.random() < 0.3
        sequence = self.sent[max(self.sent)] + 1 if self.sent else 0
        identity = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence} if mine else {}
        data = encode(rows, compression=rng.choice(COMPRESSIONS), **identity)  # type: ignore[arg-type]
        try:
            appended = self.log.append(memoryview(data), codec.check(data), self.now)
        except StorageError:
            return
        if mine:
            self.sent[appended.last_offset] = sequence + len(rows) - 1
        for row in decode(data).rows():
            self.written[row.offset] = row

    def compact(self) -> None:
        turns: list[Turn] = []
        self.log.compact(self.now, STEP_BYTES, turns.append, self.key_bytes)
        self.settle()
        self.passes += sum(turn.over is not None for turn in turns)

    def settle(self) -> None:
        self.committer.settle()
        if not self.disk.is_off and self.log.loaded:
            self.acked = max(self.acked, self.log.high_watermark)

    def step(self) -> None:
        choice = self.rng.random()
        if choice < 0.6:
            self.append()
        elif choice < 0.75:
            self.settle()
        elif choice < 0.92:
            self.compact()
        elif choice < 0.95:
            self.now += self.rng.choice((1000, DAY, 2 * DAY, -DAY))
        elif choice < 0.97:
            assert self.log.scrub(20_000).holes == ()
        else:
            self.look()

    def live(self, steps: int, cut_after: int | None) -> None:
        if cut_after is not None:
            self.disk.cut_power_at(cut_after)
        try:
            self._open()
            self.forget_lost()
            self.look()
            for _ in range(steps):
                if not self.disk.is_off:
                    self.step()
            self.settle()
        except (OSError, StorageError):
            assert self.disk.is_off

    def forget_lost(self) -> None:
        """What was on its way when the last life ended, and is not there. Who wrote what is there is known."""
        self.log.load()
        end = self.log.high_watermark
        self.written = {offset: row for offset, row in self.written.items() if offset < end}
        self.sent = {offset: sequence for offset, sequence in self.sent.items() if offset < end}
        assert end >= self.acked
        known = self.log.producers.get(7)
        assert (known.last_sequence if known is not None else None) == (
            self.sent[max(self.sent)] if self.sent else None
        )

    def end(self) -> None:
        """A clean stop, a kill, or a power cut; also one that comes while it stops."""
        choice = self.rng.random()
        if choice < 0.3:
            self._stop()
        elif choice < 0.8:
            self.disk.cut_power()
        if self.disk.is_off:
            self.clean = None
            self.committer.settle()
            self.lives += 1
            seed = self.rng.randrange(1 << 30)
            self.disk = SimulatedDisk(self.disk.crash(self.folder / f"life{self.lives}", seed), seed=seed)
        else:
            self.disk.mend()

    def _stop(self) -> None:
        try:
            self.settle()
            self.clean = self.log.close()
            self.disk.sync_all(str(self.disk.folder))
        except (OSError, StorageError):
            assert self.disk.is_off

    # What must hold ---------------------------------------------------------------------------------------------------

    def read(self) -> list[Row]:
        log, rows, offset = self.log, [], self.log.start_offset
        while offset < log.high_watermark:
            piece = log.read(offset, self.rng.choice((1, 3000, 1 << 20)))
            assert piece is not None
            piece.warm()
            data = piece.read()
            found = codec.scan(data)
            assert found.error is None
            assert found.headers[0].base_offset <= offset
            for header in found.headers:
                assert header.base_offset <= offset < header.next_offset, "offsets have a gap"
                offset = header.next_offset
            rows += list(decode(data, partial=False).rows())
        return rows

    def last(self) -> dict[bytes | None, Row]:
        """Of every key, among what is visible."""
        end = self.log.high_watermark
        return {row.key: row for offset, row in sorted(self.written.items()) if offset < end}

    def look(self) -> None:
        log = self.log
        assert log.high_watermark >= self.acked
        assert log.holes == ()
        rows = self.read()
        assert [row.offset for row in rows] == sorted(row.offset for row in rows)
        there = {row.offset: row for row in rows}
        for offset, row in there.items():
            assert self.written[offset] == row
        last = self.last()
        for row in last.values():
            assert row.value is None or row.offset in there, f"the last record of {row.key!r} is gone"
        clean = [row.key for row in rows if row.offset < log._reading.facts.first_dirty]
        assert len(clean) == len(set(clean)), "a key is there twice below the first dirty offset"
        for key in {row.key for row in rows}:
            newest = max(row.offset for row in rows if row.key == key)
            if last[key].value is not None:
                assert newest == last[key].offset
            elif last[key].offset not in there:
                raise AssertionError(f"an older record of {key!r} came back when its tombstone went")

    def finish(self) -> None:
        """Without any more faults: all is compacted, and is what it must be."""
        self.disk.mend()
        self._open()
        self.forget_lost()
        self.look()
        self.settings = LogSettings(segment_bytes=5000, segment_ms=1, compact=True, min_cleanable_ratio=0.0)
        self.log.update_settings(self.settings)
        self.now = LATER
        for _ in range(400):
            turns: list[Turn] = []
            self.log.compact(self.now, 1 << 20, turns.append, 1 << 20)
            self.settle()
            if not turns[-1].more and self.log._reading.facts.first_dirty == self.log.high_watermark:
                break
        else:
            raise AssertionError("compaction does not come to an end")
        self.look()
        rows, last = self.read(), self.last()
        assert {row.key: row for row in rows if row.value is not None} == {
            key: row for key, row in last.items() if row.value is not None
        }
        assert len({row.key for row in rows}) == len(rows)
        self.committer.stop()


def tell(folder: Path, seed: int) -> History:
    history = History(folder, seed)
    for _ in range(history.rng.randint(1, 4)):
        cut_after = history.rng.choice((None, 5, 30, 100, 300, 800))
        history.live(history.rng.randint(10, 120), cut_after)
        history.end()
    history.finish()
    return history


@proves("T6", "T1", "D5")
@given(seed=st.integers(0, 1 << 32))
def test_the_last_record_of_every_key_is_there_whatever_happened(seed: int) -> None:
    note(f"seed {seed}")
    with quick_folder() as folder:
        tell(folder, seed)


@proves("T6", "D5")
@pytest.mark.soak
def test_the_last_record_of_every_key_is_there_for_many_seeds() -> None:
    with quick_folder() as folder:
        run_seeds(folder, MANY, tell, FIRST * MANY)
