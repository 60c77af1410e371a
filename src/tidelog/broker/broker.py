"""The broker without its sockets: many partitions, what is known about them, and who waits for what.

One thread (the server's loop) calls everything here. Decisions are made by pure functions of `topics`, `groups` and
`producer_ids`; this file gives them the state and the time, and `internal` keeps what they decide. A partition's log is
opened on its first use, so that a broker with ten thousand partitions starts as fast as one with ten.

The way of a produced batch: handlers/produce -> Log.append (offset assigned, bytes queued) -> the committer's threads
(written, synced) -> `drain` -> visible: the reply leaves, and fetches that wait are woken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.broker import topics as topics_fold
from tidelog.broker.config_changes import broker_values
from tidelog.broker.decision import Decision, Instant
from tidelog.broker.housekeeping import Housekeeping
from tidelog.broker.internal import Fold, InternalTopic
from tidelog.broker.logger import Logger
from tidelog.broker.partition import Partition
from tidelog.broker.settings.configuring import broker_config
from tidelog.broker.settings.topic_config import TopicConfig, topic_config
from tidelog.broker.topics import (
    BROKER_RESOURCE,
    GROUPS_TOPIC,
    TOPICS_TOPIC,
    Change,
    ConfigsChange,
    Topic,
    TopicChange,
    Topics,
)
from tidelog.broker.waiting import Scheduler
from tidelog.config import BrokerConfig
from tidelog.errors import OfflineError, StorageError
from tidelog.log.commit import Committer
from tidelog.log.files import Files, read_file, replace_file
from tidelog.log.log import Log
from tidelog.log.settings import FOREVER, LogSettings
from tidelog.wire.error_code import ErrorCode

if TYPE_CHECKING:
    from tidelog.broker.coordinator import Coordinator
    from tidelog.broker.groups.state import Groups

GROUPS_AFTER_S = 0.2
CLUSTER_ID_FILE = "cluster.id"

# Whatever a broker is told about its topics, its own are kept on disk and cut by nobody but `internal`.
INTERNAL_CONFIG = TopicConfig(
    LogSettings(segment_bytes=64 << 20, retention_ms=FOREVER), 1 << 30, FOREVER, FOREVER, compact=False
)
ACKS = (-1, 0, 1)


class Broker:
    def __init__(
        self,
        config: BrokerConfig,
        scheduler: Scheduler,
        logger: Logger,
        commit_ready: Callable[[], None],
        on_fatal: Callable[[StorageError], None],
        files: Files,
    ) -> None:
        """`commit_ready` is called by other threads when there is something to drain; `on_fatal` ends the process."""
        self.config = config
        self.scheduler = scheduler
        self.logger = logger
        self._files = files
        self._data = config.texts("log.dirs")[0]
        self._on_fatal = on_fatal
        self._committer = Committer(self._files, commit_ready)
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._topic_configs: dict[str, TopicConfig] = {}
        fold = Fold(topics_fold.fresh, topics_fold.apply, topics_fold.to_records)
        self._topics = InternalTopic(TOPICS_TOPIC.name, fold, self._lost)
        self._coordinator: Coordinator | None = None
        self.cluster_id = ""
        self.housekeeping = Housekeeping(self)

    # What handlers use ----------------------------------------------------------------------------------------------

    @property
    def topics(self) -> Topics:
        state: Topics = self._topics.state
        return state

    @property
    def groups(self) -> Groups:
        return self.coordinator.state

    @property
    def coordinator(self) -> Coordinator:
        """Groups are folded on first use, or soon after the start: the first ack does not wait for them."""
        if self._coordinator is None:
            from tidelog.broker.coordinator import Coordinator

            coordinator = Coordinator(self.scheduler, self.now, self._lost)
            # A client may have opened it by asking for its metadata: one folder has one log.
            partition = self.partition(GROUPS_TOPIC.name, 0)
            assert partition is not None
            coordinator.start(partition.log, self._data, self._files, self.config.values, self.topics.by_name)
            self._coordinator = coordinator
        return self._coordinator

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

    def open_partition(self, name: str, index: int) -> Partition | None:
        """The partition if it is in use."""
        return self._partitions.get((name, index))

    def partition_names(self) -> Iterator[tuple[str, int]]:
        """Every partition of every topic that there is now, open or not."""
        for topic in list(self.topics.by_name.values()):
            yield from ((topic.name, index) for index in range(topic.partitions))

    def free_bytes(self) -> int:
        return self._files.free_bytes(self._data)

    def commit(self, internal_topic: str, decision: Decision) -> None:
        """Appends what was decided, applies it, and lets the replies go when it is synced."""
        now = self.now()
        if internal_topic == TOPICS_TOPIC.name:
            self._follow(self._topics.commit(decision, now.wall_ms))
        else:
            self.coordinator.commit(decision)

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
        self.cluster_id = self._find_cluster_id()
        self._committer.start()
        self._topics.recover(self._open(TOPICS_TOPIC, 0).log, self._data, self._files)
        if self.topics.configs:
            self._follow_settings()
        self.scheduler.call_later(GROUPS_AFTER_S, self._begin_groups)
        self.housekeeping.begin()

    def _begin_groups(self) -> None:
        _ = self.coordinator

    def _find_cluster_id(self) -> str:
        """Given once, at the first start, so that clients know whether they still talk to the same cluster."""
        path = f"{self._data}/{CLUSTER_ID_FILE}"
        kept = read_file(self._files, path)
        if kept is None:
            from base64 import urlsafe_b64encode
            from os import urandom

            kept = urlsafe_b64encode(urandom(16))[:22]
            # The folder is new, or was when a first start was cut short: its own name must last as well.
            self._files.sync_folder(str(Path(self._data).parent))
            replace_file(self._files, path, kept)
        return kept.decode()

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
        for internal in self.internal_topics():
            internal.close()

    def internal_topics(self) -> list[InternalTopic]:
        return [self._topics] + ([self._coordinator.internal] if self._coordinator is not None else [])

    def _lost(self, error: StorageError) -> None:
        """Decisions that were applied could not be written. Nobody was told of them: go back to what the disk has.

        After a failed sync nobody knows what the disk has. Then only a restart, which reads it again, can tell.
        """
        self.logger.error("decisions lost", error=error)
        if isinstance(error, OfflineError):
            self._on_fatal(error)
            return
        self._topics.refold()
        if self._coordinator is not None:
            self._coordinator.refold(self.config.values, self.topics.by_name)
        for at in [at for at in self._partitions if at[0] not in self.topics.by_name]:
            self._partitions.pop(at).drop()

    # Partitions -----------------------------------------------------------------------------------------------------

    def _folder(self, topic: Topic, index: int) -> str:
        return f"{self._data}/{topic.topic_id.hex()}-{index}"

    def _open(self, topic: Topic, index: int) -> Partition:
        config = self._topic_config(topic)
        log = Log.open(self._folder(topic, index), self._files, config.log, self._committer)
        partition = Partition(topic.name, topic.topic_id, index, log, config)
        self._partitions[topic.name, index] = partition
        return partition

    def _topic_config(self, topic: Topic) -> TopicConfig:
        if topic.internal:
            return INTERNAL_CONFIG
        config = self._topic_configs.get(topic.name)
        if config is None:
            config = topic_config(topic.configs, broker_values(self.topics, self.config))
            self._topic_configs[topic.name] = config
        return config

    def _follow(self, changes: list[Change]) -> None:
        """What a decision about topics and settings means for open partitions and for groups."""
        topics = []
        for change in changes:
            if isinstance(change, TopicChange):
                self._follow_topic(change.before, change.after)
                topics.append((change.after or change.before).name)  # type: ignore[union-attr]
            elif isinstance(change, ConfigsChange) and change.resource == BROKER_RESOURCE:
                self._follow_settings()
        if topics and self._coordinator is not None:  # groups that are not folded yet will see topics as they are then
            self._coordinator.topics_changed(self.topics.by_name, topics)

    def _follow_topic(self, before: Topic | None, after: Topic | None) -> None:
        if before is None:
            return
        self._topic_configs.pop(before.name, None)
        for index in range(before.partitions):
            if after is None:
                self._drop(before, index)
            elif (before.name, index) in self._partitions:
                self._partitions[before.name, index].configure(self._topic_config(after))

    def _drop(self, topic: Topic, index: int) -> None:
        """Its folder goes when the topic's end is on disk: a power cut before that must find the topic whole."""
        partition = self._partitions.pop((topic.name, index), None) or self._open(topic, index)
        self._partitions.pop((topic.name, index), None)
        partition.drop()

        def destroy(error: StorageError | None) -> None:
            if error is None:
                partition.log.destroy()

        self._topics.log.when_visible(self._topics.log.end_offset, destroy)

    def _follow_settings(self) -> None:
        self.config = broker_config(self.config.given, broker_values(self.topics, self.config))
        self._topic_configs.clear()
        for partition in self._partitions.values():
            partition.configure(self._topic_config(self.topics.by_name[partition.topic]))
