"""Rows of a question on standard output: a table, JSON a line each, or CSV.

    value        table, csv                          json
    null         (null) in a table, nothing in CSV   null
    text         itself; escapes in a table          itself; on a terminal, what could drive it is escaped in all
    bytes        as text, what is not text as \\xNN       NAME, or NAME_base64 where it is not text
    times        ISO 8601, in UTC                    the same
    decimal      its digits                          text of its digits
    nested       JSON                                JSON

A table is as wide as its first rows need, a cell at most CELL_MAX; those that follow keep to that, so that a million
rows are shown as they come.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any

from tidelog.cli.record_json import field
from tidelog.cli.terminal import COLUMN_GAP, for_the_screen, paint, printable

FORMATS = ("table", "json", "csv")
MEASURED = 200  # rows that a table's widths are taken from
CELL_MAX = 60
NULL = "(null)"


class Shown:
    def __init__(self, format: str, names: Sequence[str], *, every: bool = False) -> None:
        """`every`: flush with each call, for who watches rows come."""
        self.names = _distinct(names)
        self._show = {"table": self._table, "json": self._json, "csv": self._csv}[format]
        self._widths: list[int] | None = None
        self._csv_begun = False
        self._every = every
        self._format = format

    def __enter__(self) -> Shown:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._show(())  # the header of none at all

    def rows(self, rows: Iterable[Sequence[Any]]) -> None:
        self._show(rows)
        if self._every:
            sys.stdout.flush()

    def _json(self, rows: Iterable[Sequence[Any]]) -> None:
        for row in rows:
            line: dict[str, Any] = {}
            for name, value in zip(self.names, row, strict=True):
                line |= field(name, value) if isinstance(value, bytes) else {name: plain(value)}
            print(for_the_screen(json.dumps(line, ensure_ascii=False)))

    def _csv(self, rows: Iterable[Sequence[Any]]) -> None:
        import csv

        writer = csv.writer(sys.stdout, lineterminator="\n")
        if not self._csv_begun:
            writer.writerow(self.names)
            self._csv_begun = True
        shown = printable if sys.stdout.isatty() else str
        for row in rows:
            writer.writerow(["" if value is None else shown(text_of(value)) for value in row])

    def _table(self, rows: Iterable[Sequence[Any]]) -> None:
        coming = iter(rows)
        if self._widths is None:
            first = list(islice(coming, MEASURED))
            if self._every and not first:
                return
            cells = [[cell(value) for value in row] for row in first]
            self._widths = [max(map(len, column)) for column in zip(self.names, *cells, strict=True)]
            print(COLUMN_GAP.join(paint(n.ljust(w), "dim") for n, w in zip(self.names, self._widths, strict=True)))
            self._lines(first)
        self._lines(coming)

    def _lines(self, rows: Iterable[Sequence[Any]]) -> None:
        assert self._widths is not None
        for row in rows:
            cells = (
                cell(value).rjust(width) if _is_number(value) else cell(value).ljust(width)
                for value, width in zip(row, self._widths, strict=True)
            )
            print(COLUMN_GAP.join(cells).rstrip())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _distinct(names: Sequence[str]) -> list[str]:
    """As keys of a JSON object: the second `id` of a join is id_2."""
    made: list[str] = []
    for name in map(printable, names):
        number, wanted = 1, name
        while wanted in made:
            number += 1
            wanted = f"{name}_{number}"
        made.append(wanted)
    return made


def cell(value: Any) -> str:
    text = NULL if value is None else printable(text_of(value))
    return text if len(text) <= CELL_MAX else text[: CELL_MAX - 1] + "…"


def text_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, bool):
        return "true" if value else "false"
    made = plain(value)
    return made if isinstance(made, str) else json.dumps(made, ensure_ascii=False)


def plain(value: Any) -> Any:
    """What JSON has."""
    if isinstance(value, datetime):
        return value.isoformat() + ("Z" if value.tzinfo is None else "")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {text_of(name): plain(held) for name, held in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return f"{value.total_seconds():g} s" if isinstance(value, timedelta) else str(value)
