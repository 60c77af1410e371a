"""A process manager at work, from taking its id to losing it (`process_manager.py` says what it promises).

    begin    the elder is fenced; what it wrote is read: processes, timers, how far
    step     one fetch of events and answers, timers that have run out, and one transaction with all that came of them

Rules:
- A record of its own topic that it did not write ends it, with the offset: to go on without what it says would be to
  send again, or never.
- Commands whose refusals it wants carry `to`: `process.NAME/TYPE/KEY`. Their answers are read from where they ended
  when the store was first declared, in the order of each partition.
- A transaction has TIMERS_EACH timers that ran out, at most, and what one fetch brought.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, LATEST, READ_COMMITTED, list_offsets
from tidelog.client.producer import Record
from tidelog.errors import HistoryFault, UsageError
from tidelog.record.columns import Row
from tidelog.sourcing.command_record import encode_command
from tidelog.sourcing.entity import Folding
from tidelog.sourcing.event_following import EventLog, not_ours, stable_id, text_record
from tidelog.sourcing.event_record import CommandContext, decode
from tidelog.sourcing.process_manager import CommandRefused, ProcessManager, Send, TimedOut
from tidelog.sourcing.processes import Process, Processes
from tidelog.sourcing.requests import DECIDE, Joint, Request, check_names
from tidelog.sourcing.store import EventStore
from tidelog.sourcing.store_topics import place_of

STATE, REPLIES = "state/", "replies/"
IDLE_MS = 100
TIMERS_EACH = 1_000
STATES_EACH = 5_000  # in a transaction, where all are written anew

log = logging.getLogger(__name__)


class ProcessRun:
    """Belongs to one thread."""

    def __init__(self, manager: ProcessManager, events: EventLog) -> None:
        self._manager, self._log = manager, events
        self._processes = Processes(
            manager.fresh, manager.encode, manager.decode, bound=manager.cache_processes, folder=manager.folder
        )
        self._outgoing: list[tuple[TopicPartition, Record]] = []
        self._partitions: dict[str, int] = {}
        self._answers: dict[TopicPartition, int] = {}
        self._stores = {store.topics.replies: store for store in manager.refusals.values()}
        self._prefix = f"process.{manager.name}/".encode()

    def close(self) -> None:
        self._processes.close()

    # Beginning

    def begin(self) -> None:
        stale: set[str] = set()
        kept: dict[str, int] = {}

        def note(key: str, row: Row) -> None:
            if key.startswith(STATE):
                self._processes.load([(key.removeprefix(STATE), self._value(key, row, stale))])
            elif key.startswith(REPLIES) and row.value is not None:
                with not_ours(self._log.own, row):
                    kept[key.removeprefix(REPLIES)] = int(json.loads(row.value)["offset"])

        self._log.begin(note)
        self._begin_answers(kept)
        self._processes.load_timers()
        if stale:
            self._fold_anew()

    def _value(self, key: str, row: Row, stale: set[str]) -> bytes | None:
        """As this version has it: of a state of another kind the timers are left."""
        stale.discard(key)
        if row.value is None:
            return None
        name = key.removeprefix(STATE)
        with not_ours(self._log.own, row):
            if self._manager.is_current(row):
                self._manager.decode(name, row.value)
                return row.value
            stale.add(key)
            return self._manager.encode(name, self._manager.without_state(row.value))

    def _begin_answers(self, kept: dict[str, int]) -> None:
        cluster = self._log.cluster
        every = [at for topic in self._stores for at in cluster.partitions(topic)]
        if not every:
            return
        starts = list_offsets(cluster, dict.fromkeys(every, EARLIEST))
        ends = list_offsets(cluster, dict.fromkeys(every, LATEST), isolation=READ_COMMITTED)
        for at in every:
            known = kept.get(f"{self._stores[at.topic].name}/{at.partition}")
            if known is not None and known < starts[at].offset:
                log.warning("process manager %s: answers of %s were lost while it was away", self._manager.name, at)
            self._answers[at] = ends[at].offset if known is None else max(known, starts[at].offset)
        with self._log.owner.transaction() as outgoing:  # at once, as the places of events are
            outgoing.send(self._log.own, self._answer_records(0))

    def _fold_anew(self) -> None:
        """States of another kind: from all events that are done, in silence. Timers stay."""
        done = {number: place.offset for number, place in self._log.places.items()}
        self._processes.reset(lambda process: Process(self._manager.fresh().state, process.timers, process.causes))
        for place in self._log.places.values():
            place.offset = 0
        while any(place.offset < done[number] for number, place in self._log.places.items()):
            for at, rows, following in self._log.fetch():
                place = self._log.places[at.partition]
                for row in rows:
                    if row.offset < done[at.partition]:
                        self._event(row, silent=True)
                place.offset = min(following, done[at.partition])
                self._processes.evict()
        now_ms = int(time.time() * 1000)
        for states in batched(self._states(now_ms), STATES_EACH):
            with self._log.owner.transaction() as outgoing:  # after a crash in between it is all done again
                outgoing.send(self._log.own, states)
        self._processes.trim(self._manager.is_over)

    # Steps

    def step(self) -> None:
        fetched = self._log.fetch(self._wait_ms(), self._answers)
        counts = {"events": 0, "refused": 0}
        for at, rows, following in fetched:
            if at.topic in self._stores:
                counts["refused"] += sum(self._answer(at, row) for row in rows)
                self._answers[at] = following
                continue
            place = self._log.places[at.partition]
            for row in rows:
                self._event(row, silent=row.offset < place.live)
            counts["events"] += len(rows)
            place.offset = following
        timeouts = self._run_out(int(time.time() * 1000))
        if fetched or timeouts or self._processes.changed:
            self._write()
            sizes = (len(self._processes), self._processes.timers)
            self._manager.counted(sizes, **counts, commands=len(self._outgoing), timeouts=timeouts)
            self._outgoing.clear()

    def _wait_ms(self) -> int:
        due = self._processes.next_due
        return IDLE_MS if due is None else max(1, min(IDLE_MS, due - int(time.time() * 1000)))

    def _event(self, row: Row, *, silent: bool) -> None:
        if Folding.parse(row) is None:
            return
        record, events = decode(row, self._log.store.decider.types, self._log.store.cipher)
        for number, event in enumerate(events):
            key = self._manager.key_of(event, record)
            if key is None:
                continue
            cause = None if silent else (record.entity, record.id, number)
            context = CommandContext(record.correlation, record.id, f"process {self._manager.name}")
            self._happened(key, event, record.timestamp_ms, cause, context)

    def _answer(self, at: TopicPartition, row: Row) -> bool:
        """Whether it is a refusal of a command of this process manager's."""
        found = dict(row.headers)
        to = found.get("to") or b""
        if not to.startswith(self._prefix):
            return False
        type, _, key = to.removeprefix(self._prefix).decode(errors="replace").partition("/")
        id = (found.get("command") or b"").decode(errors="replace")
        entity = (row.key or b"").decode(errors="replace")
        refused = refusal_of(self._stores[at.topic], row.value or b"", type, entity, id)
        if refused is None:
            return False
        self._happened(key, refused, row.timestamp, ("refused", id), CommandContext(causation=id))
        return True

    def _run_out(self, now_ms: int) -> int:
        found = self._processes.run_out(now_ms, TIMERS_EACH)
        for due, key, name in found:
            process = self._processes.find(key)
            if process.timers.get(name) != due:
                self._processes.watch(key, name, process)  # one that ran out before it has set or cleared it
                continue
            del process.timers[name]
            self._processes.keep(key, process, process.timers)
            event = TimedOut(name, datetime.fromtimestamp(due / 1000, UTC))
            cause, correlation = process.causes.pop(name, (None, None))
            self._happened(key, event, due, (key, name, due), CommandContext(correlation, cause))
        return len(found)

    def _happened(
        self, key: str, event: Any, at_ms: int, cause: tuple[object, ...] | None, context: CommandContext
    ) -> None:
        """Applied; and reacted to where there is a cause to name commands by."""
        process = self._processes.find(key)
        before = dict(process.timers)
        self._manager.fold(key, process, event)
        if cause is not None:
            who = context._replace(who=f"process {self._manager.name}")
            sends = self._manager.react(key, process, event, at_ms)
            process.caused(before, (context.causation, context.correlation))
            for number, send in enumerate(sends):
                id = f"{stable_id(self._manager.name, *cause)}/{number}"
                try:
                    self._send(key, send, id, who)
                except UsageError as error:
                    raise self._manager.not_to_be_sent(key, event, send, error) from error
        self._processes.keep(key, process, before)

    def _send(self, process: str, send: Send, id: str, context: CommandContext) -> None:
        store = send.to or self._log.store
        name, value = store.decider.encode_command(send.command)
        request = Request(DECIDE, send.entity, id, type=name, value=value, context=context)
        check_names(request)
        to = self._prefix + f"{name}/{process}".encode()
        key, value_, headers = encode_command(Joint((request,)), to)
        if store.topics.replies not in self._stores:
            headers = [one for one in headers if one[0] != "to"]
        at = place_of(store.topics.commands, request.key, self._partitions_of(store.topics.commands))
        self._outgoing.append((at, (key, value_, headers, int(time.time() * 1000))))

    def _partitions_of(self, topic: str) -> int:
        if topic not in self._partitions:
            self._partitions[topic] = len(self._log.cluster.partitions(topic))
        return self._partitions[topic]

    # Records

    def _write(self) -> None:
        now_ms = int(time.time() * 1000)
        places = [place.record(number, now_ms) for number, place in self._log.places.items()]
        with self._log.owner.transaction() as outgoing:
            for at, record in self._outgoing:
                outgoing.send(at, [record])
            outgoing.send(self._log.own, self._states(now_ms))
            outgoing.send(self._log.own, [*places, *self._answer_records(now_ms)])
            outgoing.send_offsets(self._log.id, self._log.offsets())
        self._processes.trim(self._manager.is_over)

    def _states(self, now_ms: int) -> Iterator[Record]:
        headers = self._manager.headers
        for key, value in self._processes.values(self._manager.is_over):
            yield f"{STATE}{key}".encode(), value, headers, now_ms

    def _answer_records(self, now_ms: int) -> Iterator[Record]:
        for at, offset in self._answers.items():
            yield text_record(f"{REPLIES}{self._stores[at.topic].name}/{at.partition}", {"offset": offset}, now_ms)


def batched(records: Iterator[Record], count: int) -> Iterator[list[Record]]:
    while some := list(islice(records, count)):
        yield some


def refusal_of(store: EventStore[Any], data: bytes, type: str, entity: str, id: str) -> CommandRefused | None:
    """None for a command that was done, and for what is not an answer."""
    try:
        fields = json.loads(data)
        if "refused" in fields:
            refused = store.decider.refusal_from(fields["refused"])
            return CommandRefused(type, entity, refused.reason, str(refused), id)
        if "error" in fields:
            return CommandRefused(type, entity, str(fields["error"]["type"]), str(fields["error"]["message"]), id)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError, HistoryFault) as error:
        log.warning("store %s: an answer to %s cannot be read: %r", store.name, id, error)
    return None
