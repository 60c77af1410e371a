"""The broker without its sockets: many partitions, what is known about them, and who waits for what.

One thread (the server's loop) calls everything here. Decisions are made by pure functions of `topics`, `groups` and
`producer_ids`; this file gives them the state and the time, and `internal` keeps what they decide. A partition's log is
opened on its first use, so that a broker with ten thousand partitions starts as fast as one with ten.

The way of a produced batch: handlers/produce -> Log.append (offset assigned, bytes queued) -> the committer's threads
(written, synced) -> `drain` -> visible: the reply leaves, and fetches that wait are woken.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tidelog.broker import topics as topics_fold
from tidelog.broker.decision import Decision, Instant
from tidelog.broker.groups import state as groups_fold
from tidelog.broker.groups.clock import awaken, next_deadline, tick, topics_changed
from tidelog.broker.groups.settings import settings_from
from tidelog.broker.groups.state import Groups
from tidelog.broker.internal import Fold, InternalTopic
from tidelog.broker.logger import Logger
from tidelog.broker.partition import Partition
from tidelog.broker.topics import GROUPS_TOPIC, TOPICS_TOPIC, Change, Topic, TopicChange, Topics
from tidelog.broker.waiting import Scheduler, Timer
from tidelog.config import BrokerConfig
from tidelog.log.commit import Committer
from tidelog.log.files import RealFiles
from tidelog.log.log import Log
from tidelog.log.settings import LogSettings
from tidelog.wire.error_code import ErrorCode

HOUSEKEEPING_S = 1.0
ACKS = (-1, 0, 1)


class Broker:
    def __init__(
        self, config: BrokerConfig, scheduler: Scheduler, commit_ready: Callable[[], None], logger: Logger
    ) -> None:
        self.config = config
        self.scheduler = scheduler
        self.logger = logger
        self._files = RealFiles()
        self._data = config.texts("log.dirs")[0]
        self._committer = Committer(self._files, commit_ready)
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._topics = InternalTopic(
            TOPICS_TOPIC.name, Fold(topics_fold.fresh, topics_fold.apply, topics_fold.to_records)
        )
        self._groups = InternalTopic(
            GROUPS_TOPIC.name, Fold(groups_fold.fresh, groups_fold.apply, groups_fold.to_records)
        )
        self._group_timer: Timer | None = None
        self._group_deadline: int | None = None

    # What handlers use ----------------------------------------------------------------------------------------------

    @property
    def topics(self) -> Topics:
        state: Topics = self._topics.state
        return state

    @property
    def groups(self) -> Groups:
        state: Groups = self._groups.state
        return state

    def now(self) -> Instant:
        return Instant(time.time_ns() // 1_000_000, time.monotonic_ns() // 1_000_000)

    def partition(self, name: str | None, index: int) -> Partition | None:
        """The partition, opened if it was not; None if there is no such one."""
        partition = self._partitions.get((name, index))  # type: ignore[arg-type]
        if partition is None and name is not None:
            topic = self.topics.by_name.get(name)
            if topic is not None and 0 <= index < topic.partitions:
                partition = self._open(topic, index)
        return partition

    def commit(self, internal_topic: str, decision: Decision) -> None:
        """Appends what was decided, applies it, and lets the replies go when it is synced."""
        now = self.now()
        if internal_topic == TOPICS_TOPIC.name:
            self._follow(self._topics.commit(decision, now.wall_ms))
        else:
            self._groups.commit(decision, now.wall_ms)
            self._watch_groups()

    def refuses_produce(self, name: str, acks: int, transactional_id: str | None) -> tuple[int, str] | None:
        """Why a client may not write to a topic, as an error code and a sentence."""
        if acks not in ACKS:
            return ErrorCode.INVALID_REQUIRED_ACKS, f"acks={acks} is not one of 0, 1 and -1 (all)"
        if self.topics.by_name[name].internal:
            return ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is written by the broker alone"
        return None

    # Its life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._files.make_folder(self._data)
        self._committer.start()
        for internal, topic in ((self._topics, TOPICS_TOPIC), (self._groups, GROUPS_TOPIC)):
            partition = self._open(topic, 0)
            internal.recover(partition.log, self._data, self._files)
        now = self.now()
        settings = settings_from(self.config.values)
        self._groups.commit(awaken(self.groups, settings, self.topics.by_name, now), now.wall_ms)
        self._watch_groups()
        self.scheduler.call_later(HOUSEKEEPING_S, self._keep_house)

    def drain(self) -> None:
        """Takes over what the committer has finished: partitions grow, replies leave, fetches wake."""
        self._committer.drain()

    def answer_waiting(self) -> None:
        """Before a stop: every fetch that waits gets what there is."""
        for partition in self._partitions.values():
            for waiter in list(partition.waiters):
                waiter.expire()

    def stop(self) -> None:
        self._committer.stop()
        for internal in (self._topics, self._groups):
            internal.close()

    # Partitions -----------------------------------------------------------------------------------------------------

    def _folder(self, topic: Topic, index: int) -> str:
        return f"{self._data}/{topic.topic_id.hex()}-{index}"

    def _open(self, topic: Topic, index: int) -> Partition:
        settings = LogSettings()
        log = Log.open(self._folder(topic, index), self._files, settings, self._committer)
        partition = Partition(topic.name, topic.topic_id, index, log, 1 << 20)
        self._partitions[topic.name, index] = partition
        return partition

    def _follow(self, changes: list[Change]) -> None:
        """What a decision about topics means for open partitions and for groups."""
        changed = []
        for change in changes:
            if isinstance(change, TopicChange):
                topic = change.after or change.before
                assert topic is not None
                changed.append(topic.name)
                if change.before is not None and (
                    change.after is None or change.after.topic_id != change.before.topic_id
                ):
                    self._drop(change.before)
        if changed:
            now = self.now()
            self._groups.commit(topics_changed(self.groups, self.topics.by_name, changed, now), now.wall_ms)
            self._watch_groups()

    def _drop(self, topic: Topic) -> None:
        for index in range(topic.partitions):
            partition = self._partitions.pop((topic.name, index), None)
            if partition is not None:
                partition.wake()

    # Time -----------------------------------------------------------------------------------------------------------

    def _watch_groups(self) -> None:
        deadline = next_deadline(self.groups)
        if deadline == self._group_deadline:
            return
        if self._group_timer is not None:
            self._group_timer.cancel()
        self._group_deadline = deadline
        if deadline is not None:
            delay_ms = max(0, deadline - self.now().monotonic_ms)
            self._group_timer = self.scheduler.call_later(delay_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._group_deadline = self._group_timer = None
        now = self.now()
        self._groups.commit(tick(self.groups, now), now.wall_ms)
        self._watch_groups()

    def _keep_house(self) -> None:
        for internal in (self._topics, self._groups):
            if internal.snapshot_due():
                internal.snapshot(self.scheduler.in_thread)
        self.scheduler.call_later(HOUSEKEEPING_S, self._keep_house)
