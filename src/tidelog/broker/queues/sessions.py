"""Share sessions: which partitions a member asks for, so that it need not name them all in every request.

    epoch 0       opens one; an older one of the same member ends
    epoch n       goes on with it: n is one more than the last; names partitions that come and go
    epoch -1      ends it: what the member had acquired and did not acknowledge is available again

Memory only. A session ends with its connection: the client opens another, and what it had acquired is given to others,
as a delivery that ended. Which records are whose goes by the member's id, not by its session.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tidelog.broker.queues.state import Place
from tidelog.wire.error_code import ErrorCode

OPENING, ENDING = 0, -1
EPOCH_MAX = 2**31 - 1


@dataclass(slots=True, eq=False)
class ShareSession:
    group: str
    member: str
    connection: object
    epoch: int = 1  # the one that the next request must have
    places: dict[Place, None] = field(default_factory=dict)
    turn: int = 0  # with which partition the next look begins
    faults: dict[Place, int] = field(default_factory=dict)  # error codes that it was told, and that are still so
    given_ms: int = 0  # when it was last given records,
    ended: int = 0  # and how many it has acknowledged since


class ShareSessions:
    def __init__(self) -> None:
        self._by_member: dict[tuple[str, str], ShareSession] = {}
        self._by_connection: dict[object, set[ShareSession]] = {}
        self._readers: dict[tuple[str, Place], int] = {}  # how many sessions of a group ask for a partition

    def __len__(self) -> int:
        return len(self._by_member)

    def __iter__(self) -> Iterator[ShareSession]:
        return iter(list(self._by_member.values()))

    def get(self, group: str, member: str) -> ShareSession | None:
        return self._by_member.get((group, member))

    def readers(self, group: str, place: Place) -> int:
        return self._readers.get((group, place), 0)

    def open(
        self, group: str, member: str, connection: object, places: Iterable[Place], most: int
    ) -> ShareSession | int:
        self.end(group, member)
        if len(self._by_member) >= most:
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        session = ShareSession(group, member, connection)
        self._by_member[group, member] = session
        self._by_connection.setdefault(connection, set()).add(session)
        self.add(session, places)
        session.turn = len(self._by_member)  # who comes one after the other begins with different partitions
        return session

    def go_on(self, group: str, member: str, epoch: int, connection: object) -> ShareSession | int:
        """The session for one more request, or the error code that says why not."""
        session = self._by_member.get((group, member))
        if session is None or session.connection is not connection:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch == ENDING:
            return session
        if epoch != session.epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        return session

    def add(self, session: ShareSession, places: Iterable[Place]) -> None:
        for place in places:
            if place not in session.places:
                session.places[place] = None
                self._readers[session.group, place] = self.readers(session.group, place) + 1

    def forget(self, session: ShareSession, places: Iterable[Place]) -> None:
        for place in list(places):
            if place in session.places:
                del session.places[place]
                session.faults.pop(place, None)
                left = self.readers(session.group, place) - 1
                if left:
                    self._readers[session.group, place] = left
                else:
                    del self._readers[session.group, place]

    def end(self, group: str, member: str) -> ShareSession | None:
        session = self._by_member.pop((group, member), None)
        if session is not None:
            self.forget(session, session.places)
            of_connection = self._by_connection[session.connection]
            of_connection.discard(session)
            if not of_connection:
                del self._by_connection[session.connection]
        return session

    def of(self, connection: object) -> list[ShareSession]:
        return list(self._by_connection.get(connection, ()))
