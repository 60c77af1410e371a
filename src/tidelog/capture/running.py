"""A capture that runs: from a database to topics, each change once. Read this first, then `writing.py`.

    session    the owner takes the transactional id `tidelog.capture.NAME`: an elder capture of that name is fenced.
               Then the progress is read to its end, and the source is streamed from there
    snapshot   if one is due: batches of rows, each in a transaction of the log with what is left (`snapshotting.py`)
    stream     what there is when the last commit was answered, up to ROWS and BYTES: rows and progress in one
               transaction of the log; then, and only then, the source is told that it may forget them. What comes
               meanwhile is the next one's: so many changes share a commit as come while it takes

    ends       stop(), or the command; another capture of the same name; a fault that waiting does not mend
    again      where the database or the broker is away, or the broker's disk is full: a new session, after a wait that
               doubles; and after a pause

Rules:
- Nothing is written but in a transaction that has the progress which counts it. So after a crash at any step, a reader
  of committed records sees each change once.
- While a restart passes over rows that are stored, nothing is committed: the progress would tell of too few.
- Whenever what is stored is whole (no transaction of the source is stored in part, no snapshot is under way), a mark
  goes with it, as sinks write them: the position, and where the topics of tables end. By it readers wait for a
  position, and feeds tell whole transactions.
- A session that failed is thrown away with all that it knew. The next one knows what the log has.
- A fault that is waited out is logged once, and once more when it is over.
- A large transaction of the source is split over many of the log; many small ones are put into one. No delay is added.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from threading import Event as Flag
from threading import Thread
from typing import Any

from tidelog.capture import incremental, newcomers, snapshotting, telling
from tidelog.capture.change import TRUNCATE, Event, Idle, RowChange
from tidelog.capture.chunking import Chunking
from tidelog.capture.foretelling import EndsAhead, ForetoldWrong, check, written_to
from tidelog.capture.misnaming import misnamed
from tidelog.capture.progress import CaptureProgress, Passing, apply, from_fields, to_fields
from tidelog.capture.settings import CaptureSettings
from tidelog.capture.source import ChangeSource, ChangeStream
from tidelog.capture.sources.opening import open_source
from tidelog.capture.supervising import CapturePart, CaptureSupervisor, Lookout
from tidelog.capture.topics import CapturedTopics, of_signals
from tidelog.capture.writing import CaptureWriter
from tidelog.client.backoff import waits
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.refusal import may_pass
from tidelog.client.security import Security
from tidelog.control import marks
from tidelog.control.captures import (
    CAPTURES,
    Captured,
    decode,
    encode_progress,
    ensure_topic,
    sink_of,
    transactional_id_of,
)
from tidelog.control.marks import Mark, Sources, partition_of_marks
from tidelog.control.owner import Outgoing, Owner
from tidelog.control.positions import text_of
from tidelog.control.status import end_of_commands
from tidelog.errors import (
    AnotherCapture,
    BrokerError,
    Disconnected,
    OutcomeUnknown,
    ProducerFenced,
    SourceLost,
    TransactionTimedOut,
    UsageError,
)

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
READ_EVENTS = 5_000
WAIT_S = 0.5
ONCE_WAIT_S = 0.1  # in which nothing comes: all that was there is stored
ROWS, BYTES = 50_000, 16 << 20  # of one transaction of the log
REST_S, LONGEST_S = 0.02, 2.0  # for the rest of a transaction of the source; for which one of the log is open
IDLE_STORED_S = 1.0
HEARTBEAT_S = 10.0  # of the source, while nothing comes
HIDDEN = "hidden"  # in the record of progress; one written before it was has none, and its columns are not known

log = logging.getLogger(__name__)
Shown = Callable[[int, int], None]  # rows done, rows in all


def capture(
    url: str, *, prefix: str, bootstrap: str = DEFAULT_BOOTSTRAP, security: Security | None = None, **settings: Any
) -> Capture:
    """A capture of a database's tables to topics PREFIX.SCHEMA.TABLE. `run()` it, or use it by `with`."""
    for name in ("tables", "exclude", "mask"):
        if name in settings:
            settings[name] = (settings[name],) if isinstance(settings[name], str) else tuple(settings[name])
    return Capture(CaptureSettings(url=url, prefix=prefix, **settings), bootstrap=bootstrap, security=security)


class Capture:
    def __init__(
        self,
        settings: CaptureSettings,
        *,
        bootstrap: str = DEFAULT_BOOTSTRAP,
        security: Security | None = None,
        timeout_s: float = 30.0,
        shown: Shown | None = None,
    ) -> None:
        self.settings = settings
        self._bootstrap, self._security, self._timeout_s = bootstrap, security, timeout_s
        self._shown = shown
        self._stop = Flag()
        self._thread: Thread | None = None
        self._failed: BaseException | None = None
        self._fresh = True  # nothing was read since the process began
        self._foretells = True  # where records will lie
        self._warned: set[str] = set()

    # As a part of a program -------------------------------------------------------------------------------------------

    def __enter__(self) -> Capture:
        """Runs beside the caller, in a thread."""
        self._thread = Thread(target=self._run_beside, name=f"capture-{self.settings.known_as}", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.stop()
        assert self._thread is not None
        self._thread.join()
        if self._failed is not None and kind is None:
            raise self._failed

    def _run_beside(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self._failed = error

    def stop(self) -> None:
        """From any thread; `run` then ends after the transaction that is under way."""
        self._stop.set()

    def run(self) -> None:
        """Until `stop`."""
        self._run(once=False)

    def catch_up(self) -> None:
        """Until all that was there is stored, and nothing has come for a tenth of a second."""
        self._run(once=True)

    def _connect(self) -> Cluster:
        client_id = f"tidelog-capture-{self.settings.known_as}"
        return Cluster(self._bootstrap, client_id=client_id, timeout_s=self._timeout_s, security=self._security)

    def _run(self, *, once: bool) -> None:
        loop = _Loop(self, once=once)
        part = CapturePart(loop)
        with self._connect() as cluster:
            supervisor = CaptureSupervisor(part, cluster, loop.lookout, self._stop, once=once)
            try:
                supervisor.loop()
            finally:
                part.stop()
        if (error := part.error) is not None:
            raise error


class _Loop:
    """What its part runs: a session after the other."""

    kind = telling.KIND

    def __init__(self, capture: Capture, *, once: bool) -> None:
        self.name = capture.settings.known_as
        self.told = telling.CaptureReport(capture.settings)
        self.lookout = Lookout(of_signals(capture.settings.prefix))
        self.done = False
        self._capture, self._once = capture, once

    def figures(self) -> Mapping[str, Any]:
        return self.told.fields()

    def run(self, stopping: Flag) -> None:
        capture, pauses = self._capture, waits()
        self.told.starts()
        try:
            with capture._connect() as cluster:
                while not stopping.is_set():
                    try:
                        _Session(self._capture, cluster, self, stopping, once=self._once).run()
                        break
                    except ProducerFenced as error:
                        raise AnotherCapture(
                            f"another capture named {self.name!r} has begun, and this one ends; there can be one of a"
                            " name, so give each a --name of its own"
                        ) from error
                    except (BrokerError, Disconnected, OutcomeUnknown, TransactionTimedOut) as error:
                        if isinstance(error, BrokerError) and not may_pass(error.code):
                            raise
                        capture._foretells = capture._foretells and not isinstance(error, ForetoldWrong)
                        self.told.waits_after(error)
                        stopping.wait(next(pauses))
        finally:
            self.told.rests()
        self.done = self._once or not stopping.is_set()  # or its snapshot was all that was wanted


def told_up_to(events: Sequence[Event]) -> int:
    """The source's clock, when everything that was committed before lies in or before these."""
    return max((event.at_us for event in events if type(event) is Idle), default=0)


def is_enough(open_s: float, read: int, *, whole: bool) -> bool:
    """Whether a transaction of the log is to end though more may have come. What waits in a backlog is taken along, and
    so is the rest of a transaction (`whole` is false); a change that has just come is not waited for by those before.
    """
    return open_s >= LONGEST_S or (whole and read < READ_EVENTS // 2)


class _Session:
    """From one beginning of the owner to the first fault, or the end."""

    def __init__(self, capture: Capture, cluster: Cluster, loop: _Loop, stopping: Flag, *, once: bool) -> None:
        self._capture, self._cluster, self._told, self._once = capture, cluster, loop.told, once
        self._lookout = loop.lookout
        self.settings = capture.settings
        self._name = self.settings.known_as
        self._source: ChangeSource = open_source(
            self.settings.source_url, self.settings.known_as, self.settings.tables, self.settings.method
        )
        self._owner = Owner(cluster, transactional_id_of(self.settings.known_as))
        self._stop = stopping
        self._progress = CaptureProgress()
        self._idle: Idle | None = None
        self._told_us = 0  # all that the source committed before is told
        self._looked_at = float("-inf")  # for tables that are new
        self._owed = False  # some of them wait until the stream has told what was written before
        self._stored_at = self._beat_at = self._topic_beat_at = time.monotonic()

    def run(self) -> None:
        try:
            self._check()
            ensure_topic(self._cluster)
            self._owner.begin()
            kept = decode(self._owner.rows(CAPTURES)).get(self.settings.known_as) or Captured("", None, {})
            self._progress = CaptureProgress() if kept.progress is None else from_fields(kept.progress)
            self._check_same_tables(kept.progress)
            if self._progress.commands is None:
                self._progress = replace(self._progress, commands=end_of_commands(self._cluster))
            self._last_mark = marks.read_mark(self._cluster, sink_of(self._name), self._marks_end())
            self._ahead = EndsAhead()
            self._ends: dict[TopicPartition, int] = {} if self._last_mark is None else dict(self._last_mark.ends)
            made = CapturedTopics(
                self._cluster, partitions=self.settings.partitions, settings=self.settings.topic_settings()
            )
            self._writer = CaptureWriter(
                self._source,
                self.settings.options(),
                self.settings.choices(),
                made,
                dict(kept.tables),
                self.settings.converter(),
            )
            if self._progress.position is not None or self._progress.snapshot is not None:
                self._ask_for_newcomers()
            self._source.prepare()
            self._check_names(kept.progress)
            self._snapshot()
            if self.settings.snapshot != snapshotting.INITIAL_ONLY and not self._stop.is_set():
                self._follow_or_begin_anew()
        finally:
            self._source.close()

    def _marks_end(self) -> int:
        marks.ensure_topic(self._cluster, sink_of(self._name))
        return marks.end_of_marks(self._cluster, sink_of(self._name))

    def _follow_or_begin_anew(self) -> None:
        try:
            self._follow(self._stream())
        except SourceLost as error:
            if self.settings.snapshot != snapshotting.WHEN_NEEDED:
                raise
            log.warning("capture %s: %s; all rows are read again", self.settings.known_as, error)
            self._progress = CaptureProgress(signals=self._progress.signals, commands=self._progress.commands)
            self._snapshot(anew=True)
            if not self._stop.is_set():
                self._follow(self._stream())

    def _check(self) -> None:
        said: dict[str, list[str]] = {}
        for one in self._source.check():
            said.setdefault(one.severity, []).append(f"{one.what}: {one.remedy}" if one.remedy else one.what)
        if "error" in said:
            raise UsageError("; ".join(said["error"]))
        for warning in said.get("warning", ()):
            if warning not in self._capture._warned:
                self._capture._warned.add(warning)
                log.warning("capture %s: %s", self._name, warning)

    def _check_names(self, kept: Mapping[str, Any] | None) -> None:
        settings, tables = self.settings, self._source.tables()
        known = settings.hidden if kept is not None and HIDDEN not in kept else (kept or {}).get(HIDDEN, ())
        exclude, mask = ([name for name in names if name not in known] for names in (settings.exclude, settings.mask))
        begun = self._progress.position is not None or self._progress.snapshot is not None
        if refused := misnamed(tables, exclude=exclude, mask=mask, outbox=None if begun else settings.outbox):
            undo = "" if begun else "; what was made in the database for it goes by `tidelog capture remove`"
            raise UsageError("; ".join(refused) + undo)
        for one in misnamed(tables, exclude=settings.exclude, mask=settings.mask, outbox=settings.outbox):
            log.warning("capture %s: %s", self._name, one)

    def _check_same_tables(self, kept: Mapping[str, Any] | None) -> None:
        """What is stored of an open transaction is a number of rows: of the tables that were captured then."""
        before = None if kept is None else kept.get("tables")
        if self._progress.open is not None and before is not None and before != list(self.settings.tables):
            raise UsageError(
                f"a part of transaction {self._progress.open} is stored, of the tables {' '.join(before)}; let the"
                f" capture run with --tables {' '.join(before)} until the rest is, and then choose others"
            )

    # Tables that come later -------------------------------------------------------------------------------------------

    def _ask_for_newcomers(self, chunking: Chunking | None = None) -> bool:
        """Stores that their rows are to be read; with `chunking`, while changes flow. Whether there are any."""
        self._looked_at = time.monotonic()
        reading = incremental.from_fields(self._progress.incremental)
        found = newcomers.look(self._source.newcomers, self._writer.known, reading, first=chunking is None)
        self._owed = found is not None and found.owed
        if found is None or not found.tables:
            return False
        if found.names:
            log.info("capture %s: new tables: %s", self._name, ", ".join(found.names))
        for one in found.truncated:
            log.warning(
                "capture %s: %s is another table now, or has another key, or lost a partition, or was not captured for"
                " a while; it is told as truncated and read again",
                *(self._name, one.full_name),
            )
        progress = self._progress
        if self.settings.snapshot != snapshotting.NO_DATA and chunking is not None:
            if found.names:
                chunking.take_in(found.names, found.anew)
            progress = chunking.stored(progress)
        elif self.settings.snapshot != snapshotting.NO_DATA and found.names:
            asked = incremental.with_tables(reading, found.names, newcomers.ASKED_BY, anew=found.anew)
            progress = replace(progress, incremental=incremental.to_fields(asked))
        with self._owner.transaction() as outgoing:
            for table in found.tables:
                self._writer.target(table)
            gone = [RowChange(table, TRUNCATE, None, None) for table in found.truncated]
            self._writer.write(outgoing, gone, time.time_ns())
            self._store(outgoing, progress)
        if chunking is not None:
            chunking.commit()
        return bool(found.names)

    def _take_in_newcomers(self, chunking: Chunking, *, at_once: bool = False) -> bool:
        """Whether there are any, or will be; looked for now and then, or `at_once`."""
        due = at_once or time.monotonic() - self._looked_at >= newcomers.EVERY_S
        if self._progress.open is not None or not due:
            return False
        if not self._ask_for_newcomers(chunking):
            return self._owed
        try:
            self._source.prepare()
        except UsageError as error:
            log.warning("capture %s: a new table cannot be captured yet: %s", self._name, error)
        return True

    # Snapshot ---------------------------------------------------------------------------------------------------------

    def _snapshot(self, *, anew: bool = False) -> None:
        progress, mode = self._progress, self.settings.snapshot
        if not snapshotting.decide(mode, progress.position, progress.snapshot, first=self._capture._fresh):
            if progress.position is None:
                self._begin_without_rows()
            return
        found = self._source.snapshot()
        try:
            reading = snapshotting.SnapshotReading(found, progress.snapshot, without=self._read_by_chunks())
            if progress.position is not None:
                reading.position = progress.position  # read once more: the stream goes on where it was
            self._store_snapshot(reading, anew=anew)
        finally:
            found.close()
        self._capture._fresh = False

    def _read_by_chunks(self) -> Collection[str]:
        """New since a snapshot that was broken off. Their changes are told from later on than its position."""
        reading = incremental.from_fields(self._progress.incremental)
        return () if reading is None or self._progress.snapshot is None else reading.tables

    def _store_snapshot(self, reading: snapshotting.SnapshotReading, *, anew: bool) -> None:
        """`anew`: tables are told as truncated first, for what became of rows that are gone nobody has seen. So are
        those whose topics are there from a capture that was removed."""
        begins = self._progress.position is None and self._progress.snapshot is None
        shown, total = self._capture._shown, reading.total
        with self._owner.transaction() as outgoing:
            for table in reading.tables:
                self._writer.target(table)
            gone = [one for one in reading.tables if anew or (begins and self._writer.has_records(one))]
            told = [RowChange(table, TRUNCATE, None, None) for table in gone]
            self._writer.write(outgoing, told, time.time_ns())
            self._store(outgoing, replace(self._progress, snapshot=reading.fields()))
        for rows in reading.batches():
            if self._stop.is_set():
                return
            with self._owner.transaction() as outgoing:
                self._writer.write_snapshot(outgoing, rows, time.time_ns())
                self._store(outgoing, replace(self._progress, snapshot=reading.fields()))
            self._told.rows(len(rows))
            self._told.snapshot(reading.done, total)
            if shown is not None:
                shown(reading.done, total)
        with self._owner.transaction() as outgoing:
            self._store(outgoing, replace(self._progress, position=reading.position, snapshot=None))

    def _begin_without_rows(self) -> None:
        found = self._source.snapshot()
        try:
            with self._owner.transaction() as outgoing:
                for table in found.tables():
                    self._writer.target(table)
                self._writer.write_snapshot(outgoing, (), time.time_ns())
                self._store(outgoing, replace(self._progress, position=found.position, snapshot=None))
        finally:
            found.close()

    # Stream -----------------------------------------------------------------------------------------------------------

    def _stream(self) -> ChangeStream:
        assert self._progress.position is not None, "a snapshot, or its leaving out, gives one"
        try:
            return self._source.stream(self._progress.position)
        except KeyError as error:
            raise UsageError(
                f"capture {self._name!r} is at {text_of(self._progress.position)!r}, which is not a position of"
                f" {self._source.connector} by this method: another source was captured by this name; choose another"
                " by --name, or take what is stored away by `tidelog capture remove`"
            ) from error

    def _follow(self, stream: ChangeStream) -> None:
        try:
            self._pass_over(stream)
            chunking = Chunking(self._cluster, self.settings, self._source, self._progress, log, self._lookout)
            self._told.runs(self._source, self._progress)
            while not self._stop.is_set():
                self._take_in_newcomers(chunking)
                self._progress = chunking.look(self._progress)
                wait_s = ONCE_WAIT_S if self._once else 0.0 if chunking.waits_for_its_window else WAIT_S
                events = stream.read(READ_EVENTS, wait_s)
                if self._is_idle(events) and not chunking.is_dirty:
                    if self._once and not chunking.is_busy and not self._take_in_newcomers(chunking, at_once=True):
                        return  # also of what the stream has just told of tables that took a name
                    self._rest(stream)
                else:
                    self._take(stream, events, chunking)
                self._told.works()
                self._told.follows(self._source, self._progress)
        finally:
            stream.close()

    def _pass_over(self, stream: ChangeStream) -> None:
        """Reads up to where the open transaction is stored, and writes what follows in the same read."""
        passing, opened = Passing(self._progress), self._progress.open
        if passing.done:
            return
        self._progress = replace(self._progress, open=None, rows=0)
        read = self._progress
        while not passing.done:
            events = stream.read(READ_EVENTS, WAIT_S)
            if self._stop.is_set():
                return
            stored, fresh = passing.split(events)
            self._writer.count(stored)
            read = apply(read, events)
            if passing.done and fresh:
                with self._owner.transaction() as outgoing:
                    self._writer.write(outgoing, fresh, time.time_ns(), resumed=opened)
                    self._store(outgoing, read)
                self._confirm(stream)
        self._progress = read

    def _is_idle(self, events: Sequence[Event]) -> bool:
        for event in events:
            if type(event) is not Idle:
                return False
            self._idle = event
            self._told_us = max(self._told_us, event.at_us)
        return True

    def _beats(self) -> bool:
        """Asks the source for the time, when that is due; whether a heartbeat of ours is. Also while changes come: who
        waits for a table in which nothing changes waits for that alone."""
        now, every = time.monotonic(), self.settings.heartbeat_s
        if now - self._beat_at >= min(HEARTBEAT_S, every or HEARTBEAT_S):
            self._beat_at = now
            self._source.heartbeat()
        if not every or now - self._topic_beat_at < every:
            return False
        self._topic_beat_at = now
        return True

    def _take(self, stream: ChangeStream, events: Sequence[Event], chunking: Chunking) -> None:
        """One transaction of the log: as much as there is, up to its limits."""
        writer, progress, begun, beat = self._writer, self._progress, time.monotonic(), self._beats()
        writer.rows = writer.size = 0
        with self._owner.transaction() as outgoing:
            while True:
                now_ns = time.time_ns()
                told = chunking.pass_through(events)
                writer.write(outgoing, told, now_ns)
                self._told_us = max(self._told_us, told_up_to(events))
                progress = apply(progress, events)
                whole = progress.open is None and not chunking.waits_for_its_window
                open_s = time.monotonic() - begun
                if writer.rows >= ROWS or writer.size >= BYTES or is_enough(open_s, len(events), whole=whole):
                    break
                events = stream.read(READ_EVENTS, 0 if progress.open is None else REST_S)
                if self._is_idle(events):  # nothing more is there: what was read goes out now
                    break
            self._store(outgoing, chunking.stored(progress), self._heartbeat(outgoing) if beat else None)
        chunking.commit()
        self._idle = None
        self._told.rows(writer.rows)
        self._confirm(stream)

    def _store(self, outgoing: Outgoing, progress: CaptureProgress, complete_ms: int | None = None) -> None:
        """Last in its transaction; what is known changes with it, since a transaction that fails ends the session."""
        now_ms = int(time.time() * 1000)
        chosen = {"tables": list(self.settings.tables), HIDDEN: list(self.settings.hidden)}
        content = {**to_fields(progress), **chosen, "at_ms": now_ms}
        topics = self._writer.topics
        foretold = self._ahead.foretold(outgoing, topics) if self._capture._foretells else None
        if foretold is None:
            outgoing.flush()
        ends = written_to(outgoing, topics) if foretold is None else foretold
        self._mark(outgoing, progress, ends, now_ms, complete_ms)
        outgoing.send(CAPTURES, [(*encode_progress(self.settings.known_as, content), (), now_ms)])
        if foretold is not None:
            outgoing.flush()
            ends = written_to(outgoing, topics)
            check(foretold, ends)
        self._ahead.note(ends)
        self._progress = progress

    def _mark(
        self,
        outgoing: Outgoing,
        progress: CaptureProgress,
        ends: Mapping[TopicPartition, int],
        now_ms: int,
        complete_ms: int | None = None,
    ) -> None:
        """`complete_ms`: nothing that the source committed before is still to come."""
        self._ends |= ends
        if progress.position is None or progress.open is not None or progress.snapshot is not None:
            return
        position = text_of(progress.position)
        before = self._last_mark
        same = before is not None and (before.ends, before.sources.positions) == (self._ends, {self._name: position})
        if same and complete_ms is None:
            return
        number = 0 if before is None else before.batch_id + 1
        sources = Sources({}, {self._name: position} if position else {})
        made = Mark(sink_of(self._name), "capture", number, sources, dict(self._ends), now_ms, complete_ms=complete_ms)
        self._last_mark = made
        outgoing.send(partition_of_marks(sink_of(self._name)), [(*marks.encode(self._last_mark), (), now_ms)])

    def _confirm(self, stream: ChangeStream) -> None:
        self._stored_at = time.monotonic()
        if self._progress.position is not None:
            stream.confirm(self._progress.position)

    def _rest(self, stream: ChangeStream) -> None:
        """Nothing has come: positions move on all the same, and heartbeats are written."""
        beat = self._beats()
        moved = self._idle is not None and self._idle.position != self._progress.position
        if not beat and not (moved and time.monotonic() - self._stored_at >= IDLE_STORED_S):
            return
        with self._owner.transaction() as outgoing:
            progress = apply(self._progress, [] if self._idle is None else [self._idle])
            self._store(outgoing, progress, self._heartbeat(outgoing) if beat else None)
        self._idle = None
        self._confirm(stream)

    def _heartbeat(self, outgoing: Outgoing) -> int | None:
        """Written; up to when everything is told, where the source has said so."""
        self._writer.heartbeat(outgoing, int(time.time() * 1000))
        return self._told_us // 1000 or None
