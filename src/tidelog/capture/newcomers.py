"""Tables that come to a capture when it has begun: made since, named otherwise or anew, or taken out for a while.

Their rows are read as those of an incremental snapshot. Rules:
- That they are to be read is stored before their changes are told. So a crash forgets neither.
- Of a table of which changes were missed, what the log has may be wrong: it is told as truncated first.
- What the log has of them (`CapturedTable`) is written at once, so that a table without rows is asked for once.
- A topic tells the table that has the name. Where that is another one than before, or its rows have another key, what
  was told is taken away, and all is read. A table without a key cannot be read so: it is left as it is, with a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from tidelog.capture.change import SourceTable
from tidelog.capture.incremental import Incremental
from tidelog.capture.source import READ, WAIT, Newcomer
from tidelog.control.captures import UNREAD

EVERY_S = 5.0
ASKED_BY = "new tables"  # the id of a snapshot that nobody asked for


class Intake(NamedTuple):
    tables: Sequence[SourceTable]
    names: Sequence[str]
    anew: Collection[str]  # those that are read from their beginning, also where they are being read
    truncated: Sequence[SourceTable]
    owed: bool  # some wait until the stream has told what was written before


def look(
    newcomers: Callable[[Mapping[str, str]], Sequence[Newcomer]],
    known: Mapping[str, str],
    reading: Incremental | None,
    *,
    first: bool,
) -> Intake | None:
    """What a source has of them. At its first look it also hears of those that are being read, which it may have
    published in an earlier life; they need not be asked for again. One of those that is another table by now is left to
    the next look, which waits for what the stream still has of the one before."""
    unread = frozenset() if reading is None else frozenset(reading.tables)

    def counts(one: Newcomer) -> bool:
        if one.table.full_name not in unread:
            return True
        left = first and _is_another(one.table, known.get(one.table.full_name, ""))
        return not left and (one.missed or one.need != READ)

    heard = newcomers({name: known[name] for name in known if not first or name not in unread})
    found = [one for one in heard if counts(one)]
    if not found:
        return None
    read = [one for one in found if one.need == READ]
    return Intake(
        [one.table for one in found if one.need != WAIT],
        [one.table.full_name for one in read],
        {one.table.full_name for one in read if one.missed},
        [one.table for one in read if one.missed and one.table.full_name in known],
        any(one.need == WAIT for one in found),
    )


def _is_another(table: SourceTable, known: str) -> bool:
    """Than the one that the log has under its name, by what is before an id's `/`."""
    return known not in ("", UNREAD) and known.partition("/")[0] != table.id.partition("/")[0]
