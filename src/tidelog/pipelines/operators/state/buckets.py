"""Which bucket a key is in, and bucket ids that Spark spreads evenly over its partitions.

A key's bucket is its hash modulo the number of buckets, as a place in the list of ids. Spark sends a group to partition
`pmod(murmur3(id), partitions)`, which leaves some of 0, 1, 2, ... together in one partition and none in another: so ids
are picked such that every partition gets as many as the next. Pure, but for `partitions_here`.
"""

from __future__ import annotations

from typing import NamedTuple

BUCKETS_A_PARTITION = 4  # with 2 partitions, 8 buckets were ahead of 2 and of 32; part of the state's format
PARTITIONS = "spark.sql.shuffle.partitions"
OF_STATE = "spark.sql.streaming.internal.stateStore.partitions"  # what PARTITIONS was when the checkpoint was made

SPARK_SEED = 42
WORD = 0xFFFFFFFF


class Layout(NamedTuple):
    """How the keys of a query are spread. It is fixed for the life of its state."""

    buckets: int
    partitions: int


def layout_of(partitions: int) -> Layout:
    return Layout(partitions * BUCKETS_A_PARTITION, partitions)


def partitions_here() -> int:
    """In a task of a query: the shuffle partitions that it has, which are those of its checkpoint."""
    from pyspark import TaskContext

    task = TaskContext.get()
    assert task is not None
    return int(task.getLocalProperty(OF_STATE) or task.getLocalProperty(PARTITIONS) or 0)


def bucket_ids(partitions: int, buckets: int) -> list[int]:
    """`buckets` different ids, of which every partition gets its share; the first `partitions` are one to each."""
    found: list[list[int]] = [[] for _ in range(partitions)]
    share = -(-buckets // partitions)
    candidate = 0
    while any(len(ids) < share for ids in found):
        ids = found[partition_of(candidate, partitions)]
        if len(ids) < share:
            ids.append(candidate)
        candidate += 1
    return [ids[turn] for turn in range(share) for ids in found][:buckets]


def partition_of(bucket: int, partitions: int) -> int:
    """Where Spark's hash partitioner sends a group whose key is this integer."""
    return murmur3(bucket) % partitions


def murmur3(number: int, seed: int = SPARK_SEED) -> int:
    """Spark's hash of an `int` column, signed."""
    mixed = (number & WORD) * 0xCC9E2D51 & WORD
    mixed = _rotated(mixed, 15) * 0x1B873593 & WORD
    value = (_rotated(seed ^ mixed, 13) * 5 + 0xE6546B64) & WORD
    value ^= 4
    value = (value ^ value >> 16) * 0x85EBCA6B & WORD
    value = (value ^ value >> 13) * 0xC2B2AE35 & WORD
    value ^= value >> 16
    return value - (value >> 31 << 32)


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & WORD
