"""The connection on which the server sends its binlog: asked for once, then packets only come.

    length 3, number 1, then 0 and an event | 0xFE: it has ended | 0xFF, error 2, '#', state 5, message

Packets of 16 MB - 1 are parts of a larger one. mysql-replication's own reader is not used here: it connects anew in
silence at the position of its first start, so that events come twice, and a time limit that hits inside of a packet
leaves it in the middle of one.
"""

from __future__ import annotations

import contextlib
import struct
import time
from typing import Any
from zlib import crc32

from tidelog.capture.change import Position
from tidelog.capture.sources.mysql import session
from tidelog.capture.sources.mysql.positions import MySqlGtids
from tidelog.capture.sources.mysql.session import MysqlSettings, query
from tidelog.errors import Disconnected, PeerError, SourceLost, UsageError

HEARTBEAT_SECONDS = 5
SILENCE_SECONDS = 60.0  # without even a heartbeat, the connection is given up
_RECEIVE = 1 << 18
_WHOLE = 0xFFFFFF
_DUMP, _DUMP_GTID = 0x12, 0x1E
_FATAL, _TOO_LARGE = 1236, "max_allowed_packet"


def replica_id(name: str) -> int:
    """Of a capture: the same after a restart, so that a server ends an old connection of it that hangs."""
    return 0x40000000 | crc32(name.encode()) & 0x3FFFFFFF


class Replica:
    def __init__(self, wanted: MysqlSettings, name: str, position: Position, mariadb: bool) -> None:
        self._settings = wanted
        self._buffer = bytearray()
        self._start = 0
        self._heard = time.monotonic()
        self._connection = session.connect(wanted)
        with session.mapped(wanted):
            self.checksum = (session.variable(self._connection, "binlog_checksum") or "NONE") != "NONE"
            self._introduce()
            packet = _mariadb_dump if mariadb else _mysql_dump
            self._ask(packet(self._connection, position, replica_id(name)))

    def _introduce(self) -> None:
        query(self._connection, "SET @master_binlog_checksum = @@global.binlog_checksum")
        query(self._connection, f"SET @master_heartbeat_period = {HEARTBEAT_SECONDS * 1_000_000_000}")

    def _ask(self, command: bytes) -> None:
        self._connection._next_seq_id = 0
        self._connection._write_bytes(len(command).to_bytes(3, "little") + b"\0" + command)

    def event(self, wait_s: float) -> bytes | None:
        """The next event's bytes; None when none came in so long."""
        packet = self._packet(time.monotonic() + wait_s)
        if packet is None:
            return None
        if packet[0] == 0:
            return packet[1:]
        if packet[0] == 0xFF:
            raise self._error(int.from_bytes(packet[1:3], "little"), packet[3:].decode("utf-8", "replace"))
        raise Disconnected(f"{self._settings.shown} ended the binlog's stream")

    def _error(self, code: int, words: str) -> Exception:
        words = words[6:] if words.startswith("#") else words
        if code in session.REFUSED:
            return UsageError(f"{self._settings.shown}: {words} (error {code})")
        if code != _FATAL:
            return Disconnected(f"{self._settings.shown}: {words} (error {code})")
        if _TOO_LARGE in words:
            return UsageError(f"{self._settings.shown}: {words}; SET GLOBAL max_allowed_packet = 1073741824")
        return SourceLost(
            f"{self._settings.shown} no longer has the binlog from the captured position on: {words}; "
            "take a new snapshot, and keep the binlog for longer (binlog_expire_logs_seconds)"
        )

    def _packet(self, deadline: float) -> bytes | None:
        """A whole one, of all its parts, or None. What has come of the next one stays in the buffer."""
        while True:
            end = self._whole_end()
            if end:
                return self._take(end)
            if not self._receive(deadline):
                return None

    def _whole_end(self) -> int:
        at = self._start
        while len(self._buffer) - at >= 4:
            length = int.from_bytes(self._buffer[at : at + 3], "little")
            at += 4 + length
            if length < _WHOLE:
                return at if at <= len(self._buffer) else 0
        return 0

    def _take(self, end: int) -> bytes:
        parts, at = [], self._start
        while at < end:
            length = int.from_bytes(self._buffer[at : at + 3], "little")
            parts.append(bytes(self._buffer[at + 4 : at + 4 + length]))
            at += 4 + length
        self._start = end
        if end == len(self._buffer) or end > _RECEIVE:
            del self._buffer[:end]
            self._start = 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _receive(self, deadline: float) -> bool:
        sock = self._connection._sock
        if sock is None:
            raise Disconnected(f"the connection to {self._settings.shown} is closed")
        now = time.monotonic()
        sock.settimeout(max(deadline - now, 0.0005))
        try:
            data = sock.recv(_RECEIVE)
        except (TimeoutError, BlockingIOError):
            if time.monotonic() - self._heard > SILENCE_SECONDS:
                raise Disconnected(f"{self._settings.shown} has sent nothing for {SILENCE_SECONDS:.0f} s") from None
            return False
        except OSError as error:
            raise Disconnected(f"{self._settings.shown}: {error}") from error
        if not data:
            raise Disconnected(f"{self._settings.shown} closed the connection")
        self._heard = time.monotonic()
        self._buffer += data
        return True

    def close(self, control: Any) -> None:
        """The server would see only at its next heartbeat that nobody listens, and keep its files till then."""
        with contextlib.suppress(Exception):
            query(control, f"KILL CONNECTION {int(self._connection.thread_id())}")
        session.end(self._connection)


def _mariadb_dump(connection: Any, position: Position, server_id: int) -> bytes:
    # 4: it knows GTIDs; strict: a GTID that the server does not have is an error, and nothing is passed over.
    query(connection, "SET @mariadb_slave_capability = 4")
    query(connection, "SET @slave_connect_state = %s", [position["gtid"] or ""])
    query(connection, "SET @slave_gtid_strict_mode = 1")
    query(connection, "SET @slave_gtid_ignore_duplicates = 0")
    return struct.pack("<BIHI", _DUMP, 4, 0, server_id)


def _mysql_dump(connection: Any, position: Position, server_id: int) -> bytes:
    query(connection, "SET @slave_uuid = UUID()")
    if position["gtid"] is None:
        if position["pos"] >= 1 << 32:
            raise PeerError(f"the offset {position['pos']} in {position['file']} is above 4 GiB; switch gtid_mode on")
        return struct.pack("<BIHI", _DUMP, position["pos"], 0, server_id) + str(position["file"]).encode()
    encoded: bytes = MySqlGtids(position["gtid"]).set.encoded()
    return struct.pack("<BHIIQI", _DUMP_GTID, 4, server_id, 0, 4, len(encoded)) + encoded
