"""Histories of keys that move between partitions, every way to read them, and what is true of them: in plain Python.

A *history* is what partitions have. A *reading* cuts it into micro-batches: each takes some more of every partition, so
that it says in which order partitions are read against each other, too. `last_of` is the rule, written down as it is
said: the largest (time, partition, offset), where a record's time counts as at least that of the key's record before
it in its partition. The rows of a seed (`start_from`) are a partition of their own, which lies before all.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tidelog.pipelines.operators.joins.places import SEED
from tidelog.pipelines.seeding import BEFORE_ALL

PARTITIONS = 3
KEYS = "abc"
READINGS = 4  # at least, of each history


class Record(NamedTuple):
    """`value` None: a tombstone."""

    key: str
    partition: int
    offset: int
    time: int
    value: int | None


History = list[list[Record]]
MicroBatch = list[Record]

WRITTEN = st.lists(
    st.tuples(st.sampled_from(KEYS), st.integers(0, PARTITIONS - 1), st.integers(0, 4), st.booleans()), max_size=14
)


@st.composite
def histories(draw: Any) -> History:
    """Times are few, so that they tie and go back; every fourth record or so ends its key."""
    partitions: History = [[] for _ in range(PARTITIONS)]
    for number, (key, partition, time, ends) in enumerate(draw(WRITTEN)):
        own = partitions[partition]
        value = None if ends and number % 2 else number
        own.append(Record(key, partition, 2 * len(own), time, value))  # with gaps, as transactions leave them
    return partitions


@st.composite
def seeded_histories(draw: Any) -> History:
    """Of some keys there is a row in a seed, too."""
    keys = draw(st.lists(st.sampled_from(KEYS), unique=True))
    seed = [Record(key, SEED, BEFORE_ALL + at, BEFORE_ALL, -1 - at) for at, key in enumerate(keys)]
    return [seed, *draw(histories())]


def last_of(records: Iterable[Record]) -> dict[str, Record]:
    """Of each key, the record that counts: a tombstone, too."""
    counts_as: dict[tuple[str, int], int] = {}
    best: dict[str, tuple[tuple[int, int, int], Record]] = {}
    for one in sorted(records, key=lambda one: (one.partition, one.offset)):
        at = (one.key, one.partition)
        counts_as[at] = max(one.time, counts_as.get(at, one.time))
        place = (counts_as[at], one.partition, one.offset)
        if one.key not in best or place > best[one.key][0]:
            best[one.key] = (place, one)
    return {key: record for key, (_, record) in best.items()}


def table_of(records: Iterable[Record]) -> dict[str, int]:
    return {key: one.value for key, one in last_of(records).items() if one.value is not None}


def readings(history: History, chance: random.Random) -> Iterator[list[MicroBatch]]:
    """One at a time by partition, the same backwards, all at once, and some by chance."""
    yield [[one] for partition in history for one in partition]
    yield [[one] for partition in reversed(history) for one in partition]
    yield [_shuffled([one for partition in history for one in partition], chance)]
    for _ in range(READINGS - 2):
        yield list(_by_chance(history, chance))


def _by_chance(history: History, chance: random.Random) -> Iterator[MicroBatch]:
    left = [list(partition) for partition in history]
    while any(left):
        taken = []
        for partition in left:
            count = chance.randint(0, min(3, len(partition)))
            taken += partition[:count]
            del partition[:count]
        if taken:
            yield _shuffled(taken, chance)


def _shuffled(records: MicroBatch, chance: random.Random) -> MicroBatch:
    """Within a micro-batch there is no order, as behind a shuffle."""
    return chance.sample(records, len(records))
