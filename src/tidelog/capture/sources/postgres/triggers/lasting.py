"""Numbers of transactions that last: a server that is killed does not hand them out again.

A number is the server's for good when something of its transaction, or of a later one, is written down in its own log.
A commit waits for that, and a rollback does not: the snapshot of a look is past the number of a transaction that was
undone, the server is killed, and the next transaction gets that number. A position that had it as seen would pass over
its changes, without a word.

So what is seen goes as far as this only (`SeenSnapshot.below`): the last transaction that was told, or a number behind
which the server's log was written down.
"""

from __future__ import annotations

from tidelog.capture.sources.postgres.session import SqlSession
from tidelog.capture.sources.postgres.triggers.functions import PostgresNames


class LastingNumbers:
    """Those below `end`."""

    def __init__(self, end: int) -> None:
        self.end = end
        self._awaited: tuple[int, int] | None = None  # an end, and the place in the log behind all that is below it
        self._by: object = None

    def reach(self, end: int) -> None:
        self.end = max(self.end, end)

    def look(self, end: int, written: int, flushed: int, *, by: object) -> None:
        """All below `end` that have ended are in the log before `written`; it lasts before `flushed`. `by` is the
        connection: another one may be of a server that was killed meanwhile, and has other things at those places."""
        if self._awaited is None or flushed >= written or self._by is not by:
            self._awaited, self._by = (end, written), by
        if flushed >= self._awaited[1]:
            self.reach(self._awaited[0])
            self._awaited = None


def write_down(session: SqlSession, names: PostgresNames) -> None:
    """All numbers that were handed out last from now on: a commit of ours, whatever the server does with others."""
    connection = session.opened()
    with session.telling(), connection.transaction():
        connection.execute("SET LOCAL synchronous_commit = local")
        connection.execute(f"UPDATE {names.state} SET ready = ready")
