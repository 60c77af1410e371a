"""Dead letters on their way: read in a thread, appended to the dead-letter topic, and only when they are synced there
are their records archived.

    state of the records     set by
    ARCHIVING                the acknowledgement or time-out that gave them up; synced before its sender is told
    ARCHIVED                 here, when the letters are visible

A crash in between writes a letter twice: both have the same `tidelog-dead-letter-id`. While the dead-letter topic is
missing (and is not to be made: MAKES_TOPICS), or is not one any more, or is the topic itself, the records wait, and the
broker's log says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tidelog.broker.decision import Decision
from tidelog.broker.loading import find_cold
from tidelog.broker.partition import Partition
from tidelog.broker.queue_reading import READ_BYTES_MAX, ReadBatches, read_cold
from tidelog.broker.queues.letters import Grave, letters
from tidelog.broker.queues.records import set_record
from tidelog.broker.queues.state import Place
from tidelog.broker.queues.window import ARCHIVED, QueueSpan
from tidelog.broker.topic_changes import Creation, decide_create
from tidelog.broker.topics import TOPICS_TOPIC, Topic, random_id
from tidelog.errors import MalformedBatch, StorageError
from tidelog.log.log import Log
from tidelog.record.codec import check
from tidelog.record.columns import Row, decode

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.queue_coordinator import QueueCoordinator

AGAIN_S = 1.0
REASONS_MAX = 10_000  # of records that wait for their letters, by queue
TAKES_LETTERS = "errors.deadletterqueue.group.enable"
MAKES_TOPICS = "errors.deadletterqueue.auto.create.topics.enable"


class Burying:
    """Loop thread only, but for `_read`."""

    def __init__(self, broker: Broker, coordinator: QueueCoordinator) -> None:
        self._broker = broker
        self._coordinator = coordinator
        self._under_way: set[tuple[str, Place]] = set()
        self._reasons: dict[tuple[str, Place], dict[int, str]] = {}
        self.buried = 0

    def explain(self, group: str, place: Place, reasons: Iterable[tuple[int, int, str]]) -> None:
        """Why records died, as their worker says: in memory, until their letters are written."""
        for first, last, why in reasons:
            known = self._reasons.setdefault((group, place), {})
            room = REASONS_MAX - len(known)
            known.update(dict.fromkeys(range(first, min(last + 1, first + room)), why))

    def go_on(self, group: str, place: Place) -> None:
        """Buries what is ARCHIVING in a queue, one stretch after the other."""
        queue = self._coordinator.state.queue(group, place)
        span = next(queue.window.dying(), None) if queue is not None else None
        if (group, place) in self._under_way or queue is None or span is None:
            return
        settings = self._coordinator.settings(group)
        if not settings.dead_letters:
            self._archive(group, place, span)  # the group does not want letters any more
            return
        topic = self._broker.topics.by_id.get(place[0])
        source = self._broker.find_partition(topic.name, place[1]) if topic is not None else None
        target = self._target(settings.dead_letters, place, queue.topic)
        if isinstance(target, str) or source is None or topic is None:
            if source is not None:
                self._broker.logger.seldom("dead letters wait", group=group, why=target)
                self._later(group, place)
            return
        self._under_way.add((group, place))
        limit, copies = settings.deliveries, settings.copies
        known = self._reasons.get((group, place), {})
        reasons = {offset: why for offset, why in known.items() if span.first <= offset <= span.last}
        grave = Grave(group, topic.name, *place, span.first, span.last, span.count, limit, copies, reasons)
        log, wall_ms = source.log, self._broker.now().wall_ms
        self._broker.scheduler.in_thread(
            lambda: _read(log, target.log, grave, wall_ms),
            lambda found, error: self._was_read(place, target, grave, found, error),
        )

    def _target(self, name: str, place: Place, source: str) -> Partition | str:
        """The partition for letters, or why there is none."""
        topic = self._broker.topics.by_name.get(name) or self._made(name)
        if topic is None:
            return f"topic {name} does not exist; create it"
        if name == source:
            return f"topic {name} cannot take its own dead letters; name another"
        if topic.configs.get(TAKES_LETTERS) != "true":
            return f"topic {name} does not take dead letters; set {TAKES_LETTERS}=true on it"
        found = find_cold(self._broker, name, place[1] % topic.partitions)
        return found if isinstance(found, Partition) else f"topic {name} cannot be written to"

    def _made(self, name: str) -> Topic | None:
        """The topic made now, where the broker's settings say that it is."""
        broker = self._broker
        if not broker.config.flag(MAKES_TOPICS):
            return None
        wanted = Creation(name, configs=((TAKES_LETTERS, "true"),))
        decided = decide_create(broker.topics, [wanted], broker.config, random_id, broker.now())
        try:
            broker.commit(TOPICS_TOPIC.name, Decision(decided.records, []))
        except StorageError as error:
            broker.logger.seldom("topic for dead letters not made", topic=name, error=error)
        return broker.topics.by_name.get(name)

    def _was_read(self, place: Place, target: Partition, grave: Grave, found: Any, error: BaseException | None) -> None:
        self._under_way.discard((grave.group, place))
        try:
            if error is not None:
                raise error
            last, batches = found
            now_ms = self._broker.now().wall_ms
            for batch in batches:
                target.log.append(memoryview(batch), check(batch), now_ms)
        except (StorageError, OSError) as failed:
            self._broker.logger.seldom("dead letters not written", group=grave.group, error=failed)
            self._later(grave.group, place)
            return
        self._under_way.add((grave.group, place))
        span = QueueSpan(grave.first, last, ARCHIVED, grave.deliveries)

        def visible(failed: StorageError | None) -> None:
            self._under_way.discard((grave.group, place))
            if failed is not None:
                self._later(grave.group, place)
            else:
                self._archive(grave.group, place, span)

        target.log.when_visible(target.log.end_offset, visible)

    def _archive(self, group: str, place: Place, span: QueueSpan) -> None:
        known = self._reasons.pop((group, place), {})
        if left := {offset: why for offset, why in known.items() if not span.first <= offset <= span.last}:
            self._reasons[group, place] = left
        if self._coordinator.state.queue(group, place) is None:
            return  # its topic, or its group, was deleted meanwhile
        try:
            done = span._replace(state=ARCHIVED)
            self._coordinator.commit(Decision([set_record(group, *place, [done])], []))
            self.buried += span.size
            self._coordinator.crowd(group, place).wake()  # in order by key, the next of its key
        except StorageError as error:
            self._broker.logger.seldom("dead letters not recorded", group=group, error=error)
            self._later(group, place)
            return
        self.go_on(group, place)

    def _later(self, group: str, place: Place) -> None:
        self._broker.scheduler.call_later(AGAIN_S, lambda: self.go_on(group, place))


def _read(log: Log, target: Log, grave: Grave, wall_ms: int) -> tuple[int, list[bytearray]]:
    """In a thread: up to which offset there are letters now, and their batches."""
    target.load()
    rows: list[Row] = []
    last, readable = grave.last, True
    try:
        found = read_cold(log, max(grave.first, log.start_offset), READ_BYTES_MAX, None)
        if found is not None:
            last = min(grave.last, found.next_offset - 1)
            rows = _rows(found, grave)
        readable = found is not None and last >= grave.first and grave.first >= log.start_offset
    except (StorageError, MalformedBatch):
        readable = False  # a hole, or deleted: the letter says where it was
    last = last if readable else grave.last
    return last, letters(grave._replace(last=last), rows, readable, wall_ms)


def _rows(found: ReadBatches, grave: Grave) -> list[Row]:
    rows: list[Row] = []
    for position, header in found.batches:
        if header.base_offset <= grave.last and header.last_offset >= grave.first and not header.is_control:
            columns = decode(memoryview(found.data)[position : position + header.size])
            rows += [row for row in columns.rows() if grave.first <= row.offset <= grave.last]
    return rows
