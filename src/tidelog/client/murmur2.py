"""The hash by which Java's producer chooses a key's partition, so that our keys land where everybody's do."""

from __future__ import annotations

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """32 bits, unsigned."""
    length = len(data)
    value = SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * MULTIPLIER & MASK
        word = (word ^ word >> 24) * MULTIPLIER & MASK
        value = value * MULTIPLIER & MASK ^ word
    if whole < length:
        value = (value ^ int.from_bytes(data[whole:], "little")) * MULTIPLIER & MASK
    value = (value ^ value >> 13) * MULTIPLIER & MASK
    return value ^ value >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """Java clears the sign bit instead of taking the absolute value."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
