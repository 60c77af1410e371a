"""Connections to the server by PyMySQL, and its errors as ours.

    mysql://user:password@host:3306/database?option=value
        accept_cascades=true    tables are captured although foreign keys change their rows without row events
        ssl_ca=/path            TLS, with the server's certificate checked against this file
        ssl=true                TLS, without that check

Values come as the text that the server sent, or as bytes: nothing turns them into Python's types on the way.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tidelog.errors import ConfigError, Disconnected, PeerError, UsageError

SCHEMES = ("mysql", "mariadb")
CONNECT_SECONDS = 10
# A host that is gone without a word is noticed after a minute; by the system's own settings after a quarter of an hour.
NOTICED = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 60_000}
_GONE = {1040, 1053, 1077, 1079, 1080, 1152, 1158, 1159, 1160, 1161, 1203, 1927, 2002, 2003, 2006, 2013, 2055}
_AGAIN = {1205, 1213, 1412}  # a lock that was not had; a table that was truncated or altered under a snapshot
REFUSED = {1044, 1045, 1049, 1130, 1142, 1143, 1227, 1370, 1698, 1820, 1862}
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_OPTIONS = {"accept_cascades", "ssl", "ssl_ca"}


@dataclass(frozen=True)
class MysqlSettings:
    host: str
    port: int
    user: str
    password: str
    database: str
    accept_cascades: bool = False
    ssl: bool = False
    ssl_ca: str | None = None

    @property
    def shown(self) -> str:
        return f"{self.user}@{self.host}:{self.port}/{self.database}"


def settings(url: str) -> MysqlSettings:
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES or not parts.hostname or not parts.path.strip("/"):
        raise ConfigError(
            f"the url of a MySQL source is {parts.scheme}://{parts.hostname or ''}...; "
            "write mysql://user:password@host:3306/database"
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(options.keys() - _OPTIONS)
    if unknown:
        known = ", ".join(sorted(_OPTIONS))
        raise ConfigError(f"the url of a MySQL source has the unknown option {unknown[0]!r}; the options are {known}")
    return MysqlSettings(
        parts.hostname,
        parts.port or 3306,
        unquote(parts.username or "root"),
        unquote(parts.password or ""),
        unquote(parts.path.strip("/")),
        _is_true(options.get("accept_cascades", "false")),
        _is_true(options.get("ssl", "false")),
        options.get("ssl_ca"),
    )


def _is_true(word: str) -> bool:
    if word.lower() not in {"true", "false", "1", "0", "yes", "no"}:
        raise ConfigError(f"an option of the source's url is {word!r}; write true or false")
    return word.lower() in {"true", "1", "yes"}


def connect(wanted: MysqlSettings) -> Any:
    """A connection in autocommit, in UTC, that gives text as text and all else as it came."""
    try:
        import pymysql
        from pymysql.converters import conversions
    except ImportError:
        raise ConfigError("PyMySQL is not installed; pip install 'tidelog[mysql]'") from None

    encoders = {key: value for key, value in conversions.items() if not isinstance(key, int)}
    tls: dict[str, Any] = {"ssl_ca": wanted.ssl_ca, "ssl_verify_cert": True} if wanted.ssl_ca else {}
    if wanted.ssl and not wanted.ssl_ca:
        tls = {"ssl": {"check_hostname": False, "verify_mode": "none"}}
    if not tls and wanted.host in _LOOPBACK:
        tls = {"ssl_disabled": True}
    with mapped(wanted):
        connection = pymysql.connect(
            host=wanted.host,
            port=wanted.port,
            user=wanted.user,
            password=wanted.password,
            charset="utf8mb4",
            conv=encoders,
            autocommit=True,
            connect_timeout=CONNECT_SECONDS,
            **tls,
        )
        for name, seconds in NOTICED.items():
            if (option := getattr(socket, name, None)) is not None:  # not all systems have all of them
                connection._sock.setsockopt(socket.IPPROTO_TCP, option, seconds)
        # PAD_CHAR_TO_FULL_LENGTH would change values, ANSI_QUOTES our names.
        query(connection, "SET SESSION time_zone = '+00:00', sql_mode = ''")
    return connection


def end(connection: Any) -> None:
    """Without a word to the server, which may be gone, or may not listen. It may have ended before."""
    connection._force_close()


def query(connection: Any, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, tuple(values) or None)
        return list(cursor.fetchall())


def variable(connection: Any, name: str) -> str | None:
    """A global one; None where the server does not have it."""
    found = query(connection, "SHOW GLOBAL VARIABLES WHERE Variable_name = %s", [name])
    return str(found[0][1]) if found else None


def quoted(*names: str) -> str:
    return ".".join(f"`{name.replace('`', '``')}`" for name in names)


@contextmanager
def mapped(wanted: MysqlSettings) -> Iterator[None]:
    """Errors of PyMySQL's become ours, by whose fault they are."""
    import pymysql

    try:
        yield
    except pymysql.err.InterfaceError as error:  # a connection that was closed
        raise Disconnected(f"the connection to {wanted.shown} is closed: {error}") from error
    except pymysql.err.Error as error:
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        words = f"{wanted.shown}: {error.args[1] if len(error.args) > 1 else error} (error {code})"
        if code in _GONE | _AGAIN:
            raise Disconnected(words) from error
        raise (UsageError if code in REFUSED else PeerError)(words) from error
    except (OSError, EOFError) as error:
        raise Disconnected(f"{wanted.shown}: {error}") from error
