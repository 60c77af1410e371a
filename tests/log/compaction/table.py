"""A compacted partition for tests: keys and values put in, passes run by hand, everything read back and checked."""

from __future__ import annotations

from pathlib import Path

from log.partition import NOW, Partition
from tidelog.log.compaction.compactor import Turn
from tidelog.log.files import Files
from tidelog.log.settings import LogSettings
from tidelog.record import codec
from tidelog.record.columns import Row, decode, encode

SETTINGS = LogSettings(segment_bytes=6000, index_interval_bytes=300, compact=True, min_cleanable_ratio=0.0)
TURNS_MAX = 500


class Table(Partition):
    """`write` puts one batch of (key, value) pairs."""

    def __init__(
        self, folder: Path, files: Files | None = None, settings: LogSettings = SETTINGS, **options: object
    ) -> None:
        super().__init__(folder, files, settings, **options)  # type: ignore[arg-type]

    def write(self, *pairs: tuple[bytes, bytes | None], timestamp: int = NOW, **how: object) -> int:
        data = encode([(key, value, None, timestamp) for key, value in pairs], **how)  # type: ignore[arg-type]
        return self.append(data, timestamp).base_offset

    def fill(self, batches: int, keys: int = 5, size: int = 500) -> None:
        """One record a batch, keys in turn, about eleven to a segment."""
        for number in range(batches):
            self.write((b"key-%d" % (number % keys), b"%d-" % number + b"x" * size))
        self.commit()

    def turn(self, now_ms: int = NOW, max_bytes: int = 1 << 20, key_bytes: int = 1 << 20) -> Turn:
        turns: list[Turn] = []
        self.log.compact(now_ms, max_bytes, turns.append, key_bytes)
        self.commit()
        (turn,) = turns
        return turn

    def compact(self, now_ms: int = NOW, max_bytes: int = 1 << 20, key_bytes: int = 1 << 20) -> list[Turn]:
        """Until nothing is due."""
        turns = [self.turn(now_ms, max_bytes, key_bytes)]
        while turns[-1].more:
            turns.append(self.turn(now_ms, max_bytes, key_bytes))
            assert len(turns) < TURNS_MAX
        return turns

    @property
    def first_dirty(self) -> int:
        return self.log._reading.facts.first_dirty

    @property
    def active(self) -> int:
        """The base offset of the segment that grows."""
        return self.log._reading.segments[-1].base_offset

    def records(self, start: int | None = None, max_bytes: int = 3000) -> list[Row]:
        """Everything that can be read; offsets are checked to be in one batch each."""
        offset = self.log.start_offset if start is None else start
        rows: list[Row] = []
        while (piece := self.log.read(offset, max_bytes)) is not None:
            piece.warm()
            data = piece.read()
            piece.release()
            for header in codec.scan(data).headers:
                assert header.base_offset <= offset < header.next_offset
                offset = header.next_offset
            rows += decode(data, partial=False).rows()
        return rows

    def again(self, *, clean: bool = False) -> Table:
        """The same folder in another life."""
        mark = self.log.close() if clean else None
        return Table(self.folder, self.files, self.settings, clean=mark)


def last_of_each(rows: list[Row], below: int) -> list[Row]:
    """What a pass up to an offset leaves of these."""
    last = {row.key: row.offset for row in rows if row.offset < below}
    return [row for row in rows if row.offset >= below or last[row.key] == row.offset]
