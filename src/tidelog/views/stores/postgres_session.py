"""One session with a PostgreSQL server: opened when it is needed, opened anew when it was lost. psycopg comes late.

    closed     at first, after `close`, and after any error of the connection's own
    open       from the first transaction on

Rules:
- Every transaction ends here: committed, or rolled back. An error of psycopg leaves as one of ours, with the server's
  address in it and never a password: not even one that the server's own message should repeat.
- A connection that is lost is `Disconnected`. Whether a commit that was under way happened is not known then; the place
  that is stored tells, and the next transaction opens a connection.
- A process that is stopped in the middle of a transaction does not hold up its successor for ever: the server ends a
  transaction in which nothing was asked for IDLE_MS, and the successor waits for a lock LOCK_MS, which is longer.
- Times come and go in UTC, whatever the server's zone is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tidelog.errors import Disconnected, DiskFullError, QueryTimedOut, StorageError, TidelogError, UsageError

if TYPE_CHECKING:
    import psycopg

IDLE_MS = 20_000
LOCK_MS = 60_000
CONNECT_S = 10
LIMITS = "54"  # the class of errors about what PostgreSQL cannot hold, such as a key that is too long
SCHEMA_DEFAULT = "public"
OURS = {"schema"}  # in the URL's query; the rest is libpq's (sslmode, host, connect_timeout, options ...)
SETTINGS = f"-c timezone=UTC -c idle_in_transaction_session_timeout={IDLE_MS} -c lock_timeout={LOCK_MS}"

Connection = Any  # psycopg.Connection[tuple[Any, ...]], known to the type checker only where psycopg is there


class PostgresSession:
    def __init__(self, url: str) -> None:
        self._arguments, self.schema = arguments_of(url)
        self._secret = self._arguments.get("password", "")
        self.address = address_of(self._arguments)
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self.refusal: str | None = None  # the last error's code (SQLSTATE)
        self.bounded = False  # whether the transaction has a time of ours in which to answer
        self.opened = 0  # how often: what belongs to a connection is made anew after it went up

    @contextmanager
    def transaction(self, *, snapshot: bool = False) -> Iterator[Connection]:
        """With `snapshot`, all that is read is of one instant, and nothing is written."""
        import psycopg

        try:
            self.bounded = False
            connection = self._open()
            with connection.transaction():
                if snapshot:
                    connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                yield connection
        except psycopg.Error as error:
            raise self._told(error) from None  # its own text may repeat what was sent
        finally:
            if self._connection is not None and self._connection.closed:
                self.close()

    def outside(self, statement: str) -> None:
        """One that is refused inside of a transaction, such as VACUUM."""
        import psycopg

        try:
            self._open().execute(statement.encode())
        except psycopg.Error as error:
            raise self._told(error) from None

    def _open(self) -> psycopg.Connection[tuple[Any, ...]]:
        import psycopg

        if self._connection is None:
            self._connection = psycopg.connect(**self._arguments, autocommit=True)
            self._connection.execute("SET client_min_messages = warning")
            self.opened += 1
        return self._connection

    def _told(self, error: psycopg.Error) -> TidelogError:
        import psycopg
        from psycopg import errors

        self.refusal = error.sqlstate
        said = " ".join(str(error).split())
        if self._secret:
            said = said.replace(self._secret, "***")
        if isinstance(error, errors.LockNotAvailable):
            return StorageError(f"{self.address}: somebody holds this view's tables: {said}; it is tried again")
        if isinstance(error, errors.QueryCanceled) and self.bounded:
            return QueryTimedOut(
                f"{self.address} did not answer the query in its time; ask for a key, or for rows that are fewer"
            )
        if isinstance(error, errors.QueryCanceled):
            return StorageError(f"{self.address} has ended a statement: {said}; it is tried again")
        if isinstance(error, errors.DiskFull):
            return DiskFullError(f"{self.address} has no room: {said}")
        lost = self._connection is not None and self._connection.closed
        passing = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        if lost or (passing and not (error.sqlstate or "").startswith(LIMITS)):
            return Disconnected(f"{self.address} is not reached: {said}; it is tried again with the next call")
        return UsageError(f"{self.address} refuses: {said}")

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def arguments_of(url: str) -> tuple[dict[str, Any], str]:
    """libpq's arguments, and the schema. Taken apart here: libpq's own message about a malformed URL repeats it."""
    parts = urlsplit(url)
    asked = dict(parse_qsl(parts.query))
    try:
        port = parts.port
    except ValueError:
        raise UsageError("the port of a postgresql:// URL is not a number; percent-encode the password") from None
    told = {
        "host": unquote(parts.hostname or ""),
        "port": str(port or ""),
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "dbname": unquote(parts.path.removeprefix("/")),
    }
    given = {name: value for name, value in told.items() if value}
    libpq = {name: value for name, value in asked.items() if name not in OURS}
    options = f"{SETTINGS} {libpq.pop('options', '')}".strip()
    defaults = {"connect_timeout": str(CONNECT_S), "application_name": "tidelog", "keepalives_idle": "10"}
    return {**defaults, **given, **libpq, "options": options}, asked.get("schema", SCHEMA_DEFAULT)


def address_of(arguments: dict[str, Any]) -> str:
    host = arguments.get("host", "localhost")
    port = f":{arguments['port']}" if "port" in arguments else ""
    return f"PostgreSQL at {host}{port}/{arguments.get('dbname', '')}"
