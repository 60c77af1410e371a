"""Acknowledgements: what a consumer says of the records that it acquired, and what becomes of them.

    type       the record becomes                                             its count
    GAP        archived: there is no such record                              + 1
    ACCEPT     acknowledged                                                   + 1
    RELEASE    available again; archived if this was its last delivery        + 1
    REJECT     archived                                                       + 1
    RENEW      stays as it is, with a lock of full length from now on         as it was

All of one partition's or none: a record among them that its sender has not acquired, or not any more, refuses them all
with INVALID_RECORD_STATE, and whoever holds that record goes on. A lock that runs out is as a RELEASE by nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from tidelog.broker.queues.window import ACKNOWLEDGED, ARCHIVED, AVAILABLE, LOCKED, QueueSpan, QueueWindow
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.own_tags import REASON, REASON_BYTES_MAX

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)


class AckBatch(Protocol):
    @property
    def first_offset(self) -> int: ...

    @property
    def last_offset(self) -> int: ...

    @property
    def acknowledge_types(self) -> Sequence[int]: ...
    @property
    def unknown_tags(self) -> Mapping[int, bytes] | None: ...


class Acked(NamedTuple):
    """What is to become of records: kept as `spans`, or first copied to the dead-letter topic, or locked anew.

    `reasons` are those that a worker of ours gave for the dead, by first and last offset.
    """

    spans: list[QueueSpan]
    dead: list[QueueSpan]
    renewed: list[tuple[int, int]]
    reasons: list[tuple[int, int, str]]

    @property
    def size(self) -> int:
        """How many deliveries have ended."""
        return sum(span.size for span in self.spans) + sum(span.size for span in self.dead)


class RefusedAcks(NamedTuple):
    code: int
    message: str


def decide_acks(
    window: QueueWindow, owner: str, batches: Iterable[AckBatch], deliveries: int, renewable: bool
) -> Acked | RefusedAcks:
    acked = Acked([], [], [], [])
    after = -1
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        wrong = _malformed(first, last, types, after)
        if wrong is not None:
            return RefusedAcks(ErrorCode.INVALID_REQUEST, wrong)
        if RENEW in types and not renewable:
            return RefusedAcks(ErrorCode.INVALID_REQUEST, "share.renew.acknowledge.enable is false for this group")
        after = last
        for low, high, kind in _runs(first, last, types):
            held = list(window.between(low, high))
            if sum(span.size for span in held) != high - low + 1 or not all(_is_locked(one, owner) for one in held):
                return RefusedAcks(ErrorCode.INVALID_RECORD_STATE, f"not all of {low} to {high} is acquired by {owner}")
            _note(acked, held, kind, deliveries)
        if batch.unknown_tags:
            _explain(acked, first, last, batch.unknown_tags)
    return acked


def _explain(acked: Acked, first: int, last: int, tags: Mapping[int, bytes]) -> None:
    why = tags.get(REASON, b"")[:REASON_BYTES_MAX].decode("utf-8", "replace")
    if why:
        acked.reasons.extend((one.first, one.last, why) for one in acked.dead if first <= one.first <= last)


def _is_locked(span: QueueSpan, owner: str) -> bool:
    return span.hold is not None and span.hold[:2] == (LOCKED, owner)


def _note(acked: Acked, held: list[QueueSpan], kind: int, deliveries: int) -> None:
    for span in held:
        count = span.count + 1
        if kind == RENEW:
            acked.renewed.append((span.first, span.last))
        elif kind == REJECT:
            acked.dead.append(span._replace(count=count))
        elif kind == RELEASE:
            released(acked, span, deliveries)
        else:
            state = ACKNOWLEDGED if kind == ACCEPT else ARCHIVED
            acked.spans.append(QueueSpan(span.first, span.last, state, count))


def released(acked: Acked, span: QueueSpan, deliveries: int) -> None:
    """A delivery that ended without being accepted."""
    count = span.count + 1
    if count >= deliveries:
        acked.dead.append(span._replace(count=count))
    else:
        acked.spans.append(QueueSpan(span.first, span.last, AVAILABLE, count))


def _malformed(first: int, last: int, types: Sequence[int], after: int) -> str | None:
    if first < 0 or last < first or first <= after:
        return f"the acknowledgements of {first} to {last} are not in order"
    if len(types) not in (1, last - first + 1):
        return f"{len(types)} acknowledgement types are not one for all or one for each of {first} to {last}"
    if not all(GAP <= one <= RENEW for one in types):
        return f"acknowledgement types are {GAP} to {RENEW}, not {sorted(set(types))}"
    return None


def _runs(first: int, last: int, types: Sequence[int]) -> Iterable[tuple[int, int, int]]:
    """Ranges with one type each."""
    if len(types) == 1:
        yield first, last, types[0]
        return
    low = first
    for offset in range(first + 1, last + 2):
        if offset > last or types[offset - first] != types[low - first]:
            yield low, offset - 1, types[low - first]
            low = offset
