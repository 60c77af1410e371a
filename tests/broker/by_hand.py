"""A broker without sockets and threads: the test runs the committer's rounds, by a clock that it moves itself.

`kill` leaves the folder as a `kill -9` does: what was written is there, nothing is closed. A start that is refused
raises. What the broker says is in `lines`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import StringIO
from pathlib import Path

from log.partition import UnsyncedFiles
from tidelog.broker.broker import LATER_S, Broker
from tidelog.broker.config_changes import SET, Alteration, Operation, decide_alter
from tidelog.broker.decision import Decision, Instant
from tidelog.broker.groups.commits import decide_commit
from tidelog.broker.settings.configuring import load_broker_config
from tidelog.broker.topic_changes import Creation, Deletion, decide_create, decide_delete
from tidelog.broker.topics import GROUPS_TOPIC, TOPIC_RESOURCE, TOPICS_TOPIC, random_id
from tidelog.log.commit import Committer
from tidelog.log.files import Files
from tidelog.log.idling import TURN_S
from tidelog.logger import Logger
from tidelog.record.codec import check
from tidelog.record.columns import decode, encode
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

NOW_MS = 1_700_000_000_000


class Rounds(Committer):
    def start(self) -> None:
        """The test is its threads."""


class Later:
    """What the broker wants done later; `LATER_S` after the start is the only thing of it that is ever due."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def call_later(self, delay_s: float, action: Callable[[], None]) -> Later:
        if delay_s == LATER_S:
            self.due.append(action)
        return self

    def in_thread(self, work: Callable[[], object], done: Callable[[object, BaseException | None], None]) -> None:
        done(work(), None)

    def cancel(self) -> None:
        self.due.clear()


class Answer:
    def __init__(self) -> None:
        self.replies: list[object] = []

    def reply(self, reply: object) -> None:
        self.replies.append(reply)

    def drop(self) -> None:
        self.replies.append(None)


class ByHand:
    def __init__(self, data: Path, files: Files | None = None) -> None:
        self.data = data
        self.clock = 100.0
        self.lines = StringIO()
        self.files = files or UnsyncedFiles()
        self._later = Later()
        self.committer = Rounds(self.files, lambda: None, threads=False, clock=lambda: self.clock)
        config = load_broker_config({"log.dirs": str(data)})
        self.broker = Broker(
            config, self._later, Logger(self.lines), lambda: None, self._fatal, self.files, self.committer
        )
        self.broker.now = self.now  # type: ignore[method-assign]

    def now(self) -> Instant:
        return Instant(NOW_MS + int(self.clock * 1000), int(self.clock * 1000))

    def _fatal(self, error: Exception) -> None:
        raise error

    def start(self) -> ByHand:
        """With all that a start does, also a moment later."""
        self.broker.start()
        for action in self._later.due:
            action()
        self.committer.settle()
        return self

    def stop(self) -> None:
        assert self.broker.stop()

    def kill(self) -> None:
        self.broker._folder.close()

    def rest(self, seconds: float = 3 * TURN_S) -> None:
        """Nobody writes for so long."""
        for _ in range(int(seconds / TURN_S)):
            self.clock += TURN_S
            self.committer.look_for_idle()
            self.committer.settle()
            self.broker._partitions.ends.turn(self._later.in_thread)

    # What clients do --------------------------------------------------------------------------------------------------

    def create(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        creation = Creation(topic, partitions, 1, configs=tuple((configs or {}).items()))
        broker = self.broker
        decided = decide_create(broker.topics, [creation], broker.config, random_id, broker.now())
        assert decided.outcomes[0].fault is None, decided.outcomes
        self.decide(TOPICS_TOPIC.name, Decision(decided.records, []))

    def delete(self, topic: str) -> None:
        decided = decide_delete(self.broker.topics, [Deletion(topic)], self.broker.config)
        self.decide(TOPICS_TOPIC.name, Decision(decided.records, []))

    def alter(self, topic: str, key: str, value: str) -> None:
        alteration = Alteration(TOPIC_RESOURCE, topic, [Operation(key, SET, value)])
        decided = decide_alter(self.broker.topics, [alteration], self.broker.config)
        self.decide(TOPICS_TOPIC.name, Decision(decided.records, []))

    def decide(self, topic: str, decision: Decision) -> None:
        self.broker.commit(topic, decision)
        self.committer.settle()

    def commit_offset(self, group: str, topic: str, offset: int) -> None:
        one = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[one])])
        answer = Answer()
        self.decide(GROUPS_TOPIC.name, decide_commit(self.broker.groups, request, 8, answer, self.broker.now()))
        assert answer.replies[0].topics[0].partitions[0].error_code == 0

    def committed(self, group: str, topic: str) -> int | None:
        found = self.broker.groups.offsets.get(group, {}).get((topic, 0))
        return None if found is None else found.offset

    def produce(self, topic: str, *values: bytes, partition: int = 0) -> int:
        """The first offset that they got, when they are acked."""
        acked: list[object] = []
        log = self.broker.partition(topic, partition).log
        batch = encode([(b"key", value, (), NOW_MS) for value in values])
        done = log.append(memoryview(batch), check(batch), self.now().wall_ms)
        log.when_visible(done.last_offset + 1, acked.append)
        self.committer.settle()
        assert acked == [None]
        return done.base_offset

    def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        log = self.broker.partition(topic, partition).log
        log.load()
        self.committer.settle()  # which tells what loading took
        found: list[bytes | None] = []
        offset = log.start_offset
        while (piece := log.read(offset, 1 << 20)) is not None:
            if not piece.is_hot():
                piece.warm()  # as a fetch does
            columns = decode(piece.read())
            found += [row.value for row in columns.rows() if row.offset >= offset]
            offset = columns.batches[-1].next_offset
        return found

    def said(self) -> str:
        return self.lines.getvalue()
