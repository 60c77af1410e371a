"""Names of a capture's settings that the database does not have: columns to leave out or to mask, and the outbox.

A column that is misspelt would be told to everybody who reads the topic, so a capture does not run with such a name.
One that it has run with before, when the table had it, may stay: the column may have been dropped since. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from tidelog.capture.change import SourceTable


def misnamed(
    tables: Sequence[SourceTable], *, exclude: Iterable[str] = (), mask: Iterable[str] = (), outbox: str | None = None
) -> list[str]:
    """A sentence for each. `tables` are those that are captured."""
    there = {table.full_name: [column.name for column in table.columns] for table in tables}
    found = [_column(there, name, "--exclude") for name in exclude] + [_column(there, name, "--mask") for name in mask]
    if outbox is not None and outbox not in there:
        found.append(f"--outbox {outbox}: no table that is captured has this name; {_way(outbox, there)}")
    return [one for one in found if one is not None]


def _column(there: dict[str, list[str]], name: str, option: str) -> str | None:
    table, _, column = name.rpartition(".")
    if "*" in name:
        return f"{option} {name}: a column is named in full, without *"
    if table not in there:
        return f"{option} {name}: no table that is captured is called {table}; {_way(table, there)}"
    if column not in there[table]:
        return f"{option} {name}: table {table} has no column {column!r}; {_way(column, there[table])}"
    return None


def _way(name: str, known: Iterable[str]) -> str:
    names = list(known)
    close = get_close_matches(name, names, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(sorted(names))}"
