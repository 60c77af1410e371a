"""Input of the state rows, and what must come of it: numbered keys with numbers, in the order of two partitions. Pure.

A key is always in the same partition, as every producer would have it: so its last value is the one with the highest
offset. The same arguments give the same rows, and fewer rows are the first of more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.int64]

PARTITIONS = 2
SEED = 20261115
MODULUS = 2**31 - 1


class Input(NamedTuple):
    keys: int
    rows: int

    def partition(self, number: int) -> tuple[Numbers, Numbers]:
        """Keys and values of one partition, in its order."""
        of_keys, of_values = (np.random.default_rng([SEED, self.keys, number, column]) for column in range(2))
        count = self.rows // PARTITIONS
        drawn = of_keys.integers(0, self.keys // PARTITIONS, count) * PARTITIONS + number
        return drawn, of_values.integers(0, MODULUS, count)


def text(numbers: Numbers) -> pa.Array:
    """As decimal text, which every client reads."""
    return pa.array(numbers).cast(pa.string()).cast(pa.binary())


class Sums(NamedTuple):
    """Of what a micro-batch put out: rows, and a checksum over key, count and last value of each."""

    rows: int
    checksum: int


def checksum(keys: Numbers, counts: Numbers, lasts: Numbers) -> int:
    return int(((keys * 1_000_003 + counts * 10_007 + lasts) % MODULUS).sum())


CHECKSUM_SQL = f"sum(pmod(key * 1000003L + n * 10007L + last, {MODULUS}L))"


def checksum_sql(columns: Iterable[str]) -> str:
    """Over whole rows, in whatever order they come."""
    names = ", ".join(f"`{name}`" for name in sorted(columns))
    return f"coalesce(sum(pmod(xxhash64({names}), {MODULUS}L)), 0L)"


def expected(given: Input, ends: Iterable[tuple[int, int]]) -> Iterator[Sums]:
    """By micro-batch: the count and last value of every key that it brought. `ends` are offsets by partition."""
    counts, lasts = np.zeros(given.keys, np.int64), np.zeros(given.keys, np.int64)
    columns = [given.partition(number) for number in range(PARTITIONS)]
    starts = (0,) * PARTITIONS
    for now in ends:
        seen = []
        for (keys, values), start, end in zip(columns, starts, now, strict=True):
            counts += np.bincount(keys[start:end], minlength=given.keys)
            lasts[keys[start:end]] = values[start:end]  # the last assignment of an index stays
            seen.append(np.unique(keys[start:end]))
        starts = now
        touched = np.concatenate(seen)
        yield Sums(len(touched), checksum(touched, counts[touched], lasts[touched]))
