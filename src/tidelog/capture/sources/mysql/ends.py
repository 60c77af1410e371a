"""Where the server's binlog ends: now, or when a snapshot began. Each is a question to the server."""

from __future__ import annotations

from typing import Any

from tidelog.capture.change import Position
from tidelog.capture.sources.mysql.positions import position
from tidelog.capture.sources.mysql.session import query


def committed(connection: Any, mariadb: bool) -> tuple[int, str]:
    """The server's clock in microseconds, and then the GTIDs of everything committed before (or file:offset)."""
    ((micros,),) = query(connection, "SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS UNSIGNED)")
    if mariadb:
        ((head,),) = query(connection, "SELECT @@gtid_binlog_pos")
        return int(micros), str(head)
    ((mode,),) = query(connection, "SELECT @@global.gtid_mode")
    if mode == "ON":
        ((head,),) = query(connection, "SELECT @@global.gtid_executed")
        return int(micros), str(head)
    file, pos = binlog_end(connection)
    return int(micros), f"{file}:{pos}"


def binlog_end(connection: Any) -> tuple[str, int]:
    """Where the server writes now. MySQL 8.4 has other words for it."""
    import pymysql

    try:
        found = query(connection, "SHOW MASTER STATUS")
    except pymysql.err.ProgrammingError:
        found = query(connection, "SHOW BINARY LOG STATUS")
    return (str(found[0][0]), int(found[0][1])) if found else ("", 0)


def file_order(file: str, pos: int) -> tuple[int, str, int]:
    """Files are numbered, and the number may get one digit more."""
    return len(file), file, pos


def here(connection: Any, mariadb: bool) -> Position:
    """Where the server writes its binlog now. Exact only while nothing is written."""
    file, pos = binlog_end(connection)
    if mariadb:
        ((gtid,),) = query(connection, "SELECT @@gtid_binlog_pos")
        return position(str(gtid), file, pos)
    ((mode,),) = query(connection, "SELECT @@global.gtid_mode")
    if mode != "ON":
        return position(None, file, pos)
    ((executed,),) = query(connection, "SELECT @@global.gtid_executed")
    return position(str(executed).replace("\n", ""), file, pos)


def snapshot_end(connection: Any) -> tuple[str, int]:
    """Where MariaDB's binlog was when this connection's transaction began."""
    told = dict(query(connection, "SHOW STATUS LIKE 'Binlog_snapshot%'"))
    found = {name.lower(): text for name, text in told.items()}
    return found["binlog_snapshot_file"], int(found["binlog_snapshot_position"])
