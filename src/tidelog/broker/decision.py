"""Decide, append, apply: the shape of everything that the broker knows beyond bytes.

A pure `decide_*(state, command, ticket, now)` returns a `Decision`: the records to append to an internal topic, and
replies. The shell (`broker.internal`) appends the records, applies each with a pure `apply(state, key, value)`, and
lets the replies go when the records are synced. `to_records(state)` gives records whose fold is the state again: a
snapshot is written from it, and recovery is the fold over a snapshot and what follows it.

A `ticket` stands for one request that waits for its reply. Pure code treats it as an opaque, hashable thing. A
decision may answer tickets of earlier requests (a rebalance that completes) and need not answer its own.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

Ticket = Hashable


class Instant(NamedTuple):
    """The time of a decision: wall-clock for what is recorded, monotonic for deadlines: a clock jump expires nobody."""

    wall_ms: int
    monotonic_ms: int


class NewRecord(NamedTuple):
    """A record for an internal topic. A value of None is a tombstone."""

    key: bytes
    value: bytes | None


class Decision(NamedTuple):
    records: list[NewRecord]
    replies: list[tuple[Ticket, Any]]
