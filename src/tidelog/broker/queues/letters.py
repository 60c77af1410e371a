"""Dead letters: copies of records that were rejected or delivered too often, under the names of KIP-1191.

    header                        value, as text
    __dlq.errors.topic            the record's topic
    __dlq.errors.partition        its partition
    __dlq.errors.offset           its offset
    __dlq.errors.group            the share group that gave it up
    __dlq.errors.delivery.count   how often it was delivered
    __dlq.errors.message          why it was given up; what a worker of ours says of it comes first
    tidelog-dead-letter-id        ours: the same for the same record and group, should its letter be written twice

A letter has the record's key, value and headers, and these behind them; without `copies`, or where the record is not
there any more, it has these alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from tidelog.record.columns import Row, encode
from tidelog.record.header import HeaderPairs

LETTER_BYTES = 512 << 10  # letters in one batch have about so many, unless one alone has more
REJECTED = "a consumer rejected it"


class Grave(NamedTuple):
    """Where records died, and how."""

    group: str
    topic: str
    topic_id: bytes
    partition: int
    first: int
    last: int
    deliveries: int
    limit: int
    copies: bool
    reasons: Mapping[int, str] = MappingProxyType({})  # of a worker, by offset; not there after a restart

    def message(self, offset: int) -> str:
        said = REJECTED
        if self.deliveries >= self.limit:
            said = f"it was delivered {self.deliveries} times, the limit, and not accepted"
        return f"{self.reasons[offset]} ({said})" if offset in self.reasons else said


def letters(grave: Grave, rows: Iterable[Row], readable: bool, wall_ms: int) -> list[bytearray]:
    """Batches of letters. Not `readable`: the records are gone, and there is a letter for each offset all the same."""
    found = [row for row in rows if grave.first <= row.offset <= grave.last]
    if not readable:
        found = [Row(offset, 0, None, None, ()) for offset in range(grave.first, grave.last + 1)]
    batches: list[bytearray] = []
    batch: list[tuple[bytes | None, bytes | None, HeaderPairs, int]] = []
    size = 0
    for row in found:
        key, value, headers = (row.key, row.value, row.headers) if grave.copies else (None, None, ())
        row_size = len(key or b"") + len(value or b"") + sum(len(name) + len(one or b"") for name, one in headers)
        if batch and size + row_size > LETTER_BYTES:
            batches.append(encode(batch))
            batch, size = [], 0
        batch.append((key, value, (*headers, *_context(grave, row.offset)), wall_ms))
        size += row_size
    if batch:
        batches.append(encode(batch))
    return batches


def _context(grave: Grave, offset: int) -> HeaderPairs:
    said = {
        "__dlq.errors.topic": grave.topic,
        "__dlq.errors.partition": grave.partition,
        "__dlq.errors.offset": offset,
        "__dlq.errors.group": grave.group,
        "__dlq.errors.delivery.count": grave.deliveries,
        "__dlq.errors.message": grave.message(offset),
        "tidelog-dead-letter-id": f"{grave.group}/{grave.topic_id.hex()}/{grave.partition}/{offset}",
    }
    return tuple((name, str(value).encode()) for name, value in said.items())
