"""The replication slot: what the server says of it, and whether reading can go on from a stored position.

A position is `{"lsn": "0/16B3748", "system": "7301..."}`: the end of the last transaction that was told (or a place
between two), and the server's own identifier, because the same number in another server's log means nothing.

- Reading goes on at the stored position when the slot is at it or before it: the server sends every transaction whose
  commit record begins at or after where we start, and that of the next one begins at the end of the last or later. Not
  one is passed over by comparing LSNs of ours, so it does not matter that the end of a commit may equal the LSN of the
  next transaction's first change, nor that many rows have the same LSN.
- A slot that is ahead of the stored position has confirmed what we do not have: those changes are lost. PostgreSQL
  would go on from the slot in silence.
- A slot that is gone or lost (`wal_status`) cannot be read.
- A log that ends before the stored position is that of an older copy of the server, slot and identifier and all.
  PostgreSQL would pass over what is written to it in silence, until it has come to where we were.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tidelog.capture.change import Position
from tidelog.capture.sources.postgres.pgoutput import lsn_of, lsn_text
from tidelog.capture.sources.postgres.session import SqlSession
from tidelog.errors import UsageError

PLUGIN = "pgoutput"
LOST = "lost"
AGAIN = "take a new snapshot: run capture with `--snapshot when_needed`"

_SLOT = """
SELECT plugin, database, active_pid, wal_status, restart_lsn::text, confirmed_flush_lsn::text,
       coalesce(pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
                                     ELSE pg_current_wal_lsn() END, restart_lsn), 0)::bigint
FROM pg_replication_slots WHERE slot_name = %s
"""


class ReplicationSlot(NamedTuple):
    name: str
    plugin: str | None  # None of a physical slot
    database: str | None
    active_pid: int | None
    wal_status: str | None
    restart: int
    confirmed: int
    kept: int = 0  # bytes of log that the server cannot remove because of it

    @property
    def is_lost(self) -> bool:
        return self.wal_status == LOST or self.confirmed == 0


def slot_of(session: SqlSession, name: str) -> ReplicationSlot | None:
    found = session.query(_SLOT, [name])
    if not found:
        return None
    plugin, database, pid, status, restart, confirmed, kept = found[0]
    places = lsn_of(restart or "0/0"), lsn_of(confirmed or "0/0")
    return ReplicationSlot(name, plugin, database, pid, status, *places, kept)


def position_of(lsn: int, system: str) -> dict[str, Any]:
    return {"lsn": lsn_text(lsn), "system": system}


def lsn_in(position: Mapping[str, Any]) -> int:
    try:
        return lsn_of(str(position["lsn"]))
    except (KeyError, ValueError):
        raise UsageError(f"{dict(position)} is not a position of a PostgreSQL database") from None


def resume_fault(
    slot: ReplicationSlot | None, name: str, position: Position, system: str, database: str, end: int
) -> str | None:
    """Why reading cannot go on from this position, or None. `end` is where the server's log ends."""
    stored = lsn_in(position)
    at = lsn_text(stored)
    if position.get("system", system) != system:
        return (
            f"the position {at} is of the server {position['system']}, and this is the server {system}:"
            f" a restored copy or another cluster, whose log is another one; {AGAIN}"
        )
    if slot is None:
        return f"the replication slot {name} is gone, and with it the changes after {at}; {AGAIN}"
    if slot.plugin != PLUGIN or slot.database != database:
        return (
            f"the slot {name} is of the plugin {slot.plugin} and the database {slot.database},"
            f" not of {PLUGIN} and {database}; drop it, or choose another name, and then {AGAIN}"
        )
    if slot.is_lost:
        return (
            f"the replication slot {name} is lost: the server removed log that it needed"
            f" (max_slot_wal_keep_size), so the changes after {at} are gone; {AGAIN}"
        )
    if slot.confirmed > stored:
        return (
            f"the replication slot {name} is at {lsn_text(slot.confirmed)}, ahead of the stored position {at}:"
            f" somebody else read or advanced it, and the changes between are lost; {AGAIN}"
        )
    if end < stored:
        return (
            f"the server's log ends at {lsn_text(end)}, before the stored position {at}: it was restored from a copy,"
            f" and what was captured since is not in it; {AGAIN}"
        )
    return None
