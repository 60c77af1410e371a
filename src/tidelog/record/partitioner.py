"""Which partition a key belongs to, as Java's default partitioner says: murmur2 of the key, made positive, modulo.

Clients in other languages may be set to other hashes (librdkafka's own default is CRC-32); where rows of one key must
meet, all producers must agree.
"""

from __future__ import annotations

from tidelog.record import codec
from tidelog.record.header import Buffer


def partition_of(key: Buffer, partitions: int) -> int:
    return (codec.murmur2(key) & 0x7FFFFFFF) % partitions
