"""The shell: reads the topic up to its end, decides, appends, and answers when what it appended has come back.

Rules:
- Every answer rests on all that was committed when its request came: reads begin with a fetch at the end of the topic,
  which costs one round trip and is where the broker says whether this user may read it.
- A write is decided in a turn of this gateway's own (`writer.py`), after reading what lies before it. If another
  gateway has begun meanwhile, nothing was written, and it is decided anew.
- One lock: threads of a gateway take turns. The fold belongs to whoever holds it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from threading import RLock
from typing import TypeVar

from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, list_offsets
from tidelog.errors import BrokerError, UsageError
from tidelog.gateway.registry import refusals
from tidelog.gateway.registry.records import TOPIC
from tidelog.gateway.registry.registering import Decision
from tidelog.gateway.registry.state import State, apply
from tidelog.gateway.registry.writer import Fenced, Writer
from tidelog.gateway.route import Call
from tidelog.wire.error_code import ErrorCode

PLACE = TopicPartition(TOPIC, 0)
SETTINGS = {"cleanup.policy": "compact"}
TURNS = 30  # that are tried for when other gateways take them away
TURN_WAIT_S = 0.02  # before the second try; then more
TURN_WAIT_MAX_S = 0.5
BACK_WITHIN_S = 10.0  # what was appended must have come back
BACK_WAIT_MS = 200

Answer = TypeVar("Answer")


class Registry:
    """One a gateway, kept between requests. Safe from any thread."""

    def __init__(self) -> None:
        self._state = State()
        self._position: int | None = None
        self._topic_id = b""
        self._exists = False
        self._writer = Writer(PLACE)
        self._lock = RLock()

    def close(self) -> None:
        """Holds nothing of its own."""

    def read(self, call: Call, question: Callable[[State], Answer]) -> Answer:
        with call.cluster() as cluster, self._lock:
            if self._is_there(cluster):
                self._catch_up(cluster)
            return question(self._state)

    def write(self, call: Call, decide: Callable[[State], Decision]) -> Decision:
        """`decide` may be called more than once. What it raises is the answer, and nothing is written."""
        with call.cluster() as cluster, self._lock:
            self._make_sure_it_is_there(cluster)
            for turn in range(TURNS):
                self._writer.begin(cluster)
                self._catch_up(cluster)
                decision = decide(self._state)
                if not decision.records:
                    return decision
                try:
                    last = self._writer.append(cluster, decision.records, int(time.time() * 1000))
                except Fenced:
                    # Not in step with whoever took it, or both would go on for ever.
                    time.sleep(random.uniform(0, min(TURN_WAIT_S * 2**turn, TURN_WAIT_MAX_S)))
                    continue
                self._wait_for(cluster, last)
                return decision
            raise refusals.timed_out()

    # The topic

    def _is_there(self, cluster: Cluster) -> bool:
        if not self._exists:
            found = cluster.ask_metadata([TOPIC]).topics.get(TOPIC)
            if found is None or found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return False
            self._check(cluster)
        return True

    def _make_sure_it_is_there(self, cluster: Cluster) -> None:
        if self._is_there(cluster):
            return
        try:
            topics.create(cluster, TOPIC, partitions=1, configs=SETTINGS)
        except BrokerError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        self._check(cluster)

    def _check(self, cluster: Cluster) -> None:
        count = len(cluster.partitions(TOPIC))
        if count != 1:
            raise UsageError(f"topic {TOPIC!r} has {count} partitions, and a registry's has one; move it away")
        self._exists = True

    # The fold

    def _catch_up(self, cluster: Cluster) -> None:
        """Until nothing more comes: then all that was committed before is in."""
        while self._fetch(cluster, wait_ms=0):
            pass

    def _wait_for(self, cluster: Cluster, offset: int) -> None:
        deadline = time.monotonic() + BACK_WITHIN_S
        while self._position is None or self._position <= offset:
            self._fetch(cluster, wait_ms=BACK_WAIT_MS)
            if time.monotonic() > deadline:
                raise refusals.timed_out()

    def _fetch(self, cluster: Cluster, *, wait_ms: int) -> bool:
        if self._position is None:
            self._position = list_offsets(cluster, {PLACE: EARLIEST})[PLACE].offset
        consumer = Consumer(cluster, max_wait_ms=wait_ms, read_committed=True)
        consumer.assign({PLACE: self._position})
        try:
            fetched = consumer.fetch()
        except BrokerError as error:
            self._exists = self._exists and error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if error.code not in (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                raise
            self._start_over()
            return self._exists
        topic_id = cluster.topic(TOPIC).topic_id
        if self._topic_id not in (b"", topic_id):
            self._start_over()
            return True
        self._topic_id = topic_id
        for one in fetched:
            for row in one.rows():
                apply(self._state, row.key, row.value)
            self._position = one.next_offset
        return bool(fetched)

    def _start_over(self) -> None:
        """The topic is not the one that was read: it was deleted, made anew or cut."""
        self._state, self._position, self._topic_id = State(), None, b""
