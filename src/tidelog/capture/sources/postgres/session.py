"""Connections to the server: one for statements, opened when it is needed, and their errors as ours.

    closed    at first, after `close`, and after any error of the connection's own
    open      from the first statement on

Every connection has the same settings, whatever the server, the database or the user have, because they decide how
values are written: ISO dates, UTC, one style of intervals, bytes in hex, floats with all digits. A statement is a
transaction of its own. No message of ours has a password in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tidelog.errors import Disconnected, PeerError, TidelogError, UsageError

if TYPE_CHECKING:
    import psycopg

CONNECT_S = 10
# A host that is gone without a word is noticed after a minute; by the system's own settings after a quarter of an hour.
NOTICED = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 60_000}
SETTINGS = (
    "-c datestyle=ISO -c intervalstyle=postgres -c timezone=UTC -c bytea_output=hex -c extra_float_digits=3"
    " -c client_encoding=UTF8 -c statement_timeout=0 -c idle_in_transaction_session_timeout=0"
)

Rows = list[tuple[Any, ...]]


class TableLocked(PeerError):
    """A lock was not had in the time that was set for it."""


class SqlSession:
    def __init__(self, url: str) -> None:
        self._arguments = arguments_of(url)
        self._secret = str(self._arguments.get("password", ""))
        self.database = str(self._arguments.get("dbname") or self._arguments.get("user") or "postgres")
        place = self._arguments.get("host") or "localhost"
        self.address = f"{place}/{self.database}"
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None

    def query(self, statement: str, parameters: Sequence[Any] = ()) -> Rows:
        with self.telling():
            connection = self.opened()
            # psycopg looks for placeholders only where there are parameters.
            ran = connection.execute(statement, parameters) if parameters else connection.execute(statement)
            return ran.fetchall() if ran.description is not None else []

    def one(self, statement: str, parameters: Sequence[Any] = ()) -> Any:
        return self.query(statement, parameters)[0][0]

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        """One more, the caller's own."""
        import psycopg

        with self.telling():
            return psycopg.connect(**self._arguments, autocommit=True)

    def replication(self) -> psycopg.Connection[tuple[Any, ...]]:
        """One that takes the commands of replication, the caller's own. They go through its `pgconn`."""
        import psycopg

        with self.telling():
            return psycopg.connect(**self._arguments, autocommit=True, replication="database")

    @contextmanager
    def telling(self) -> Iterator[None]:
        """An error of psycopg leaves as one of ours."""
        import psycopg

        try:
            yield
        except psycopg.Error as error:
            told = self._told(error)
            if isinstance(told, Disconnected):
                self.close()
            raise told from None  # its own text may repeat what was sent

    def refusal(self, message: str) -> str:
        said = " ".join(message.split())
        return said.replace(self._secret, "***") if self._secret else said

    def opened(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._connection is None or self._connection.closed:
            self._connection = self.connect()
        return self._connection

    def _told(self, error: psycopg.Error) -> TidelogError:
        import psycopg
        from psycopg import errors

        said = self.refusal(str(error))
        if isinstance(error, errors.InsufficientPrivilege):
            return UsageError(f"{self.address} does not allow it: {said}")
        if isinstance(error, errors.ObjectInUse):
            return Disconnected(f"{self.address}: {said}; another capture of this name still runs, or has just ended")
        if isinstance(error, errors.LockNotAvailable):
            return TableLocked(f"{self.address}: {said}")
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return Disconnected(f"{self.address} is not reached: {said}")
        return PeerError(f"{self.address} refuses: {said}")

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def arguments_of(url: str) -> dict[str, Any]:
    """libpq's arguments. Its message about a malformed URL repeats the URL, so that is not told."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        told = dict(conninfo_to_dict(url))
    except psycopg.ProgrammingError:
        raise UsageError(
            "the URL of a PostgreSQL database is malformed; one is postgresql://user:password@host:5432/database,"
            " and a password in it is percent-encoded"
        ) from None
    told.setdefault("connect_timeout", CONNECT_S)
    told.setdefault("application_name", "tidelog")
    for name, value in NOTICED.items():
        told.setdefault(name, value)
    own = told.get("options")
    told["options"] = f"{own} {SETTINGS}" if own else SETTINGS
    return told
