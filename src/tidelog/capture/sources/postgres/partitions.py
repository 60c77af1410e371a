"""Which partitions a captured partitioned table has. ATTACH, DETACH and DROP of one move its rows in or out of the
table without a change in the log: what tells it is another set of partitions than the one whose rows were read.

A set is a text that is kept as a part of the table's id: `16384/16390@751,16397@760`, each partition with the
transaction that put it in, so that one which went and came back is another one. One that was made as a partition
(CREATE TABLE ... PARTITION OF) has brought no rows: its two rows of the catalog were written by one command.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidelog.capture.sources.postgres.session import SqlSession

ONE_COMMAND = 2  # steps between those two rows; by an ATTACH in the transaction that made the table there are more
_PARTITIONS = f"""
SELECT r.id, t.relid::oid::bigint || '@' || i.xmin::text,
       i.xmin = y.xmin AND i.cmin::text::bigint - y.cmin::text::bigint <= {ONE_COMMAND}
FROM unnest(%s::oid[]) AS r(id) CROSS JOIN LATERAL pg_partition_tree(r.id) AS t
JOIN pg_inherits i ON i.inhrelid = t.relid JOIN pg_class c ON c.oid = t.relid JOIN pg_type y ON y.oid = c.reltype
WHERE t.level > 0 ORDER BY 1, t.relid::oid
"""


class TablePartitions(NamedTuple):
    all: tuple[str, ...]
    brought: frozenset[str]  # those that may have come with rows


class MovedPartitions(NamedTuple):
    came: frozenset[str]  # with rows, perhaps
    went: frozenset[str]


def partitions_of(session: SqlSession, roots: Sequence[int]) -> dict[int, TablePartitions]:
    """Of each of these partitioned tables."""
    found: dict[int, dict[str, bool]] = {root: {} for root in roots}
    for root, one, born in session.query(_PARTITIONS, [sorted(roots)]) if roots else ():
        found[root][one] = born
    brought = {root: frozenset(one for one, born in ones.items() if not born) for root, ones in found.items()}
    return {root: TablePartitions(tuple(ones), brought[root]) for root, ones in found.items()}


def id_of(number: int, now: TablePartitions | None) -> str:
    """What a table keeps under another name, and what its rows are of."""
    return str(number) if now is None else f"{number}/{','.join(now.all)}"


def number_of(id: str) -> str:
    return id.partition("/")[0]


def movements(told: str, now: TablePartitions) -> MovedPartitions:
    """What became of its partitions since. Of an id that has no partitions nobody knows."""
    _, kept, said = told.partition("/")
    before = {one for one in said.split(",") if one} if kept else {*now.all}
    return MovedPartitions(now.brought - before, frozenset(before.difference(now.all)))


def described(name: str, became: MovedPartitions) -> str:
    """For the log."""
    counts: Mapping[str, frozenset[str]] = {"were attached": became.came, "were detached or dropped": became.went}
    what = " and ".join(f"{len(ones)} {verb}" for verb, ones in counts.items() if ones)
    return f"the partitions of {name} are others than before ({what}), which no log tells; its rows are read again"
