"""Reading assigned partitions: batches as they lie in the log, from many partitions and leaders at once, by long poll.

Rules:
- A position is the next offset to be asked for. It moves only when `fetch` returns what lies before it, so what a
  failed `fetch` saw comes again.
- Each leader has at most one request in flight. With `prefetch` the next one is sent before `fetch` returns, so that it
  travels while the caller decodes. An answer to a position that `seek` or `assign` has left behind is dropped.
- A batch is handed out whole even when the position lies in its middle, as brokers do; `rows` skips the first part.
- When a partition's leader epoch has risen, what was read before is compared with what is there (`truncation.py`).
- There are no groups here and no commits: who reads what is the caller's to decide (`admin/groups.py` has offsets).
"""

from __future__ import annotations

import select
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple, cast

from tidelog.client.cluster import Cluster
from tidelog.client.connection import Connection, Sent
from tidelog.client.metadata import TopicPartition, by_topic
from tidelog.client.offsets import LATEST, READ_COMMITTED, READ_UNCOMMITTED, list_offsets
from tidelog.client.refusal import may_pass, refused
from tidelog.client.truncation import check_truncation
from tidelog.client.visible import Aborted, visible
from tidelog.errors import BrokerError, Disconnected, MalformedBatch, PeerError
from tidelog.record.codec import scan
from tidelog.record.columns import Columns, Row, decode
from tidelog.wire.field import ZERO_UUID
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

MAX_WAIT_MS = 500
MIN_BYTES = 1
MAX_BYTES = 32 << 20
MAX_PARTITION_BYTES = 4 << 20
BY_NAME = 12  # the last version of Fetch that has topics by name


class Fetched(NamedTuple):
    """Batches of one partition. `offset` was asked for; the first batch may begin before it."""

    at: TopicPartition
    offset: int
    next_offset: int
    batches: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    leader_epoch: int  # of the last batch
    aborted: tuple[Aborted, ...] = ()
    topic_id: bytes = ZERO_UUID  # of the topic that they are of: a name may be of another one by now

    def columns(self) -> list[Columns]:
        """Decoded, without control batches and aborted transactions; rows before `offset` are still in."""
        return [decode(run) for run in visible(self.batches, self.aborted)]

    def rows(self) -> Iterator[Row]:
        for columns in self.columns():
            yield from (row for row in columns.rows() if row.offset >= self.offset)


class FetchFlight(NamedTuple):
    """A fetch on its way, and what it asked for."""

    connection: Connection
    sent: Sent[FetchResponse]
    asked: dict[TopicPartition, int]
    topics: dict[bytes, str]

    def topic_id(self, name: str) -> bytes:
        return next((one for one, called in self.topics.items() if called == name), ZERO_UUID)


class Consumer:
    def __init__(
        self,
        cluster: Cluster,
        *,
        max_wait_ms: int = MAX_WAIT_MS,
        min_bytes: int = MIN_BYTES,
        max_bytes: int = MAX_BYTES,
        max_partition_bytes: int = MAX_PARTITION_BYTES,
        read_committed: bool = False,
        prefetch: bool = False,
    ) -> None:
        self.cluster = cluster
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.max_partition_bytes = max_partition_bytes
        self.isolation = READ_COMMITTED if read_committed else READ_UNCOMMITTED
        self.prefetch = prefetch
        self.positions: dict[TopicPartition, int] = {}
        self._flights: dict[int, FetchFlight] = {}
        self._epochs: dict[TopicPartition, int] = {}  # of the last batch that was read
        self._hopeless: dict[TopicPartition, tuple[int, BrokerError]] = {}

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Reads these partitions from these offsets and no others."""
        kept = {at: offset for at, offset in positions.items() if self.positions.get(at) == offset}
        self._epochs = {at: epoch for at, epoch in self._epochs.items() if at in kept}
        self.positions = dict(positions)

    def seek(self, at: TopicPartition, offset: int) -> None:
        self.positions[at] = offset
        self._epochs.pop(at, None)

    def fetch(self) -> list[Fetched]:
        """What has come, after waiting for at most `max_wait_ms`; empty when nothing has.

        A partition that fails for good (its offset is out of range, a batch of it is corrupt) raises, at the next call
        if others had something. Its position stays where it is: seek, or assign without it, and go on.
        """
        if not self.positions:
            return []
        self._raise_hopeless()
        fetched = self.cluster.retry(self._round)
        self.positions.update({one.at: one.next_offset for one in fetched})
        self._epochs.update({one.at: one.leader_epoch for one in fetched})
        if self.prefetch:
            self.ask_ahead()
        return fetched

    def ask_ahead(self) -> None:
        """Sends the next fetch, so that it travels while the caller decodes. A fault is for `fetch`."""
        with suppress(PeerError):
            self._send()

    def _round(self) -> list[Fetched]:
        self._send()
        fetched: list[Fetched] = []
        passing: BrokerError | None = None
        for node_id in self._landed():
            flight = self._flights.pop(node_id)
            answer = flight.connection.receive(flight.sent)
            if answer.error_code:
                raise refused(answer.error_code, f"a fetch from {flight.connection.address}")
            for at, data in self._current(flight, answer):
                if one := self._taken(at, data):
                    fetched.append(one._replace(topic_id=flight.topic_id(at.topic)))
                elif data.error_code:
                    error = refused(data.error_code, f"offset {flight.asked[at]} of {at}")
                    if may_pass(data.error_code):
                        passing = error
                    else:
                        self._hopeless[at] = (flight.asked[at], error)
        if not fetched:
            self._raise_hopeless()
            if passing is not None:
                raise passing
        elif passing is not None:
            self.cluster.forget()
        return fetched

    def _raise_hopeless(self) -> None:
        """What a partition failed with for good, unless it has been sought away from there since."""
        while self._hopeless:
            at, (offset, error) = self._hopeless.popitem()
            if self.positions.get(at) == offset:
                raise error

    def _send(self) -> None:
        """A request to each leader that has none in flight."""
        for node_id, flight in list(self._flights.items()):
            if flight.connection.closed:
                del self._flights[node_id]
        asked = {at for flight in self._flights.values() for at in flight.asked}
        wanted = [at for at in self.positions if at not in asked]
        self._check_truncation(wanted)
        for node_id, led in self.cluster.by_leader(wanted).items():
            if node_id not in self._flights:
                self._flights[node_id] = self._depart(self.cluster.node(node_id), led)

    def _check_truncation(self, wanted: list[TopicPartition]) -> None:
        """Where a partition has another leader epoch than what was read of it last, and once for each such epoch."""
        suspect = {}
        for at in wanted:
            partition = self.cluster.topic(at.topic).partitions.get(at.partition)
            if partition is not None and 0 <= self._epochs.get(at, -1) < partition.leader_epoch:
                suspect[at] = partition.leader_epoch
        if suspect:
            check_truncation(self.cluster, {at: (self.positions[at], self._epochs[at]) for at in suspect})
            self._epochs.update(suspect)

    def _depart(self, leader: Connection, led: list[TopicPartition]) -> FetchFlight:
        topics = {name: self.cluster.topic(name) for name in by_topic(led)}
        by_id = all(topic.has_id for topic in topics.values())
        request = FetchRequest(
            max_wait_ms=self.max_wait_ms,
            min_bytes=self.min_bytes,
            max_bytes=self.max_bytes,
            isolation_level=self.isolation,
        )
        for name, partitions in by_topic(led).items():
            places = [
                FetchPartition(
                    partition=p,
                    current_leader_epoch=topics[name].partitions[p].leader_epoch,
                    fetch_offset=self.positions[TopicPartition(name, p)],
                    partition_max_bytes=self.max_partition_bytes,
                )
                for p in partitions
            ]
            request.topics.append(FetchTopic(topic=name, topic_id=topics[name].topic_id, partitions=places))
        version = leader.version_of(FetchRequest, highest=None if by_id else BY_NAME)
        sent = leader.send(request, FetchResponse, version=version, patience_s=self.max_wait_ms / 1000)
        ids = {topic.topic_id: name for name, topic in topics.items()}
        return FetchFlight(leader, sent, {at: self.positions[at] for at in led}, ids)

    def _landed(self) -> list[int]:
        """The leaders whose answers are here, after waiting for the first of them."""
        if len(self._flights) <= 1:
            return list(self._flights)
        ready = [node_id for node_id, flight in self._flights.items() if flight.connection.ready(flight.sent)]
        if ready:
            return ready
        poller = select.poll()
        by_number = {flight.connection.fileno(): node_id for node_id, flight in self._flights.items()}
        for number in by_number:
            poller.register(number, select.POLLIN)
        events = poller.poll(int(self.cluster.timeout_s * 1000) + self.max_wait_ms)
        if not events:
            for flight in self._flights.values():
                flight.connection.close()
            raise Disconnected(f"no fetch was answered within {self.cluster.timeout_s:g} s; is a broker overloaded?")
        return [by_number[number] for number, _ in events]

    def _current(self, flight: FetchFlight, answer: FetchResponse) -> Iterator[tuple[TopicPartition, PartitionData]]:
        """The answers to positions that still hold."""
        for topic in answer.responses:
            name = topic.topic or flight.topics.get(bytes(topic.topic_id), "")
            for data in topic.partitions:
                at = TopicPartition(name, data.partition_index)
                if at in flight.asked and self.positions.get(at) == flight.asked[at]:
                    yield at, data

    def _taken(self, at: TopicPartition, data: PartitionData) -> Fetched | None:
        records = cast("memoryview | None", data.records)
        if data.error_code or not records:
            return None
        found = scan(records, crc=False)
        if not found.headers:
            raise MalformedBatch(f"{at} at offset {self.positions[at]}: {found.error}; raise max_partition_bytes?")
        aborted = tuple((one.producer_id, one.first_offset) for one in data.aborted_transactions or ())
        return Fetched(
            at,
            self.positions[at],
            max(self.positions[at], found.headers[-1].next_offset),
            records[: found.end],
            data.high_watermark,
            data.last_stable_offset,
            data.log_start_offset,
            found.headers[-1].leader_epoch,
            aborted,
        )


def check_readable(cluster: Cluster, at: TopicPartition) -> None:
    """Refused by the broker where this user may not read. A fetch of nothing: to tell where a topic ends, the broker
    asks for less.
    """
    consumer = Consumer(cluster, max_wait_ms=0)
    consumer.assign({at: list_offsets(cluster, {at: LATEST})[at].offset})
    consumer.fetch()
