"""The commit of a micro-batch, by the driver: one transaction, owned under the sink's name, with a mark as its last
record. Without PySpark.

    read the mark             at or above this micro-batch: it is written, stop. Another query's: refused
    take the id               every other driver of this sink is fenced, and what it left open is ended
    read the mark again       stop likewise: now nobody else can write one
    produce                   the staged batches, stamped anew; every answer is waited for
    the mark                  in turn, by the answers; or together with few batches, where it foretells them, and then
                              the answers must be as foretold, or all of it is aborted and written in turn
    source offsets            as a group, so that tools see the query's lag; where commits are many, once a second
    the end

Whoever dies between any two of these leaves nothing that counts, or all of it; and who comes after finds out which.

A driver that has committed keeps the id with its mark, in the process that committed: as long as nobody else takes it,
that mark is the last, and the first three steps are not needed. If somebody has, it is fenced when it writes, and then
does all of them. It also knows where its targets end (`foretelling.py`), and which topics there were a moment ago.

Rules:
- What is written together goes by topics as they were METADATA_S ago at most; one that was made anew since is not
  written to: its id is compared before the end.
- A micro-batch without rows that moves neither a source nor the watermark, and has counted nothing, writes nothing.
- A driver that is fenced after it had taken the id for this commit stops: somebody else runs this query.
- A commit that the broker aborted because it took too long (`control/timeouts.py`) is not tried again: it would take
  as long.
- A driver's first commit goes on where the last mark has read to: behind it, what was written between is gone.
- No mark, and not the first micro-batch: the checkpoint is of another sink, and goes on here; or it is older than this
  one, whose topics were lost, and that is refused where it is known that there was no other (`marked`).
- There marks also have the ids of topics that are read and written: one that is read and was deleted and made anew
  while nobody ran the query has offsets as the old one had, and is refused; so is one that is written, or it would be
  taken for whole, unless nothing was written to it yet. One that was deleted is not made again.
- A batch write is the same under its write id, without sources. Its marks have the write's id in their key, so that
  each is kept, and they are all looked through. Two that commit at once fence each other, and the loser tries again:
  its mark is not there, so nothing of it counts.
"""

from __future__ import annotations

import math
import random
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import NamedTuple

from tidelog.client.cluster import UNKNOWN_TOPIC, Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.client.producer import Delivery
from tidelog.client.transactions import TIMEOUT_MS, Transactions
from tidelog.control import marks
from tidelog.control.counts import NOTHING, Counts, added
from tidelog.control.marks import Ends, Mark, Sources
from tidelog.control.timeouts import in_time
from tidelog.errors import (
    BrokerError,
    LostCheckpoint,
    OutcomeUnknown,
    ProducerFenced,
    UsageError,
)
from tidelog.record.columns import encode
from tidelog.spark.commit_topics import are_still, ends_of, ids_of, named_in, reported_of, warn_of_memory
from tidelog.spark.foretelling import Outlook, committed, foretold, is_as_foretold, missed, together, unknown
from tidelog.spark.late_reports import LATE_REPORTS
from tidelog.spark.offsets import to_json
from tidelog.spark.routing import Routed
from tidelog.spark.staging import OpenCluster, Stage, cut, staged, targets_of

FENCED_TRIES = 8  # of a batch write, beside others of the same sink
WAIT_S = 0.2
METADATA_S = 1.0


class Writing(NamedTuple):
    """Which micro-batch, of which query, into which sink."""

    sink: str
    query_id: str
    batch_id: int
    sources: Sources = Sources()
    topics: tuple[str, ...] = ()  # targets, written to or not
    group: str | None = None
    take_over: str | None = None
    timeout_ms: int = TIMEOUT_MS
    generation: int = 0  # of a view
    marked: bool = False  # from its first micro-batch on the query has had this sink and no other
    counts: Counts = NOTHING  # of this micro-batch alone
    watermark_ms: int | None = None  # with which it ran (`control/marks.py`)
    watermarks: Mapping[str, int] = {}  # that inputs lead to, each alone
    report_every_s: float = 0.0  # the group's offsets; 0: with each commit
    begun: Sources | None = None  # what was read before it, as the checkpoint says; asked of a driver's first commit


class KnownTopics(NamedTuple):
    """What the broker has said of topics, and when, by a clock that only goes forward."""

    at: float = -math.inf
    names: tuple[str, ...] = ()
    ids: Mapping[str, str] = MappingProxyType({})


class Owned(NamedTuple):
    """A transactional id that this process has, the sink's last mark, and what is known since that was written."""

    transactions: Transactions
    mark: Mark | None
    outlook: Outlook = Outlook()
    known: KnownTopics = KnownTopics()
    reported_at: float = -math.inf


Kept = dict[str, Owned]  # by sink


def commit(
    cluster: Cluster, writing: Writing, stages: Sequence[Stage], open_cluster: OpenCluster, kept: Kept | None = None
) -> bool:
    """False where there was nothing to do: it was done before, or has nothing to say. `kept` is what this process has
    from one commit to the next.
    """
    kept = {} if kept is None else kept
    had = writing.sink in kept
    try:
        return _commit(cluster, writing, stages, open_cluster, kept)
    except ProducerFenced:
        if not had:
            raise
    # Spark has several processes for the commits of several queries: another one has the id by now.
    return _commit(cluster, writing, stages, open_cluster, kept)


def _commit(cluster: Cluster, writing: Writing, stages: Sequence[Stage], open_cluster: OpenCluster, kept: Kept) -> bool:
    owned = kept.pop(writing.sink, None)  # after a fault it is not put back
    if owned is not None and owned.transactions.cluster is not cluster:
        owned = None
    mark = _look(cluster, writing) if owned is None else owned.mark
    rows = sum(stage.rows for stage in stages)
    due = is_due(mark, writing) and _is_worth_a_mark(mark, writing, rows)
    if due and owned is None:
        owned = _take(cluster, writing)
        due = is_due(owned.mark, writing)
        _check_gap(owned.mark, writing)
    if due and owned is not None:
        owned = _write(owned, writing, stages, open_cluster)
    if owned is not None:
        kept[writing.sink] = owned
    cut(cluster, stages)
    return due


def _is_worth_a_mark(mark: Mark | None, writing: Writing, rows: int) -> bool:
    sources, counts, watermark_ms = writing.sources, writing.counts, writing.watermark_ms
    return marks.is_worth_a_mark(mark, sources, rows=rows, counts=counts, watermark_ms=watermark_ms)


def _look(cluster: Cluster, writing: Writing) -> Mark | None:
    """The last mark, so that nobody is fenced in vain. One that is just being committed may be missing: `_take` will
    know. But what is refused is refused by the last one there is.
    """
    try:
        cluster.topic(marks.topic_of(writing.sink))
    except BrokerError as error:
        if error.code in UNKNOWN_TOPIC:
            return None
    mark = marks.read_mark(cluster, writing.sink)
    try:
        is_due(mark, writing)
    except LostCheckpoint:
        return marks.read_mark(cluster, writing.sink, marks.end_of_marks(cluster, writing.sink))
    return mark


def _take(cluster: Cluster, writing: Writing) -> Owned:
    owner = Transactions(cluster, marks.transactional_id_of(writing.sink), timeout_ms=writing.timeout_ms)
    owner.start()
    mark = marks.read_mark(cluster, writing.sink, _end_of_marks(cluster, writing.sink))
    if mark is None and writing.marked and writing.batch_id:
        raise LostCheckpoint(
            f"sink {writing.sink!r} has no mark, and this is micro-batch {writing.batch_id}: the checkpoint is older"
            " than the sink, whose topics were deleted, or are of another broker, and to go on would leave out what"
            " it has read before; delete the checkpoint, and the query begins with the log"
        )
    return Owned(owner, mark)


def _end_of_marks(cluster: Cluster, sink: str) -> int:
    """To be taken after the id was. The topic is made, or there: a broker that does not know of it is asked again."""
    at = marks.partition_of_marks(sink)
    try:
        cluster.topic(at.topic)
    except BrokerError as error:
        if error.code in UNKNOWN_TOPIC:
            marks.ensure_topic(cluster, sink)
    return list_offsets(cluster, {at: LATEST})[at].offset


def is_due(mark: Mark | None, writing: Writing) -> bool:
    if writing.take_over == writing.query_id:
        raise UsageError(
            f"takeOverFrom is {writing.take_over}, this query's own id: what it has written would be written again;"
            " take the option away, or start the query with a new checkpoint"
        )
    if mark is None or mark.query_id == writing.take_over:
        return True
    try:
        due = marks.is_due(mark, writing.sink, writing.query_id, writing.batch_id)
    except LostCheckpoint as lost:
        raise LostCheckpoint(f"{lost}; {_way_on(mark)}", lost.what) from None
    if not due and _is_news(mark, writing):
        raise LostCheckpoint(
            f"sink {writing.sink!r} has micro-batch {mark.batch_id} of this query, and this is micro-batch"
            f" {writing.batch_id}, which has read what that had not: the checkpoint is older than the sink, as from a"
            f" backup, and to go on with it would leave rows out; {_way_on(mark)}",
            "is older than what it has written, as from a backup, and to go on with it would leave rows out",
        )
    return due


def _is_news(mark: Mark, writing: Writing) -> bool:
    """Whether a micro-batch that is said to be written has read more than its mark says: Spark numbers are the same,
    and what is in them is not.
    """
    if writing.batch_id == mark.batch_id:
        return writing.sources != mark.sources
    read = mark.sources.offsets
    return any(offset > read.get(at, 0) for at, offset in writing.sources.offsets.items())


def _check_gap(mark: Mark | None, writing: Writing) -> None:
    """Each micro-batch that reads something has a mark. If more was read before this one than the last mark says, marks
    are gone, and the rows with them: the log is older than the checkpoint.
    """
    if mark is None or writing.begun is None or not writing.marked:
        return
    if mark.query_id != writing.query_id or writing.batch_id <= mark.batch_id:
        return
    read = mark.sources.offsets
    if any(offset > read.get(at, 0) for at, offset in writing.begun.offsets.items()):
        raise LostCheckpoint(
            f"the last mark of sink {writing.sink!r} is of micro-batch {mark.batch_id}, and this is micro-batch"
            f" {writing.batch_id}, which goes on behind what that had read: the checkpoint is newer than the log, as"
            f" where the log alone comes from a backup, and to go on with it would leave rows out; {_way_on(mark)}",
            "is newer than the log, as where the log alone comes from a backup, and to go on with it would leave rows"
            " out",
        )


def _way_on(mark: Mark) -> str:
    import json

    begin = json.dumps(to_json(mark.sources.offsets), separators=(",", ":"))
    return f"to go on, start it with a new checkpoint, startingOffsets {begin} and takeOverFrom {mark.query_id}"


def commit_once(cluster: Cluster, writing: Writing, stages: Sequence[Stage], open_cluster: OpenCluster) -> bool:
    """A batch write under its id, which is the writing's `query_id`."""
    for tries in range(FENCED_TRIES):
        try:
            return _commit_once(cluster, writing, stages, open_cluster)
        except (ProducerFenced, OutcomeUnknown):
            if tries == FENCED_TRIES - 1:
                raise
            time.sleep(random.random() * WAIT_S * (tries + 1))
    raise AssertionError("the last try returns or raises")


def _commit_once(cluster: Cluster, writing: Writing, stages: Sequence[Stage], open_cluster: OpenCluster) -> bool:
    owner = Transactions(cluster, marks.transactional_id_of(writing.sink), timeout_ms=writing.timeout_ms)
    owner.start()
    known = marks.read_marks(cluster, writing.sink, _end_of_marks(cluster, writing.sink))
    due = not any(mark.query_id == writing.query_id for mark in known)
    if due:
        key = f"{writing.sink}:{writing.query_id}".encode()
        _write(Owned(owner, known[-1] if known else None), writing, stages, open_cluster, key=key)
    return due


def commit_unmarked(cluster: Cluster, writing: Writing, stages: Sequence[Stage], open_cluster: OpenCluster) -> bool:
    """All or nothing, under an id that nobody else has; who does it again writes it again."""
    owner_id = f"{marks.transactional_id_of(writing.sink)}.{writing.query_id}"
    started = Transactions(cluster, owner_id, timeout_ms=writing.timeout_ms)
    with started as owner, _in_time(owner, writing), owner.transaction():
        produce(owner, stages, open_cluster)
    return True


def _in_time(owner: Transactions, writing: Writing) -> AbstractContextManager[None]:
    fewer = "have fewer rows in a micro-batch or write"
    return in_time(owner, f"the commit of sink {writing.sink!r}", "kafka.transaction.timeout.ms", fewer)


def _write(
    owned: Owned, writing: Writing, stages: Sequence[Stage], open_cluster: OpenCluster, key: bytes | None = None
) -> Owned:
    reports = writing.group is not None and time.monotonic() - owned.reported_at >= writing.report_every_s
    reported = reported_of(owned.transactions.cluster, writing)
    if writing.group is not None:
        LATE_REPORTS.cancel(writing.group)
    warn_of_memory(owned.transactions.cluster, targets_of(stages))
    after = None
    with _in_time(owned.transactions, writing):
        batches = together(stages) if key is None and owned.mark is not None and not owned.outlook.rest else None
        if batches is not None:
            after = _write_together(owned, writing, batches, reported if reports else {})
            owned = owned if after is not None else owned._replace(outlook=missed(owned.outlook), known=KnownTopics())
        if after is None:
            after = _write_in_turn(owned, writing, stages, open_cluster, reported if reports else {}, key)
    if reports:
        return after._replace(reported_at=time.monotonic())
    if writing.group is not None:
        LATE_REPORTS.note(writing.group, reported, open_cluster)
    return after


def _write_in_turn(
    owned: Owned,
    writing: Writing,
    stages: Sequence[Stage],
    open_cluster: OpenCluster,
    reported: Ends,
    key: bytes | None,
) -> Owned:
    """Rows, and when all are answered the mark."""
    owner, cluster = owned.transactions, owned.transactions.cluster
    known = KnownTopics(time.monotonic(), named_in(writing), ids_of(cluster, writing, owned.mark))
    with owner.transaction() as producer:
        written = produce(owner, stages, open_cluster)
        if writing.group is not None:
            owner.send_offsets(writing.group, reported)
        mark = _mark(owned, writing, known.ids, ends_of(cluster, writing, owned.mark, written))
        name, value = marks.encode(mark)
        producer.send(marks.topic_of(writing.sink), value, key=key or name, partition=0)
    return owned._replace(mark=mark, outlook=committed(owned.outlook, written), known=known)


def _write_together(owned: Owned, writing: Writing, batches: Sequence[Routed], reported: Ends) -> Owned | None:
    """Rows and mark in one request. None where they have come to lie elsewhere than the mark says: it is aborted."""
    owner, cluster, known = owned.transactions, owned.transactions.cluster, owned.known
    is_fresh = known.names == named_in(writing) and time.monotonic() - known.at < METADATA_S
    if not is_fresh:
        known = KnownTopics(time.monotonic(), named_in(writing), ids_of(cluster, writing, owned.mark))
    asked = list_offsets(cluster, dict.fromkeys(unknown(owned.outlook, batches), LATEST))
    written = foretold(owned.outlook, batches, {at: found.offset for at, found in asked.items()})
    mark = _mark(owned, writing, known.ids, ends_of(cluster, writing, owned.mark, written, ask=not is_fresh))
    name, value = marks.encode(mark)
    record = encode([(name, value, (), mark.time_ms)])
    with owner.transaction() as producer:
        rows = [(batch.at, batch.data) for batch in batches]
        answers = owner.produce_together([*rows, (marks.partition_of_marks(writing.sink), record)])
        producer.flush()
        if not is_as_foretold(written, batches, answers[:-1]) or not are_still(cluster, writing, known.ids):
            owner.abort()
            return None
        if writing.group is not None:
            owner.send_offsets(writing.group, reported)
    return owned._replace(mark=mark, outlook=committed(owned.outlook, written), known=known)


def _mark(owned: Owned, writing: Writing, ids: Mapping[str, str], ends: Ends) -> Mark:
    before = owned.mark
    return Mark(
        sink=writing.sink,
        query_id=writing.query_id,
        batch_id=writing.batch_id,
        sources=writing.sources,
        ends=ends,
        time_ms=int(time.time() * 1000),
        generation=writing.generation,
        ids=ids,
        counts=added(NOTHING if before is None else before.counts, writing.counts),
        watermark_ms=writing.watermark_ms,
        watermarks=writing.watermarks,
    )


def produce(owner: Transactions, stages: Sequence[Stage], open_cluster: OpenCluster) -> dict[TopicPartition, int]:
    """Returns when every row is acked: where each partition ends then. Few batches are in memory at a time."""
    ends: dict[TopicPartition, int] = {}
    rows = 0
    waiting: deque[tuple[int, Delivery]] = deque()
    for batch in staged(stages, open_cluster):
        rows += batch.rows
        waiting.append((batch.rows, owner.produce(batch.at, batch.data)))
        while waiting and waiting[0][1].acked:
            _note_end(ends, *waiting.popleft())
    owner.producer.flush()
    for count, delivery in waiting:
        _note_end(ends, count, delivery)
    assert rows == sum(stage.rows for stage in stages), "what is staged is what is written"
    unsaid = [at for at, end in ends.items() if end < 0]
    ends.update({at: found.offset for at, found in list_offsets(owner.cluster, dict.fromkeys(unsaid, LATEST)).items()})
    return ends


def _note_end(ends: dict[TopicPartition, int], count: int, delivery: Delivery) -> None:
    """-1 where the broker did not say: a batch that it had already."""
    ends[delivery.at] = delivery.offset + count if delivery.offset >= 0 else -1
