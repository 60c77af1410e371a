"""The broker that a test gets: `tidelog.Broker` in a child process, and the few things that a test wants to do beside
its client.

`bootstrap` is for the client under test. `create_topic`, `produce` and `records` set the stage and look at the
result without one. `restart` and `kill` show what the program under test does when its broker goes away: the port
stays the same, and nothing acked is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.broker.embedded import Broker
from tidelog.errors import UsageError

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.record.columns import Row

Record = bytes | str | None | tuple[bytes | str | None, bytes | str | None]
"""A value, or (key, value)."""


class TestBroker:
    __test__ = False  # pytest: not a class of tests

    def __init__(self, data: Path, *, settings: Mapping[str, object] | None = None) -> None:
        self._broker = Broker(data, settings=settings)
        self._names = 0

    def __enter__(self) -> TestBroker:
        self._broker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    @property
    def data(self) -> Path:
        return self._broker.data

    @property
    def pid(self) -> int:
        pid = self._broker.pid
        assert pid is not None, "a test's broker is a child process"
        return pid

    # Its life -------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        self._forget_cluster()
        self._broker.stop()

    def start(self) -> None:
        self._broker.start()

    def restart(self) -> None:
        """A clean stop and a start, at the same address."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """SIGKILL, as a crash; `start` brings it back at the same address."""
        self._forget_cluster()
        self._broker.kill()

    # Topics and records ---------------------------------------------------------------------------------------------

    def unique(self, name: str) -> str:
        """A topic or group name that no other test of this broker has."""
        self._names += 1
        return f"{name}-{self._names}"

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, object] | None = None) -> str:
        from tidelog.client.admin import topics

        texts = {
            key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in (configs or {}).items()
        }
        topics.create(self.cluster, name, partitions=partitions, configs=texts)
        return name

    def produce(self, topic: str, records: Iterable[Record], *, partition: int | None = None) -> None:
        """Writes values, or (key, value) pairs, and returns when they are acked. Text is UTF-8."""
        from tidelog.client.producer import Producer

        if isinstance(records, str | bytes):
            raise UsageError(f"records is {records[:40]!r}; give a list, [{records[:40]!r}]")
        with Producer(self.cluster) as producer:
            for record in records:
                key, value = _key_value(record)
                producer.send(topic, value, key=key, partition=partition)

    def records(self, topic: str, partition: int | None = None) -> list[Row]:
        """All that can be read of a topic now, partition by partition."""
        from tidelog.client.offsets import EARLIEST, LATEST, list_offsets
        from tidelog.control.reading import read
        from tidelog.errors import BrokerError
        from tidelog.wire.error_code import ErrorCode

        every = self.cluster.partitions(topic)
        partitions = [at for at in every if partition in (None, at.partition)]
        if not partitions:
            raise UsageError(f"{topic!r} has no partition {partition}; it has 0 to {len(every) - 1}")
        while True:
            ends = list_offsets(self.cluster, dict.fromkeys(partitions, LATEST))
            begins = list_offsets(self.cluster, dict.fromkeys(partitions, EARLIEST))
            rows: dict[object, list[Row]] = {at: [] for at in partitions}
            try:
                for at, row in read(
                    self.cluster,
                    {at: one.offset for at, one in begins.items()},
                    {at: one.offset for at, one in ends.items()},
                    committed=False,
                ):
                    rows[at].append(row)
            except BrokerError as error:
                if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                continue  # retention has moved the beginning since it was looked at
            return [row for at in partitions for row in rows[at]]

    @cached_property
    def cluster(self) -> Cluster:
        """A blocking client of our own, connected to this broker."""
        from tidelog.client.cluster import Cluster

        return Cluster(self.bootstrap)

    def _forget_cluster(self) -> None:
        cluster = self.__dict__.pop("cluster", None)
        if cluster is not None:
            cluster.close()


def _key_value(record: Record) -> tuple[bytes | None, bytes | None]:
    pair = record if isinstance(record, tuple) else (None, record)
    if len(pair) != 2 or not all(part is None or isinstance(part, bytes | str) for part in pair):
        raise UsageError(f"{record!r} is not a record; give a value or (key, value), each bytes, text or None")
    key, value = (part.encode() if isinstance(part, str) else part for part in pair)
    return key, value
