"""Which of the fetched batches a reader of committed data may see: no control batches, none of an aborted transaction.

A broker answers a read_committed fetch with all batches before the last stable offset, and with the aborted
transactions among them as pairs (producer id, first offset). A producer's batches from such an offset on are aborted,
up to its next control batch, which is the abort's marker.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.record.codec import scan
from tidelog.record.header import BatchHeader

Aborted = tuple[int, int]


def visible(batches: memoryview, aborted: Sequence[Aborted]) -> list[memoryview]:
    """The visible batches as few views of the same memory: neighbours stay together."""
    found = scan(batches, crc=False)
    dropped = aborted_batches(found.headers, aborted)
    runs: list[memoryview] = []
    start = 0
    for header, position, drop in zip(found.headers, found.positions, dropped, strict=True):
        if drop:
            if start < position:
                runs.append(batches[start:position])
            start = position + header.size
    if start < found.end:
        runs.append(batches[start : found.end])
    return runs


def aborted_batches(headers: Sequence[BatchHeader], aborted: Sequence[Aborted]) -> list[bool]:
    """For each batch, whether it is dropped."""
    coming = sorted(aborted, key=lambda pair: pair[1], reverse=True)
    open_aborts: set[int] = set()
    dropped = []
    for header in headers:
        while coming and coming[-1][1] <= header.last_offset:
            open_aborts.add(coming.pop()[0])
        if header.is_control:
            open_aborts.discard(header.producer_id)
        dropped.append(header.is_control or (header.is_transactional and header.producer_id in open_aborts))
    return dropped
