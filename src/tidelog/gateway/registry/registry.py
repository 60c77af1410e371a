"""The shell: reads the topic up to its end, decides, appends, and answers when what it appended has come back.

Rules:
- Every answer rests on all that was committed when its request came. So it begins by asking for the end of the topic
  and reading up to it, as the request's user: that is where the broker says whether this user may.
- A write is decided in a turn: as the owner of `_schemas` (`control/owner.py`), after reading what lies before it. If
  another gateway has begun meanwhile, nothing was written, and it is decided anew. A turn is one request's: the broker
  sees which user writes.
- Two locks: `_writing` for a whole turn, `_lock` to add to the fold, which is held neither while a broker is waited for
  nor while schemas are compared. Who asks is lent the fold; while it is, what comes is added to a copy. A write is
  decided before its turn, and in it only if something has come meanwhile. So one user's slow connection, or schema that
  takes long to compare, holds up other writers at most, and mostly not even them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TypeVar

from tidelog.client.admin import topics
from tidelog.client.cluster import UNKNOWN_TOPIC, Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, LATEST, READ_COMMITTED, list_offsets
from tidelog.control.owner import Owner
from tidelog.control.reading import news
from tidelog.errors import BrokerError, ProducerFenced, UsageError
from tidelog.gateway.registry import refusals
from tidelog.gateway.registry.records import TOPIC
from tidelog.gateway.registry.registering import Decision
from tidelog.gateway.registry.state import State, apply
from tidelog.gateway.route import Call
from tidelog.wire.error_code import ErrorCode

PLACE = TopicPartition(TOPIC, 0)
SETTINGS = {"cleanup.policy": "compact"}
TRANSACTIONAL_ID = "tidelog.schemas"  # of all gateways, whose writes fence each other
TRANSACTION_TIMEOUT_MS = 10_000
TURNS = 30  # that are tried for when other gateways take them away
TURN_WAIT_S = 0.02  # before the second try; then more
TURN_WAIT_MAX_S = 0.5
WRITE_WITHIN_S = 15.0  # for a turn to begin
READ_WITHIN_S = 10.0  # up to where the topic ended when it was asked for
FETCH_WAIT_S = 0.2

Answer = TypeVar("Answer")


class _Fold:
    """The state with what was read so far. `readers` are lent it now; it is not changed while there are any."""

    __slots__ = ("readers", "state")

    def __init__(self, state: State) -> None:
        self.state = state
        self.readers = 0


class Registry:
    """One a gateway, kept between requests. Safe from any thread."""

    def __init__(self) -> None:
        self._fold = _Fold(State())
        self._revision = 0  # counts the changes of the fold
        self._position: int | None = None  # None before anything was read
        self._topic_id = b""
        self._exists = False
        self._lock = Lock()
        self._writing = Lock()

    def close(self) -> None:
        """Holds nothing of its own."""

    def read(self, call: Call, question: Callable[[State], Answer]) -> Answer:
        with call.cluster() as cluster:
            return self._read(cluster, question)[0]

    def _read(self, cluster: Cluster, question: Callable[[State], Answer]) -> tuple[Answer, int]:
        """The answer, and the revision that it was given of."""
        try:
            if self._is_there(cluster):
                self._catch_up(cluster)
        except BrokerError as error:
            self._check_gone(error)
        with self._lent() as (state, revision):
            return question(state), revision

    @contextmanager
    def _lent(self) -> Iterator[tuple[State, int]]:
        with self._lock:
            fold, revision = self._fold, self._revision
            fold.readers += 1
        try:
            yield fold.state, revision
        finally:
            with self._lock:
                fold.readers -= 1

    def write(self, call: Call, decide: Callable[[State], Decision]) -> Decision:
        """`decide` may be called more than once. What it raises is the answer, and nothing is written.

        Mostly what a client registers is there already. So it is decided first without a turn, which nobody need then
        lose.
        """
        with call.cluster() as cluster:
            decided = self._read(cluster, decide)
            if not decided[0].records:
                return decided[0]
            return self._write(cluster, decide, decided)

    def _write(self, cluster: Cluster, decide: Callable[[State], Decision], decided: tuple[Decision, int]) -> Decision:
        deadline = time.monotonic() + WRITE_WITHIN_S
        with self._alone():
            for turn in range(TURNS):
                if time.monotonic() > deadline:
                    break
                try:
                    written = self._turn(cluster, decide, decided)
                except BrokerError as error:
                    self._check_gone(error)
                    continue
                if written is not None:
                    return written
                # Not in step with whoever took the turn, or both would go on for ever.
                time.sleep(random.uniform(0, min(TURN_WAIT_S * 2**turn, TURN_WAIT_MAX_S)))
            raise refusals.timed_out()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._writing.acquire(timeout=WRITE_WITHIN_S):
            raise refusals.timed_out()
        try:
            yield
        finally:
            self._writing.release()

    def _turn(
        self, cluster: Cluster, decide: Callable[[State], Decision], decided: tuple[Decision, int]
    ) -> Decision | None:
        """None when another gateway took it away. `decided` holds if nothing has come since."""
        if not self._is_there(cluster):
            self._make(cluster)
        owner = Owner(cluster, TRANSACTIONAL_ID, timeout_ms=TRANSACTION_TIMEOUT_MS)
        owner.begin()
        self._catch_up(cluster)
        with self._lent() as (state, revision):
            decision = decided[0] if decided[1] == revision else decide(state)
        if decision.records:
            now_ms = int(time.time() * 1000)
            try:
                with owner.transaction() as outgoing:
                    outgoing.send(PLACE, [(key, value, (), now_ms) for key, value in decision.records])
            except ProducerFenced:
                return None
            self._read_to(cluster, outgoing.ends[PLACE])
        return decision

    # The topic

    def _is_there(self, cluster: Cluster) -> bool:
        if not self._exists:
            found = cluster.ask_metadata([TOPIC]).topics.get(TOPIC)
            if found is None or found.error_code in UNKNOWN_TOPIC:
                return False
            self._check(cluster)
        return True

    def _make(self, cluster: Cluster) -> None:
        topics.ensure(cluster, TOPIC, partitions=1, configs=SETTINGS)
        self._check(cluster)

    def _check(self, cluster: Cluster) -> None:
        count = len(cluster.partitions(TOPIC))
        if count != 1:
            raise UsageError(f"topic {TOPIC!r} has {count} partitions, and a registry's has one; move it away")
        self._exists = True

    def _check_gone(self, error: BrokerError) -> None:
        """A topic that was deleted is an empty registry; other errors are raised again."""
        if error.code not in UNKNOWN_TOPIC:
            raise error
        self._exists = False
        with self._lock:
            self._start_over()

    # The fold

    def _catch_up(self, cluster: Cluster) -> None:
        self._read_to(cluster, list_offsets(cluster, {PLACE: LATEST}, isolation=READ_COMMITTED)[PLACE].offset)

    def _read_to(self, cluster: Cluster, end: int) -> None:
        """At least one fetch, whoever has read it already: it is also the question whether this user may read."""
        deadline = time.monotonic() + READ_WITHIN_S
        within_s = 0.0
        while self._fetch(cluster, within_s) < end:
            if time.monotonic() > deadline:
                raise refusals.timed_out()
            within_s = FETCH_WAIT_S

    def _fetch(self, cluster: Cluster, within_s: float) -> int:
        """The position after it. Of two threads that fetched the same, one applies it."""
        expected = position = self._position
        if position is None:
            position = list_offsets(cluster, {PLACE: EARLIEST})[PLACE].offset
        positions = {PLACE: position}
        try:
            rows = news(cluster, positions, within_s=within_s)
        except BrokerError as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            with self._lock:
                self._start_over()
            return -1
        topic_id = cluster.topic(TOPIC).topic_id
        with self._lock:
            if self._topic_id not in (b"", topic_id):
                self._start_over()
                return -1
            if self._position == expected:
                self._topic_id = topic_id
                for _, row in rows:
                    self._add(row.key, row.value)
                self._position = positions[PLACE]
            return -1 if self._position is None else self._position

    def _add(self, key: bytes | None, value: bytes | None) -> None:
        if self._fold.readers:
            self._fold = _Fold(self._fold.state.copy())
        apply(self._fold.state, key, value)
        self._revision += 1

    def _start_over(self) -> None:
        """The topic is not the one that was read: it was deleted, made anew or cut."""
        self._fold, self._position, self._topic_id = _Fold(State()), None, b""
        self._revision += 1
