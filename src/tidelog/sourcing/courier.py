"""Requests to partitions that somebody else owns: out by the command topic, answers back by the topic of replies.

Rules:
- Replies are followed from where they end before the first request goes out, so none is missed, nor are those that
  were written while the connection was lost. They are of all who ask; `to` says whose.
- A request that was produced is answered by whoever owns the partition then, or by the next owner: its id makes sure
  that it is done once. When it is not answered in time, its sender is told so, and may ask again.
- What cannot be sent (its metadata is not JSON, it is too large, the broker does not allow it) is its sender's to
  know, at once; others go on.
- Two threads, each with a cluster of its own, started with the first request.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from itertools import count
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread
from typing import Any
from uuid import uuid4

from tidelog.client.backoff import waits
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, LATEST, READ_COMMITTED, list_offsets
from tidelog.client.producer import Delivery, Producer
from tidelog.client.refusal import may_pass
from tidelog.errors import BrokerError, TidelogError, UsageError
from tidelog.sourcing.command_record import encode_command, settle_by_reply
from tidelog.sourcing.decider import Decider
from tidelog.sourcing.requests import Joint
from tidelog.sourcing.store_topics import StoreTopics, place_of

REQUESTS_MAX = 2_000
IDLE_S = 0.2
WAIT_MS = 250
FORGET_S, FORGET_EACH = 600.0, 1_000

log = logging.getLogger(__name__)


class Courier:
    def __init__(
        self, named: StoreTopics, partitions: int, decider: Decider[Any], connect: Callable[[], Cluster]
    ) -> None:
        self._named, self._partitions, self._decider, self._connect = named, partitions, decider, connect
        self._me = uuid4().hex[:12]
        self._numbers = count()
        self._pending: dict[bytes, tuple[Joint, float]] = {}
        self._read: dict[TopicPartition, int] = {}  # of replies
        self._queue: SimpleQueue[Joint | None] = SimpleQueue()
        self._lock = Lock()
        self._stopping, self._follows = Event(), Event()
        self._threads: list[Thread] = []

    def send(self, joint: Joint) -> None:
        with self._lock:
            if not self._threads and not self._stopping.is_set():
                self._threads = [
                    Thread(target=self._loop, args=(work,), name=f"store-{self._named.name}-{what}", daemon=True)
                    for what, work in (("replies", self._follow), ("requests", self._produce))
                ]
                for thread in self._threads:
                    thread.start()
        self._queue.put(joint)

    def stop(self) -> None:
        self._stopping.set()
        self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _loop(self, work: Callable[[Cluster], None]) -> None:
        pauses = waits()
        while not self._stopping.is_set():
            try:
                with self._connect() as cluster:
                    work(cluster)
            except TidelogError as error:
                log.warning("store %s: requests to other owners wait: %s", self._named.name, error)
                self._stopping.wait(next(pauses))

    # Out

    def _produce(self, cluster: Cluster) -> None:
        while not self._follows.wait(IDLE_S):
            if self._stopping.is_set():
                return
        producer = Producer(cluster, auto_create=False)
        while not self._stopping.is_set():
            sent = [self._sent(producer, joint) for joint in self._gathered()]
            producer.flush(strict=False)
            failed = [(to, delivery.error) for to, delivery in filter(None, sent) if delivery.error is not None]
            for to, error in failed:
                if is_final(error):
                    self._settle(to, error)
            for _, error in failed:
                if not is_final(error):
                    raise error

    def _sent(self, producer: Producer, joint: Joint) -> tuple[bytes, Delivery] | None:
        to = f"{self._me}.{next(self._numbers)}".encode()
        self._pending[to] = (joint, time.monotonic())
        try:
            key, value, headers = encode_command(joint, to)
        except Exception as error:  # of what came with the command, or of a model of the app
            self._settle(to, UsageError(f"command {joint.requests[0].id!r} cannot be sent: {error!r}"))
            return None
        at = place_of(self._named.commands, key, self._partitions)
        return to, producer.send(at.topic, value, key=key, headers=headers, partition=at.partition)

    def _settle(self, to: bytes, error: Exception) -> None:
        joint, _ = self._pending.pop(to, (Joint(()), 0.0))
        for request in joint.requests:
            request.answer.settle(error=error)

    def _gathered(self) -> Iterator[Joint]:
        try:
            first = self._queue.get(timeout=IDLE_S)
            if first is not None:
                yield first
            for _ in range(REQUESTS_MAX):
                more = self._queue.get_nowait()
                if more is not None:
                    yield more
        except Empty:
            return

    # Back

    def _follow(self, cluster: Cluster) -> None:
        places = [TopicPartition(self._named.replies, number) for number in range(self._partitions)]
        begins = list_offsets(cluster, dict.fromkeys(places, EARLIEST))
        if not self._read:
            ends = list_offsets(cluster, dict.fromkeys(places, LATEST), isolation=READ_COMMITTED)
            self._read = {at: found.offset for at, found in ends.items()}
        consumer = Consumer(cluster, read_committed=True, max_wait_ms=WAIT_MS)
        consumer.assign({at: max(offset, begins[at].offset) for at, offset in self._read.items()})
        self._follows.set()
        while not self._stopping.is_set():
            for fetched in consumer.fetch():
                self._read[fetched.at] = fetched.next_offset
                for row in fetched.rows():
                    to = next((data for name, data in row.headers if name == "to"), None)
                    found = None if to is None else self._pending.pop(to, None)
                    if found is not None:
                        settle_by_reply(self._decider, found[0], row.value or b"")
            self._forget()

    def _forget(self) -> None:
        """What was not answered for so long that nobody waits for it."""
        before = time.monotonic() - FORGET_S
        for to, (_, sent_at) in list(self._pending.items())[:FORGET_EACH]:
            if sent_at < before:
                self._pending.pop(to, None)


def is_final(error: TidelogError) -> bool:
    """Nothing of it was written, and another try would not help."""
    return isinstance(error, BrokerError) and not may_pass(error.code)
