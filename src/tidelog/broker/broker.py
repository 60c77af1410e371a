"""The broker without its sockets: many partitions, what is known about them, and who waits for what.

One thread (the server's loop) calls everything here. Decisions are made by pure functions of `topics`, `groups` and
`producer_ids`; this file gives them the state and the time, and `internal` keeps what they decide. A partition's log is
opened on its first use, so that a broker with ten thousand partitions starts as fast as one with ten.

The way of a produced batch: handlers/produce -> Log.append (offset assigned, bytes queued) -> the committer's threads
(written, synced) -> `drain` -> visible: the reply leaves, and fetches that wait are woken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from errno import EDQUOT, ENOSPC
from typing import TYPE_CHECKING

from tidelog.broker import topics as topics_fold
from tidelog.broker.config_changes import broker_values
from tidelog.broker.decision import Decision, Instant
from tidelog.broker.folds import MAKERS, Folds
from tidelog.broker.housekeeping import Housekeeping
from tidelog.broker.internal import InternalTopic, TopicFold
from tidelog.broker.orphans import Orphans
from tidelog.broker.partition import Partition
from tidelog.broker.partitions import Partitions, repair_command
from tidelog.broker.settings.configuring import broker_config
from tidelog.broker.settings.topic_config import TopicConfig
from tidelog.broker.status import Counters, Status
from tidelog.broker.topic_configs import TopicConfigs
from tidelog.broker.topics import (
    ACCESS_TOPIC,
    BROKER_RESOURCE,
    EXCISIONS_TOPIC,
    GROUPS_TOPIC,
    INTERNAL_TOPICS,
    QUEUES_TOPIC,
    STATUS_TOPIC,
    TOPICS_TOPIC,
    TRANSACTIONS_TOPIC,
    Change,
    ConfigsChange,
    Topic,
    TopicChange,
    Topics,
)
from tidelog.broker.waiting import Scheduler
from tidelog.config import BrokerConfig, Given
from tidelog.errors import DataFolderError, OfflineError, StorageError
from tidelog.log.clean_mark import CleanMark
from tidelog.log.commit import Committer
from tidelog.log.files import Files
from tidelog.log.folder import DataFolder
from tidelog.log.log import Log
from tidelog.log.missing import MissingRecords
from tidelog.logger import Logger
from tidelog.wire.error_code import ErrorCode

if TYPE_CHECKING:
    from tidelog.broker.access.shell import Access
    from tidelog.broker.compute_pool import Done, Work
    from tidelog.broker.coordinator import GroupCoordinator
    from tidelog.broker.excision.shell import ExcisionOrders
    from tidelog.broker.groups.state import Groups
    from tidelog.broker.overload.shell import Overload
    from tidelog.broker.queue_coordinator import QueueCoordinator
    from tidelog.broker.transaction_coordinator import TransactionCoordinator

LATER_S = 0.2

ACKS = (-1, 0, 1)
NO_ROOM = (ENOSPC, EDQUOT)


class Broker:
    def __init__(
        self,
        config: BrokerConfig,
        scheduler: Scheduler,
        logger: Logger,
        commit_ready: Callable[[], None],
        on_fatal: Callable[[Exception], None],
        files: Files,
        committer: Committer | None = None,
    ) -> None:
        """`commit_ready` is called by other threads when there is something to drain; `on_fatal` ends the process.

        `committer` is for tests that run its rounds themselves, by a clock of their own.
        """
        self.config = config
        self.scheduler = scheduler
        self.logger = logger
        self._files = files
        self._folder = DataFolder(config.texts("log.dirs")[0], files)
        self._on_fatal = on_fatal
        self._committer = committer or Committer(self._files, commit_ready)
        self._partitions = Partitions(self._folder, files, self._committer, logger)
        self._orphans = Orphans(self._folder, files, logger, self._committer.background.submit)
        self._partitions.on_unfinished = lambda partition: self.transactions.end_hanging(partition)
        self._configs = TopicConfigs()
        fold = TopicFold(topics_fold.fresh, topics_fold.apply, topics_fold.to_records)
        self._topics = InternalTopic(TOPICS_TOPIC.name, fold, self._lost)
        self.folds = Folds(self, self._load_own, self._lost, on_fatal)
        self.overload_made: Overload | None = None
        self.housekeeping = Housekeeping(self)
        self.counters = Counters()
        self.commits = self._committer.commits
        self.beside: Callable[[Work, Done], None] = scheduler.in_thread  # for arithmetic; the server has other threads
        self.status = Status(self)

    # What handlers use ----------------------------------------------------------------------------------------------

    @property
    def topics(self) -> Topics:
        state: Topics = self._topics.state
        return state

    @property
    def groups(self) -> Groups:
        return self.coordinator.state

    @property
    def coordinator(self) -> GroupCoordinator:
        """Groups are folded on first use, or soon after the start: the first ack does not wait for them."""
        found: GroupCoordinator = self.folds.of(GROUPS_TOPIC)
        return found

    @property
    def transactions(self) -> TransactionCoordinator:
        found: TransactionCoordinator = self.folds.of(TRANSACTIONS_TOPIC)
        return found

    @property
    def queues(self) -> QueueCoordinator:
        """Share groups."""
        found: QueueCoordinator = self.folds.of(QUEUES_TOPIC)
        return found

    @property
    def has_queues(self) -> bool:
        """Whether there may be share groups: most brokers have none, and pay nothing for them."""
        if QUEUES_TOPIC in self.folds:
            return True
        partition = self._partitions.find(QUEUES_TOPIC.name, 0)
        return partition is not None and partition.log.end_offset > 0

    def is_share_group(self, group_id: str) -> bool:
        return self.has_queues and group_id in self.queues.state.groups

    def topics_shared_by(self, group_id: str) -> set[str]:
        """Those that a share group has queues of, or members for."""
        if not self.has_queues:
            return set()
        state = self.queues.state
        asked = {name for member in state.members(group_id).values() for name in member.topics}
        return asked | {queue.topic for queue in state.queues.get(group_id, {}).values()}

    @property
    def access(self) -> Access:
        """Users, rules and quotas."""
        found: Access = self.folds.of(ACCESS_TOPIC)
        return found

    @property
    def excisions(self) -> ExcisionOrders:
        """What is to be taken out of files, and what was."""
        found: ExcisionOrders = self.folds.of(EXCISIONS_TOPIC)
        return found

    @property
    def overload(self) -> Overload:
        """Of topics with a policy; made when the first of them is written."""
        if self.overload_made is None:
            from tidelog.broker.overload.shell import Overload

            self.overload_made = Overload(self)
        return self.overload_made

    def rights_changed(self) -> None:
        """Who may know of which topics is not what it was."""
        if GROUPS_TOPIC in self.folds:
            self.coordinator.rights_changed()
        if QUEUES_TOPIC in self.folds:
            self.queues.rights_changed()

    def connection_ended(self, connection: object) -> None:
        if QUEUES_TOPIC in self.folds:
            self.queues.connection_ended(connection)

    @property
    def guards_everybody(self) -> bool:
        """Whether rules or quotas look at clients of listeners without authentication too."""
        return ACCESS_TOPIC in self.folds and self.access.guards_everybody

    def now(self) -> Instant:
        return Instant(time.time_ns() // 1_000_000, time.monotonic_ns() // 1_000_000)

    def partition(self, name: str | None, index: int) -> Partition | None:
        """The partition, with its offsets; None if there is no such one.

        Its first use after a crash waits for the disk. StorageError when its folder cannot be read.
        """
        partition = self.find_partition(name, index)
        if partition is not None and not partition.log.known:
            partition.log.load()
        return partition

    def find_partition(self, name: str | None, index: int) -> Partition | None:
        """The same without waiting: its log may have to be loaded before it is `known`."""
        partition = self._partitions.find(name, index)
        if partition is None and name is not None:
            topic = self.topics.by_name.get(name)
            if topic is not None and 0 <= index < topic.partitions:
                partition = self._open(topic, index)
        return partition

    def is_set_aside(self, topic: str) -> bool:
        """Whether there are records of a topic that the log of topics has lost."""
        return self._orphans.is_set_aside(topic)

    def leader_epoch(self, topic: Topic, index: int) -> int | None:
        """Of a partition that is well, if it is known without looking at the disk."""
        return self._partitions.leader_epoch(topic, index)

    def open_partition(self, name: str, index: int) -> Partition | None:
        """The partition if it is in use."""
        return self._partitions.find(name, index)

    def open_partitions(self) -> Iterator[Partition]:
        return iter(self._partitions)

    def partition_names(self) -> Iterator[tuple[str, int]]:
        """Every partition of every topic that there is now, open or not."""
        for topic in list(self.topics.by_name.values()):
            yield from ((topic.name, index) for index in range(topic.partitions))

    def partition_marks(self) -> Mapping[str, CleanMark | None]:
        """Where each partition ends now, by the name of its folder; None: it must be loaded to know."""
        return self._partitions.marks()

    @property
    def files(self) -> Files:
        return self._files

    @property
    def cluster_id(self) -> str:
        """Given once, at the first start, so that clients know whether they still talk to the same cluster."""
        return self._folder.cluster_id

    @property
    def data_folder(self) -> str:
        return self._folder.path

    def remove_left_overs(self) -> None:
        """Of backups that were killed and of deleted partitions. Any thread; waits for the disk."""
        self._folder.remove_left_overs()

    def free_bytes(self) -> int:
        return self._folder.free_bytes()

    def commit(self, internal_topic: str, decision: Decision) -> None:
        """Appends what was decided, applies it, and lets the replies go when it is synced."""
        now = self.now()
        if internal_topic == TOPICS_TOPIC.name:
            self._follow(self._topics.commit(decision, now.wall_ms))
        elif internal_topic == ACCESS_TOPIC.name:
            self.access.commit(decision)
        else:
            assert internal_topic == GROUPS_TOPIC.name, "transactions are decided in their coordinator"
            self.coordinator.commit(decision)

    def undecided(self) -> Log | None:
        """The log of decisions about topics, while it has some that are applied and not yet synced."""
        log = self._topics.log
        return log if log.high_watermark < log.end_offset else None

    def refuses_produce(self, name: str, acks: int) -> tuple[int, str] | None:
        """Why a client may not write to a topic, as an error code and a sentence."""
        if acks not in ACKS:
            return ErrorCode.INVALID_REQUIRED_ACKS, f"acks={acks} is not one of 0, 1 and -1 (all)"
        if self.topics.by_name[name].own and name != STATUS_TOPIC.name:
            return ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is written by the broker alone"
        return None

    # Its life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._folder.open()
        try:
            self._folder.refuse_half_restored()
            self._partitions.begin()
            self._committer.start()
            topics = self._load_own(TOPICS_TOPIC)
            self._topics.recover(topics, self._folder.path, self._files, self._orphans.note)
            for name in self._orphans.begin(self.topics, topics, self._topics.ahead):
                self._partitions.forget(name)
            self._partitions.forget_ends(self.topics.by_id)
            uncleanly = self._partitions.left_uncleanly
            for own in (one for one in INTERNAL_TOPICS if one.name in MAKERS):
                if self._partitions.is_there(own, 0):
                    self._load_own(own)  # what was decided must be there before a client can ask for it
            if self.topics.configs:
                self._follow_settings()
            if uncleanly:
                # What a clean stop has left is whole. After any other one, damage is to stop the start, not a client.
                for own in self.folds.soon():
                    self.folds.make(own)
            if self.config.text("authorizer.class.name") or self._partitions.find(ACCESS_TOPIC.name, 0) is not None:
                self.folds.of(ACCESS_TOPIC)  # before the first client: a rule that is not known yet cannot refuse
        except BaseException:
            self.stop(clean=False)
            raise
        self.scheduler.call_later(LATER_S, self._begin_later)
        self.housekeeping.begin()
        self.status.begin()

    def _load_own(self, topic: Topic) -> Log:
        partition = self._partitions.find(topic.name, 0) or self._open(topic, 0)
        try:
            partition.log.load()
        except MissingRecords as error:
            command = repair_command(partition.log.folder, topic.name, 0)
            way_on = f"run: {command}, after which the broker starts and has forgotten what was decided there"
            if topic is TOPICS_TOPIC:
                way_on = (
                    f"run: tidelog repair adopt --data {self._folder.path}, which rebuilds that log from its snapshot"
                    " and from what each folder says of its topic"
                )
            raise DataFolderError(f"{topic.name}: {error}, or {way_on}") from error
        return partition.log

    def keep_ends(self) -> None:
        """Once a second: where partitions end now is written down."""
        self._partitions.ends.turn(self.scheduler.in_thread)

    def _begin_later(self) -> None:
        """What can wait until the first acks are out."""
        for topic in self.folds.soon():
            self.folds.of(topic)
        found: list[tuple[bytes, int]] = []

        def look() -> None:
            found.extend(self._folder.partitions())
            self._folder.remove_left_overs()

        def clear(_result: object, _error: BaseException | None) -> None:
            self._orphans.clear(found, self.topics, self._topics.log, self._partitions.forget)

        self.scheduler.in_thread(look, clear)

    def with_given(self, given: Mapping[str, Given]) -> BrokerConfig:
        """The settings as they would be; ConfigError says what is wrong with them."""
        return broker_config(given, broker_values(self.topics, self.config))

    def reload(self, given: Mapping[str, Given]) -> None:
        self.config = self.with_given(given)
        self._follow_settings()
        self.rights_changed()

    def drain(self) -> None:
        """Takes over what the committer has finished: partitions grow, replies leave, fetches wake.

        A fault here, or in the committer's threads, leaves nobody who knows what is on disk: the process must end.
        """
        try:
            self._committer.drain()
        except Exception as error:
            self._on_fatal(error)

    def answer_waiting(self) -> None:
        """Before a stop: every fetch that waits gets what there is, every member of a group is told to try again."""
        for partition in self._partitions:
            for waiter in list(partition.waiters):
                waiter.expire()
        for folded in self.folds:
            folded.answer_waiting()

    def stop(self, clean: bool = True) -> bool:
        """Syncs everything. `clean` False after a fault: then the next start must look at every partition again.

        So it must when the folder cannot be marked, on a full disk say; that is told, and False comes back.
        """
        try:
            self._committer.stop()
            return clean and self._leave_clean()
        finally:
            self._folder.close()

    def _leave_clean(self) -> bool:
        try:
            for internal in self.internal_topics():
                internal.close()
            self._partitions.leave()
        except (OSError, StorageError) as error:
            # What was acked from memory is in the page cache, which a full disk leaves alone and a failed one may not.
            kept = "acked" if isinstance(error, OSError) and error.errno in NO_ROOM else "synced"
            self.logger.error(
                "stopped, but the data folder was not marked clean",
                folder=self._folder.path,
                error=error,
                next=f"nothing {kept} is lost; the next start recovers every partition",
            )
            return False
        return True

    def internal_topics(self) -> list[InternalTopic]:
        return [self._topics, *(folded.internal for folded in self.folds)]

    def _lost(self, error: StorageError) -> None:
        """Decisions that were applied could not be written. Nobody was told of them: go back to what the disk has.

        After a failed sync nobody knows what the disk has. Then only a restart, which reads it again, can tell.
        """
        self.logger.error("decisions lost", error=error)
        if isinstance(error, OfflineError):
            self._on_fatal(error)
            return
        self._topics.refold()
        for folded in self.folds:
            folded.refold()
        self._partitions.keep_only(self.topics.by_id)
        self._follow_settings()

    # Partitions -----------------------------------------------------------------------------------------------------

    def _open(self, topic: Topic, index: int) -> Partition:
        undecided = None if topic.own else self.undecided()
        return self._partitions.open(topic, index, self._config(topic), undecided)

    def _config(self, topic: Topic) -> TopicConfig:
        return self._configs.of(topic, self.topics, self.config)

    def _follow(self, changes: list[Change]) -> None:
        """What a decision about topics and settings means for open partitions and for groups."""
        topics = []
        for change in changes:
            self._orphans.note(change)
            if isinstance(change, TopicChange):
                if change.before is not None:
                    self._reconfigure(change.before, change.after)
                topics.append((change.after or change.before).name)  # type: ignore[union-attr]
            elif isinstance(change, ConfigsChange) and change.resource == BROKER_RESOURCE:
                self._follow_settings()
        gone = any(name not in self.topics.by_name for name in topics)
        # Groups that are not folded yet will see topics as they are then, but not that one was made anew.
        if topics and (gone or GROUPS_TOPIC in self.folds):
            self.coordinator.topics_changed(self.topics, topics)
        if topics and (QUEUES_TOPIC in self.folds or (gone and self.has_queues)):
            self.queues.topics_changed()

    def _reconfigure(self, before: Topic, after: Topic | None) -> None:
        self._configs.forget(before.name)
        for index in range(before.partitions):
            if after is None:
                self._partitions.drop(before, index, self._topics.log)
                continue
            partition = self._partitions.find(before.name, index)
            if partition is not None:
                partition.configure(self._config(after))
        if after is not None and after.configs != before.configs:
            self._partitions.identify(after)

    def _follow_settings(self) -> None:
        self.config = broker_config(self.config.given, broker_values(self.topics, self.config))
        self._configs.clear()
        for folded in self.folds:
            folded.settings_changed()
        for partition in self._partitions:
            partition.configure(self._config(self.topics.by_name[partition.topic]))
