"""Commands that come by topic: a thread beside each owner, from where the last owner had answered them.

Rules:
- How far commands are answered is committed in the transaction that answers them (`owning.py`), so none is lost with an
  owner, and one that is decided twice has the same id and the same answer.
- What is not a command is passed over, with a warning: the position moves on.
- A command is decided by the owner of its entity's partition and by nobody else. One that lies in another partition
  (librdkafka's default partitioner is not Java's) is handed on there, in the transaction that moves the position. What
  cannot be handed on is refused: it was handed on before, is too large, or is of entities of several partitions.
- No more than AHEAD_MAX are given to the owner before it has answered: a day's commands may be in the topic.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event, Thread

from tidelog.client.admin import groups
from tidelog.client.backoff import waits
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, list_offsets
from tidelog.errors import TidelogError, UsageError
from tidelog.record.columns import Row
from tidelog.sourcing.command_record import HANDED_ON, decode_command
from tidelog.sourcing.owning import PartitionOwner
from tidelog.sourcing.past_reading import PastReader
from tidelog.sourcing.requests import Joint
from tidelog.sourcing.store_topics import StoreTopics, place_of, size_of

WAIT_MS = 250
AHEAD_MAX, REST_S = 4_000, 0.01

log = logging.getLogger(__name__)


class CommandReader:
    def __init__(self, named: StoreTopics, owner: PartitionOwner, connect: Callable[[], Cluster]) -> None:
        self._named, self._owner, self._connect = named, owner, connect
        self._at = TopicPartition(named.commands, owner.partition)
        self._past = PastReader(named, owner.folding, connect, owner.offer)
        self._position: int | None = None
        self.handed_on = 0
        self.trouble: str | None = None  # which it tries to get past
        self._stopping = Event()
        self._thread = Thread(target=self._run, name=f"store-{named.name}-{owner.partition}-commands", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._past.stop()

    def _run(self) -> None:
        pauses = waits()
        self._owner.ready.wait()  # what was answered is known when elder owners are fenced
        while not self._stopping.is_set() and self._owner.alive:
            try:
                with self._connect() as cluster:
                    self._follow(cluster)
            except TidelogError as error:
                log.warning("store %s: commands of %s wait: %s", self._named.name, self._at, error)
                self.trouble = f"commands of {self._at} wait: {error}"
                self._stopping.wait(next(pauses))

    def _follow(self, cluster: Cluster) -> None:
        begin = list_offsets(cluster, {self._at: EARLIEST})[self._at].offset
        if self._position is None:
            found = groups.committed(cluster, self._named.group).get(self._at)
            self._position = begin if found is None else found.offset
        if self._position < begin:
            log.warning(
                "store %s, %s: commands from offset %d to %d were deleted before they were decided",
                *(self._named.name, self._at, self._position, begin),
            )
            self._position = begin
        consumer = Consumer(cluster, read_committed=True, max_wait_ms=WAIT_MS)
        consumer.assign({self._at: self._position})
        while not self._stopping.is_set() and self._owner.alive:
            for fetched in consumer.fetch():
                for row in fetched.rows():
                    self._wait_for_room()
                    if not self._owner.offer(self._past.passed_on(self._placed(self._joint(row), row))):
                        return
                    self._position = row.offset + 1
            self.trouble = None
            self._owner.looked.set()

    def _wait_for_room(self) -> None:
        while self._owner.read_ahead >= AHEAD_MAX and self._owner.alive and not self._stopping.wait(REST_S):
            pass

    def _joint(self, row: Row) -> Joint:
        try:
            return decode_command(row)
        except UsageError as error:
            log.warning("store %s, %s: %s; it is passed over", self._named.name, self._at, error)
            return Joint((), row.offset + 1)

    def _placed(self, joint: Joint, row: Row) -> Joint:
        """As its entity's owner is to have it, which may be another one."""
        count = self._owner.settings.partitions
        places = {place_of(self._named.commands, request.key, count) for request in joint.requests}
        if places <= {self._at}:
            return joint
        entities = ", ".join(repr(request.entity) for request in joint.requests[:3])
        where = f"{entities} in partition {self._at.partition} of {self._named.commands}"
        if len(places) > 1:
            numbers = ", ".join(str(number) for number in sorted(place.partition for place in places))
            return joint._replace(
                fault=UsageError(
                    f"{where}: its entities are of partitions {numbers}, and what counts together is of one; a store"
                    " with partitions=1 has all entities in one"
                )
            )
        (place,) = places
        record = (row.key, row.value, [*row.headers, (HANDED_ON, b"1")], row.timestamp)
        if (HANDED_ON, b"1") in row.headers or size_of(record) > self._owner.settings.largest.command:
            return joint._replace(
                fault=UsageError(
                    f"{where}: it belongs in partition {place.partition}, and nothing was decided. Give the producer"
                    " the partitioner of Java's clients (librdkafka: partitioner=murmur2_random), or name the partition"
                )
            )
        if not self.handed_on:
            log.warning("store %s: the command of %s belongs in %s: it is handed on", self._named.name, where, place)
        self.handed_on += 1
        return Joint((), joint.position, onward=(place, record))
