"""A child that applies one stretch after the other, until it is killed: `python endless_applier.py URL VIEW`.

Stretch n makes every row's number n, and leaves out one row that the one before had; so a store that has part of one is
found by looking at it. It looks at its place once, as appliers do, and tells each end once it is applied. With a third
argument that is not empty it waits for a line before each stretch; a fourth is after how many commits Delta is tidied.
"""

from __future__ import annotations

import sys

from tidelog.client.metadata import TopicPartition
from tidelog.control.marks import Mark, Sources
from tidelog.schema.declaration import Row, declare
from tidelog.views.changes import Change, Stretch
from tidelog.views.stores import delta
from tidelog.views.stores.opening import open_store

AT = TopicPartition("numbers.v1", 0)
NUMBERS = declare({"id": "long", "number": "long", "text": "string"}, ("id",))
ROWS = 60


def rows_at(number: int) -> list[Row]:
    """What is there after stretch `number`."""
    return [{"id": one, "number": number, "text": f"{number} " * 20} for one in range(ROWS) if one != number % ROWS]


def stretch_of(number: int) -> Stretch:
    changes = [Change((row["id"],), row, None, AT, number, 0) for row in rows_at(number)]
    changes.append(Change((number % ROWS,), None, None, AT, number, 0))
    return Stretch(changes, {AT: number}, Mark("numbers.v1", "q", number, Sources(), {AT: number}, 0))


def main(url: str, view: str, asked: str = "", tidy: str = "") -> None:
    delta.TIDY_COMMITS = int(tidy or delta.TIDY_COMMITS)
    store = open_store(url, view)
    store.prepare(1, NUMBERS)
    place = store.place(1)
    assert place is not None
    before, number = place.ends, place.ends.get(AT, 0)
    while not asked or sys.stdin.readline():
        number += 1
        store.apply(1, stretch_of(number), before=before, show=True)
        before = {AT: number}
        print(number, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
