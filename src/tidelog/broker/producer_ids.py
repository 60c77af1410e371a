"""Producer ids: every idempotent producer gets one that no other has had or will have, also after a crash.

Ids are reserved by the block. A record in `__tidelog.topics` says up to where they are reserved; ids of a block are
given out when its record is appended, and no reply leaves before that record is synced. After a restart the next block
begins where the last one ended: what was left of it is never used.

    key     {"v":1,"kind":"producer_ids"}
    value   {"reserved":2000}            ids below it may have been given out
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.broker.decision import NewRecord

BLOCK_SIZE = 1000
KEY = b'{"v":1,"kind":"producer_ids"}'
NO_IDS = range(0)


@dataclass(slots=True)
class ProducerIds:
    """`reserved` is folded from records. `block` is memory only: what is left of the block in use."""

    reserved: int = 0
    block: range = field(default=NO_IDS, compare=False)


class Allocated(NamedTuple):
    producer_id: int
    block: range
    records: list[NewRecord]


def decide_allocate(state: ProducerIds) -> Allocated:
    """The id to give next, what is then left of its block, and the record that reserves the block where it is new."""
    if state.block:
        return Allocated(state.block[0], state.block[1:], [])
    end = state.reserved + BLOCK_SIZE
    return Allocated(state.reserved, range(state.reserved + 1, end), [_record(end)])


def give(state: ProducerIds, allocated: Allocated) -> None:
    """Remembers that an id was given out, once its records are appended."""
    state.block = allocated.block


def apply(state: ProducerIds, content: dict[str, int]) -> None:
    state.reserved = content["reserved"]


def to_records(state: ProducerIds) -> list[NewRecord]:
    return [_record(state.reserved)] if state.reserved else []


def _record(reserved: int) -> NewRecord:
    return NewRecord(KEY, b'{"reserved":%d}' % reserved)
