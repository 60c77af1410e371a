"""The shop's events, sent as their time comes: a thread with a client of its own, at no more than a few sends a second.

What falls behind (a machine that stood still) is sent as soon as can be, with the timestamps that it should have had.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.client.producer import Delivery, Producer
from tidelog.demo.events import ShopEvent, events
from tidelog.demo.freshness import Produced
from tidelog.demo.shop import DELIVERIES, ORDERS
from tidelog.errors import TidelogError

TOPICS = (ORDERS, DELIVERIES)
PARTITIONS = 2
TICK_S = 0.05


def make_topics(cluster: Cluster) -> int:
    """Those that are not there yet. Returns how many events have been there before."""
    for name in TOPICS:
        topics.ensure(cluster, name, partitions=PARTITIONS)
    asked = {TopicPartition(name, index): LATEST for name in TOPICS for index in range(PARTITIONS)}
    return sum(found.offset for found in cluster.retry(partial(list_offsets, cluster, asked)).values())


class Feeder:
    """`tell` hears of every record, once it is acked, when it was sent. An end with an `error` is a failure."""

    def __init__(self, bootstrap: str, seed: int, rate: float, number: int, tell: Callable[[Produced], None]) -> None:
        self._thread = threading.Thread(target=self._run, name="tidelog-demo-feeder", daemon=True)
        self.counts = dict.fromkeys(TOPICS, 0)
        self.error: TidelogError | None = None
        self._bootstrap = bootstrap
        self._events = events(seed, rate, number=number)
        self._tell = tell
        self._stopping = threading.Event()

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        try:
            with Cluster(self._bootstrap, client_id="tidelog-demo") as cluster:
                self._feed(Producer(cluster))
        except TidelogError as error:
            self.error = error

    def stop(self) -> None:
        """Returns when the last event that was sent is acked."""
        self._stopping.set()
        self._thread.join()

    def _feed(self, producer: Producer) -> None:
        began_ms, began_s = int(time.time() * 1000), time.monotonic()
        event = next(self._events)
        while not self._stopping.wait(TICK_S):
            now_s = time.monotonic()
            sent: list[tuple[ShopEvent, Delivery]] = []
            while event.after_s <= now_s - began_s:
                stamp = event.timestamp_ms(began_ms)
                sent.append((event, producer.send(event.topic, event.value(began_ms), key=event.key, timestamp=stamp)))
                event = next(self._events)
            producer.flush()
            for each, delivery in sent:
                self.counts[each.topic] += 1
                self._tell(Produced(delivery.at, delivery.offset, now_s))
