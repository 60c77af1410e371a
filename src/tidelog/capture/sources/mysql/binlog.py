"""Events of the binlog: their bytes, split and checked. Pure.

    timestamp 4, type 1, server id 4, size 4, end position 4, flags 2, body, CRC-32 4 (where the file has checksums)

A server restarts its table ids with each file, so who keeps them forgets them at ROTATE and FORMAT_DESCRIPTION.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from tidelog.capture.sources.mysql.packed import inflated_event
from tidelog.capture.sources.mysql.table_map import number
from tidelog.errors import PeerError

QUERY, STOP, ROTATE, FORMAT_DESCRIPTION, XID, TABLE_MAP, INCIDENT, HEARTBEAT = 2, 3, 4, 15, 16, 19, 26, 27
WRITES, UPDATES, DELETES = frozenset((23, 30, 166, 169)), frozenset((24, 31, 167, 170)), frozenset((25, 32, 168, 171))
ROWS = WRITES | UPDATES | DELETES
_ROWS_2 = frozenset((30, 31, 32))
_COMPRESSED_ROWS = frozenset(range(166, 172))
GTID, ANONYMOUS_GTID, XA_PREPARE, PARTIAL_UPDATE, TRANSACTION_PAYLOAD = 33, 34, 38, 39, 40
EXECUTE_LOAD, BEGIN_LOAD, APPEND_BLOCK = 18, 17, 9
MARIADB_GTID, GTID_LIST, START_ENCRYPTION, QUERY_COMPRESSED = 162, 163, 164, 165
STANDALONE, PREPARED_XA = 1, 64  # flags of MARIADB_GTID
HEADER = struct.Struct("<IBIIIH")
_CHECKSUM = 4


# What says nothing about rows: statements' variables, notes, checkpoints, lists of GTIDs, blocks of LOAD DATA.
PASSED_OVER = frozenset((STOP, HEARTBEAT, GTID_LIST, START_ENCRYPTION, BEGIN_LOAD, APPEND_BLOCK))
PASSED_OVER |= {5, 11, 13, 14, 28, 29, 35, 36, 37, 41, 160, 161}
IGNORABLE = 0x80  # a flag of events that a reader may leave out
NO_TABLE = 0xFFFFFF  # of a row event that only ends a statement


class BinlogEvent(NamedTuple):
    timestamp: int  # seconds since 1970
    type: int
    server_id: int
    start: int  # in its file
    end: int
    body: bytes


class QueryEvent(NamedTuple):
    database: str
    text: str


class RowsEvent(NamedTuple):
    table_id: int
    columns: int
    full: bool  # all columns are there, of both images
    data: bytes  # the rows themselves


def split(data: bytes, checksum: bool) -> BinlogEvent:
    """Of a whole event. It is checked where its file has checksums."""
    timestamp, kind, server_id, size, end, _ = HEADER.unpack_from(data)
    if size != len(data):
        raise PeerError(f"an event of the binlog says it has {size} bytes and came with {len(data)}")
    if not checksum:
        return BinlogEvent(timestamp, kind, server_id, end - size, end, data[HEADER.size :])
    body = data[:-_CHECKSUM]
    # What the server makes up for a replica, such as the first ROTATE, has no timestamp, and not always a checksum.
    if timestamp and zlib.crc32(body) != int.from_bytes(data[-_CHECKSUM:], "little"):
        raise PeerError(f"the checksum of the binlog's event that ends at {end} does not match; read another server")
    return BinlogEvent(timestamp, kind, server_id, end - size, end, body[HEADER.size :])


def type_of(data: bytes) -> int:
    return data[4]


def may_be_left_out(data: bytes) -> bool:
    return type_of(data) in PASSED_OVER or bool(int.from_bytes(data[17:19], "little") & IGNORABLE)


def has_checksums(format_description: bytes) -> bool:
    """Of the whole event, which always ends with the algorithm and a checksum: 1 is CRC-32."""
    return format_description[-5] == 1


def rotate(body: bytes) -> tuple[str, int]:
    return body[8:].decode(), int.from_bytes(body[:8], "little")


def query(event: BinlogEvent) -> QueryEvent:
    body = event.body
    length, variables = body[8], int.from_bytes(body[11:13], "little")
    start = 13 + variables
    text = body[start + length + 1 :]
    if event.type == QUERY_COMPRESSED:
        text = inflated_event(text)
    return QueryEvent(body[start : start + length].decode(), text.decode("utf-8", "replace"))


def mariadb_gtid(event: BinlogEvent) -> tuple[str, int]:
    """`domain-server-number` and the flags."""
    sequence, domain, flags = struct.unpack_from("<QIB", event.body)
    return f"{domain}-{event.server_id}-{sequence}", flags


def mysql_gtid(event: BinlogEvent) -> tuple[str, int]:
    """`uuid:number`, and when it was committed in microseconds (0 before MySQL 8)."""
    from uuid import UUID

    sequence = int.from_bytes(event.body[17:25], "little")
    committed = int.from_bytes(event.body[42:49], "little") & (1 << 55) - 1 if len(event.body) >= 49 else 0
    return f"{UUID(bytes=event.body[1:17])}:{sequence}", committed


def rows(event: BinlogEvent) -> RowsEvent:
    body = event.body
    at = 8 + (int.from_bytes(body[8:10], "little") if event.type in _ROWS_2 else 0)
    columns, at = number(body, at)
    width = (columns + 7) // 8
    images = 2 if event.type in UPDATES else 1
    full = all(_all_set(body[at + n * width : at + (n + 1) * width], columns) for n in range(images))
    data = body[at + images * width :]
    if event.type in _COMPRESSED_ROWS:
        data = inflated_event(data)
    return RowsEvent(int.from_bytes(body[:6], "little"), columns, full, data)


def _all_set(bitmap: bytes, columns: int) -> bool:
    mask = (1 << columns) - 1
    return int.from_bytes(bitmap, "little") & mask == mask
