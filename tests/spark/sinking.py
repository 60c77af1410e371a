"""A query that writes, without Spark: tasks that stage numbers, a driver that commits them, and ways for it to end.

Micro-batch N has the numbers from N * SIZE on. Whatever happened to drivers and tasks, what counts in the end is every
number once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from client.committed import values_of
from client.dying import WatchedTransport
from contract import TIMEOUT_S
from tidelog.client.address import Address
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.transport import Transport, plain
from tidelog.control.marks import Mark, Sources, end_of_marks, read_mark
from tidelog.spark.commit import Writing, commit
from tidelog.spark.routing import Router
from tidelog.spark.stage_files import beside, driver_here
from tidelog.spark.staging import INLINE_BYTES, Stage, stage

SIZE = 20
SOURCE = TopicPartition("input", 0)
QUERY = "query-1"
IN_TOPIC, IN_FILES = 0, -1  # as limits of what is in messages: everything is staged


class Died(BaseException):
    """Instead of kill -9: from here on this driver sends nothing more, whatever its code still tries."""


class MortalNetwork:
    """A `Dial`. Each request has two steps: before it goes out, and when its answer is there. At step `step` its owner
    dies.
    """

    def __init__(self, step: int) -> None:
        self._left = step

    def __call__(self, address: Address, timeout_s: float) -> Transport:
        return WatchedTransport(plain(address, timeout_s), self)

    def before(self, _api_key: int) -> None:
        self._left -= 1
        if self._left <= 0:
            raise Died

    def after(self, _api_key: int, await_answer: Callable[[], None]) -> None:
        self._left -= 1
        if self._left == 0:
            await_answer()
        if self._left <= 0:
            raise Died


class PausedNetwork:
    """A `Dial`: its owner stands still before the first request of an API goes out, and `act` happens meanwhile."""

    def __init__(self, api_key: int, act: Callable[[], None]) -> None:
        self._api_key = api_key
        self._act = act
        self.paused = False

    def __call__(self, address: Address, timeout_s: float) -> Transport:
        return WatchedTransport(plain(address, timeout_s), self)

    def before(self, api_key: int) -> None:
        if api_key == self._api_key and not self.paused:
            self.paused = True
            self._act()

    def after(self, _api_key: int, _await_answer: Callable[[], None]) -> None:
        pass


class CountingNetwork:
    """A `Dial` that notes each request of an API."""

    def __init__(self, api_key: int, noted: list[int]) -> None:
        self._api_key = api_key
        self._noted = noted

    def __call__(self, address: Address, timeout_s: float) -> Transport:
        return WatchedTransport(plain(address, timeout_s), self)

    def before(self, api_key: int) -> None:
        if api_key == self._api_key:
            self._noted.append(api_key)

    def after(self, _api_key: int, _await_answer: Callable[[], None]) -> None:
        pass


def connected(cluster: Cluster, dial: MortalNetwork | PausedNetwork | CountingNetwork | None = None) -> Cluster:
    """Another process's cluster."""
    bootstrap = [str(address) for address in cluster.bootstrap]
    return Cluster(bootstrap, timeout_s=TIMEOUT_S, dial=dial or plain)


def numbers_of(batch_id: int) -> list[int]:
    return list(range(batch_id * SIZE, batch_id * SIZE + SIZE))


def writing_of(sink: str, batch_id: int, *topics: str, query: str = QUERY, **more: object) -> Writing:
    made = Writing(sink, query, batch_id, Sources({SOURCE: (batch_id + 1) * SIZE}), topics)
    return made._replace(**more)


def arrow_of(numbers: Sequence[int]) -> pa.RecordBatch:
    texts = [b"%d" % number for number in numbers]
    return pa.record_batch({"key": pa.array(texts, pa.binary()), "value": pa.array(texts, pa.binary())})


def staged_numbers(
    cluster: Cluster, topic: str, sink: str, numbers: Sequence[int], *, tasks: int = 2, limit: int = INLINE_BYTES
) -> list[Stage]:
    """By tasks of their own, as executors do it."""
    driver = driver_here() if limit == IN_FILES else None
    return [
        stage(
            cluster,
            Router(cluster, topic, "none").route([arrow_of(numbers[task::tasks])]),
            sink=sink,
            query_id=QUERY,
            task=task,
            limit=max(limit, 0),
            near=beside(driver, 0),
        )
        for task in range(tasks)
    ]


def run(cluster: Cluster, topic: str, sink: str, batch_id: int, *, tasks: int = 2, limit: int = INLINE_BYTES) -> bool:
    """One micro-batch, by a driver that lives."""
    with connected(cluster) as mine:
        stages = staged_numbers(mine, topic, sink, numbers_of(batch_id), tasks=tasks, limit=limit)
        return commit(mine, writing_of(sink, batch_id, topic), stages, lambda: connected(cluster))


def committed(cluster: Cluster, topic: str) -> list[int]:
    """Everything that counts, sorted."""
    found = [values_of(cluster, at) for at in cluster.partitions(topic)]
    return sorted(int(value or b"-1") for values in found for value in values)


def last_mark(cluster: Cluster, sink: str) -> Mark:
    """Also one whose commit was answered a moment ago."""
    found = read_mark(cluster, sink, end_of_marks(cluster, sink))
    assert found is not None
    return found


def up_to(batches: int) -> list[int]:
    return list(range(batches * SIZE))
