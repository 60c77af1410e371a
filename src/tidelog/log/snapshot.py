"""Snapshots of the fold over batch headers, so that opening a partition folds no more than the headers behind the last.

`<offset>.producers` is the state of producers and transactions after every record below that offset; big-endian,
version 3:

     0  magic        8 bytes   "TIDEPROD"
     8  version      uint16
    10  zero        2 bytes
    12  offset       int64     as in the name
    20  segment      int64     base offset of the segment that the offset is in,
    28  position     uint64    and its position there
    36  crc          uint32    CRC-32C of the 36 bytes before and of the body
    40  body         the transactions, drawn in transactions.py, then the producers, drawn in producers.py

Version 1 had no transactions: its body is the producers. Up to version 2 producers had no epochs of coordinators.

One is written, durably, whenever a segment is complete and after every SNAPSHOT_BYTES of one; the last KEPT stay. Bytes
that a snapshot is for were synced before it was written, so it also says how much of the log is known to be durable.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.errors import DataFolderError, StorageError
from tidelog.log import producers, transactions
from tidelog.log.files import Files, offset_of, read_file, remove_files, replace_file
from tidelog.log.producers import ProducerState
from tidelog.log.transactions import NO_TRANSACTIONS, FoldedTransactions
from tidelog.record.codec import crc32c

MAGIC = b"TIDEPROD"
VERSION = 3
TRANSACTIONS_SINCE = 2
COORDINATORS_SINCE = 3
SUFFIX = ".producers"
SNAPSHOT_BYTES = 32 << 20
KEPT = 2

_HEAD = struct.Struct(">8sH2xqqQ")
_CRC = struct.Struct(">I")
_HEAD_SIZE = _HEAD.size + _CRC.size


class Snapshot(NamedTuple):
    offset: int
    segment: int
    position: int
    producers: Mapping[int, ProducerState]
    transactions: FoldedTransactions = NO_TRANSACTIONS


def pack(snapshot: Snapshot) -> bytes:
    head = _HEAD.pack(MAGIC, VERSION, snapshot.offset, snapshot.segment, snapshot.position)
    body = transactions.pack(snapshot.transactions) + producers.pack(snapshot.producers)
    return head + _CRC.pack(crc32c(body, crc32c(head))) + body


def unpack(data: bytes, path: str) -> Snapshot | None:
    """None when the bytes are not what was written; raises when a newer Tidelog wrote them."""
    if len(data) < _HEAD_SIZE or not data.startswith(MAGIC):
        return None
    _, version, offset, segment, position = _HEAD.unpack_from(data)
    body = data[_HEAD_SIZE:]
    if _CRC.unpack_from(data, _HEAD.size)[0] != crc32c(body, crc32c(data[: _HEAD.size])):
        return None
    if version > VERSION:
        raise DataFolderError(
            f"{path} has snapshot format {version}, newer than {VERSION}; open it with a newer Tidelog"
        )
    try:
        fold, size = transactions.unpack(body) if version >= TRANSACTIONS_SINCE else (NO_TRANSACTIONS, 0)
        known = producers.unpack(body[size:], coordinated=version >= COORDINATORS_SINCE)
        return Snapshot(offset, segment, position, known, fold)
    except StorageError:
        return None


def write(files: Files, folder: str, snapshot: Snapshot, *, durable: bool = True) -> None:
    replace_file(files, _path(folder, snapshot.offset), pack(snapshot), durable=durable)


def load_newest(files: Files, folder: str, names: Iterable[str]) -> Snapshot | None:
    """The newest that is good."""
    for offset in sorted(_offsets(names), reverse=True):
        path = _path(folder, offset)
        data = read_file(files, path)
        snapshot = unpack(data, path) if data is not None else None
        if snapshot is not None and snapshot.offset == offset:
            return snapshot
    return None


def remove_older(files: Files, folder: str, names: Iterable[str]) -> None:
    remove_files(files, [_path(folder, offset) for offset in sorted(_offsets(names))[:-KEPT]])


def _offsets(names: Iterable[str]) -> list[int]:
    return [offset for name in names if (offset := offset_of(name, SUFFIX)) is not None]


def _path(folder: str, offset: int) -> str:
    return f"{folder}/{offset:020d}{SUFFIX}"
