"""A connection that speaks PostgreSQL's replication protocol, through libpq.

    commands    until `start`: IDENTIFY_SYSTEM, CREATE_REPLICATION_SLOT ...
    copying     from `start` on: copy data in both directions
    closed      after `close`, and after the server has ended it

Nothing here blocks in C: waiting is a select of ours, so that a signal is seen, and creating a slot may wait for every
transaction that is open in the database.
"""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import Any

from tidelog.capture.sources.postgres.pgoutput import lsn_text
from tidelog.capture.sources.postgres.session import SqlSession
from tidelog.errors import Disconnected

WAIT_S = 0.5


class Replication:
    def __init__(self, session: SqlSession) -> None:
        self._session = session
        self._connection = session.replication()
        self._pg = self._connection.pgconn
        self._poll = select.poll()
        self._poll.register(self._pg.socket, select.POLLIN)

    def command(self, text: str) -> list[dict[str, str]]:
        """The rows of its answer."""
        result = self._answer(text)
        names = [(result.fname(at) or b"").decode() for at in range(result.nfields)]
        rows = [[result.get_value(row, at) or b"" for at in range(len(names))] for row in range(result.ntuples)]
        return [{name: value.decode() for name, value in zip(names, row, strict=True)} for row in rows]

    def start(self, slot: str, lsn: int, publications: Sequence[str]) -> None:
        names = ",".join('"' + name.replace('"', '""') + '"' for name in publications).replace("'", "''")
        options = f"proto_version '1', publication_names '{names}', messages 'true'"
        self._answer(f'START_REPLICATION SLOT "{slot}" LOGICAL {lsn_text(lsn)} ({options})')
        self._pg.nonblocking = 1

    def receive(self) -> bytes | None:
        """The next copy data that has come, or None where it has to be waited for."""
        try:
            size, data = self._pg.get_copy_data(1)
        except Exception as error:  # the hot path: `telling` would cost more than all else here
            with self._session.telling():
                raise error
        if size > 0:
            return bytes(data)
        if size == 0:
            return None
        with self._session.telling():
            raise self._ended()

    def wait(self, seconds: float) -> bool:
        """Whether anything has come."""
        if not self._poll.poll(max(seconds, 0) * 1000):
            return False
        with self._session.telling():
            self._pg.consume_input()
        return True

    def send(self, data: bytes) -> None:
        with self._session.telling():
            self._pg.put_copy_data(data)
            self._pg.flush()

    def close(self) -> None:
        self._connection.close()

    def _answer(self, text: str) -> Any:
        from psycopg import pq
        from psycopg.errors import error_from_result

        fine = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.COPY_BOTH)
        with self._session.telling():
            self._pg.send_query(text.encode())
            while self._pg.is_busy():
                self.wait(WAIT_S)
            result = self._pg.get_result()
            if result is None:
                raise self._ended()
            if result.status not in fine:
                raise error_from_result(result)
            while result.status != pq.ExecStatus.COPY_BOTH and self._pg.get_result() is not None:
                pass
            return result

    def _ended(self) -> Exception:
        from psycopg import pq
        from psycopg.errors import error_from_result

        result = self._pg.get_result()
        if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
            return error_from_result(result)
        return Disconnected(f"{self._session.address} has ended the replication")
