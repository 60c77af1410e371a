"""Commands that come by topic: a thread beside each owner, from where the last owner had answered them.

Rules:
- How far commands are answered is committed in the transaction that answers them (`owning.py`), so none is lost with an
  owner, and one that is decided twice has the same id and the same answer.
- What is not a command is passed over, with a warning: the position moves on.
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
from tidelog.sourcing.command_record import decode_command
from tidelog.sourcing.owning import PartitionOwner
from tidelog.sourcing.past_reading import PastReader
from tidelog.sourcing.requests import Joint
from tidelog.sourcing.store_topics import StoreTopics

WAIT_MS = 250
AHEAD_MAX, REST_S = 4_000, 0.01

log = logging.getLogger(__name__)


class CommandReader:
    def __init__(self, named: StoreTopics, owner: PartitionOwner, connect: Callable[[], Cluster]) -> None:
        self._named, self._owner, self._connect = named, owner, connect
        self._at = TopicPartition(named.commands, owner.partition)
        self._past = PastReader(named, owner.folding, connect, owner.offer)
        self._position: int | None = None
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
                self._stopping.wait(next(pauses))

    def _follow(self, cluster: Cluster) -> None:
        if self._position is None:
            found = groups.committed(cluster, self._named.group).get(self._at)
            start = list_offsets(cluster, {self._at: EARLIEST})[self._at].offset
            self._position = start if found is None else max(start, found.offset)
        consumer = Consumer(cluster, read_committed=True, max_wait_ms=WAIT_MS)
        consumer.assign({self._at: self._position})
        while not self._stopping.is_set() and self._owner.alive:
            for fetched in consumer.fetch():
                for row in fetched.rows():
                    self._wait_for_room()
                    if not self._owner.offer(self._past.passed_on(self._joint(row))):
                        return
                    self._position = row.offset + 1

    def _wait_for_room(self) -> None:
        while self._owner.read_ahead >= AHEAD_MAX and self._owner.alive and not self._stopping.wait(REST_S):
            pass

    def _joint(self, row: Row) -> Joint:
        try:
            return decode_command(row)
        except UsageError as error:
            log.warning("store %s, %s: %s; it is passed over", self._named.name, self._at, error)
            return Joint((), row.offset + 1)
