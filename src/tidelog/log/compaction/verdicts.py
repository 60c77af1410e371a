"""What is to become of a batch as a whole, before its records are looked at. A fold over headers; no IO.

- Records of an aborted transaction go.
- The marker that ends a transaction stays while a batch of it is there. When none is left it gets a delete horizon, as
  a tombstone does, and goes after that. But not while clients may be told that the transaction was aborted, also after
  a crash: they would wait for its marker, and take what its producer wrote later for aborted.
- The last batch of a producer that the partition still remembers stays, if need be without records: its sequence must
  be found again by whoever reads the log from the beginning.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence

from tidelog.log.producers import ProducerState
from tidelog.log.transactions import Aborted
from tidelog.record.header import (
    DELETE_HORIZON_BIT,
    DROP,
    FILTER,
    KEEP,
    REMEMBER_BIT,
    SET_HORIZON_BIT,
    TRANSACTION_BITS,
    BatchHeader,
)


class Verdicts:
    """One walk over the log, from its beginning, batch by batch."""

    __slots__ = ("_aborted", "_discard", "_going_on", "_last", "_named", "_now_ms", "_producers")

    def __init__(
        self,
        aborted: Iterable[Aborted],
        named: Collection[tuple[int, int]],
        producers: Mapping[int, ProducerState],
        now_ms: int,
        *,
        discard: bool,
    ) -> None:
        self._named = named
        self._aborted: dict[int, tuple[list[int], list[int]]] = {}
        for producer_id, first, last in sorted(aborted, key=lambda one: one.first_offset):
            firsts, lasts = self._aborted.setdefault(producer_id, ([], []))
            firsts.append(first)
            lasts.append(last)
        self._producers = producers
        self._last = {number: known.batches[-1].last_offset for number, known in producers.items() if known.batches}
        self._now_ms = now_ms
        self._discard = discard
        self._going_on: set[int] = set()  # producers with a batch of a transaction that was there until now

    def of(self, headers: Sequence[BatchHeader]) -> bytes:
        """A byte for each, as `compacting` wants them."""
        if all(header.producer_id < 0 for header in headers):
            return bytes(len(headers))
        return bytes([self._one(header) for header in headers])

    def _one(self, header: BatchHeader) -> int:
        producer_id = header.producer_id
        if producer_id < 0:
            return FILTER
        if not header.attributes & TRANSACTION_BITS:  # most of them, so without further ado
            return REMEMBER_BIT if self._last.get(producer_id) == header.last_offset else FILTER
        verdict = FILTER
        if header.is_control:
            verdict = self._marker(header)
        elif header.is_transactional and header.count:
            self._going_on.add(producer_id)
            if self.is_aborted(header):
                verdict = DROP
        return verdict | (REMEMBER_BIT if self._is_last(header) else 0)

    def _marker(self, header: BatchHeader) -> int:
        if header.producer_id in self._going_on:
            self._going_on.remove(header.producer_id)
            return KEEP
        if not header.attributes & DELETE_HORIZON_BIT:
            return KEEP | SET_HORIZON_BIT
        expired = self._now_ms >= header.base_timestamp
        named = (header.producer_id, header.base_offset) in self._named
        return DROP if self._discard and expired and not named else KEEP

    def is_aborted(self, header: BatchHeader) -> bool:
        if not header.is_transactional or header.producer_id not in self._aborted:
            return False
        firsts, lasts = self._aborted[header.producer_id]
        at = bisect_right(firsts, header.base_offset) - 1
        return at >= 0 and header.base_offset <= lasts[at]

    def _is_last(self, header: BatchHeader) -> bool:
        if not header.is_control:
            return self._last.get(header.producer_id) == header.last_offset
        producer = self._producers.get(header.producer_id)
        return producer is not None and not producer.batches and producer.epoch == header.producer_epoch

    def skips(self, headers: Sequence[BatchHeader]) -> bytes:
        """For noting keys: what is a marker or was aborted has none."""
        if all(header.producer_id < 0 for header in headers):
            return bytes(len(headers))
        return bytes([DROP if header.is_control or self.is_aborted(header) else FILTER for header in headers])
