"""Positions of databases as text, and which of two is the later one. Pure.

    0/16B3748                          PostgreSQL: an LSN
    0-1-42   0-1-42,1-1-7              MariaDB: the last GTID of each domain
    3E11FA47-...-562:1-42              MySQL: a set of GTIDs; 3E11FA47-...-562:42 is one of them
    binlog.000003:1234                 MySQL and MariaDB: a file of the binlog, and the offset in it
    57                                 SQLite: the number of a change; PostgreSQL by triggers: that of a transaction
    750:753:751|752                    PostgreSQL by triggers: a snapshot, xmin:xmax: and those that are open

Rules:
- A position may be several words with blanks between, of different kinds: the same place, said in two ways.
- What is asked for is compared with the word of its kind. Where there is not one, it is of another kind of database,
  and refused.
- Of several that are asked for (with commas), all must be reached.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tidelog.errors import UsageError

LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")
MARIADB = re.compile(r"(\d{1,10})-(\d{1,10})-(\d{1,20})")
MYSQL = re.compile(r"([0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}):([\d:-]+)")
BINLOG = re.compile(r"([^\s:,]+\.\d{1,18}):(\d{1,18})")
NUMBER = re.compile(r"\d{1,19}")
SNAPSHOT = re.compile(r"(\d{1,20}):(\d{1,20}):([\d|]*)")


def text_of(position: Mapping[str, Any]) -> str:
    """A source's position in these words; "" where it has none of them."""
    if "lsn" in position:
        return str(position["lsn"])
    if "seen" in position:
        return str(position["seen"]).replace(",", "|")
    words = [str(position["gtid"]).replace("\n", "").replace(" ", "")] if position.get("gtid") else []
    if position.get("file"):
        words.append(f"{position['file']}:{position['pos']}")
    numbers = [str(value) for value in position.values() if type(value) is int]
    return " ".join(words or numbers[:1])


def is_at_least(position: str, asked: str) -> bool:
    """Whether all that is asked for has been read."""
    return all(_reached(position.split(), one) for one in asked.split(","))


def check(asked: str) -> str:
    for one in asked.split(","):
        if _kind(one) is None:
            raise UsageError(
                f"{one!r} is not a position of a database; write an LSN (0/16B3748), a GTID (0-1-42), a place in the"
                " binlog (binlog.000003:1234) or a number"
            )
    return asked


def _kind(word: str) -> re.Pattern[str] | None:
    return next((kind for kind in (LSN, MARIADB, MYSQL, BINLOG, NUMBER) if kind.fullmatch(word)), None)


def _reached(words: list[str], asked: str) -> bool:
    kind = _kind(asked)
    parts = [part for word in words for part in word.split(",")]
    if kind is NUMBER and (snapshots := [found for part in parts if (found := SNAPSHOT.fullmatch(part))]):
        return any(_has(one, int(asked)) for one in snapshots)
    same = [part for part in parts if kind is not None and kind.fullmatch(part)]
    if kind is None or not same:
        if not words or (kind is MARIADB and any(BINLOG.fullmatch(part) for part in parts)):
            return False  # nothing was written yet: a binlog without GTIDs so far
        raise UsageError(f"{asked!r} is not a position of this source, which is at {' '.join(words)}")
    if kind is MYSQL:
        executed = {number for part in same if _of(part)[0] == _of(asked)[0] for number in _intervals(part)}
        return all(any(low <= first and last <= high for low, high in executed) for first, last in _intervals(asked))
    return any(_at_least(kind, part, asked) for part in same)


def _has(snapshot: re.Match[str], transaction: int) -> bool:
    """Whether it has ended there."""
    opened = [int(one) for one in snapshot[3].split("|") if one]
    return transaction < int(snapshot[1]) or (transaction < int(snapshot[2]) and transaction not in opened)


def _at_least(kind: re.Pattern[str], one: str, asked: str) -> bool:
    here, there = kind.fullmatch(one), kind.fullmatch(asked)
    assert here is not None and there is not None, "both are of this kind"
    if kind is LSN:
        return [int(part, 16) for part in here.groups()] >= [int(part, 16) for part in there.groups()]
    if kind is MARIADB:
        return here[1] == there[1] and int(here[3]) >= int(there[3])
    if kind is BINLOG:
        return (len(here[1]), here[1], int(here[2])) >= (len(there[1]), there[1], int(there[2]))
    return int(one) >= int(asked)


def _of(part: str) -> tuple[str, str]:
    found = MYSQL.fullmatch(part)
    assert found is not None, "it is of this kind"
    return found[1].lower(), found[2]


def _intervals(part: str) -> Iterator[tuple[int, int]]:
    for interval in filter(None, _of(part)[1].split(":")):
        first, _, last = interval.partition("-")
        yield int(first), int(last or first)
