"""The commit of a micro-batch, by the driver: one transaction, owned under the sink's name, with a mark as its last
record. Without PySpark.

    read the mark             at or above this micro-batch: it is written, stop. Another query's: refused
    take the id               every other driver of this sink is fenced, and what it left open is ended
    read the mark again       stop likewise: now nobody else can write one
    produce                   the staged batches, stamped anew; every answer is waited for
    source offsets            as a group, so that tools see the query's lag
    the mark, and the end

Whoever dies between any two of these leaves nothing that counts, or all of it; and who comes after finds out which.

A driver that has committed keeps the id with its mark, in the process that committed: as long as nobody else takes it,
that mark is the last, and the first three steps are not needed. If somebody has, it is fenced when it writes, and then
does all of them.

Rules:
- A micro-batch without rows that moves no source, and has counted nothing, writes nothing.
- A driver that is fenced after it had taken the id for this commit stops: somebody else runs this query.
- A commit that the broker aborted because it took too long (`control/timeouts.py`) is not tried again: it would take
  as long.
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

import random
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from tidelog.client.admin import configs
from tidelog.client.cluster import UNKNOWN_TOPIC, Cluster
from tidelog.client.metadata import Topic, TopicPartition
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.client.producer import Delivery
from tidelog.client.transactions import TIMEOUT_MS, Transactions
from tidelog.control import marks
from tidelog.control.counts import NOTHING, Counts, added
from tidelog.control.marks import Mark, Sources
from tidelog.control.timeouts import in_time
from tidelog.errors import (
    BrokerError,
    DataLoss,
    LostCheckpoint,
    OutcomeUnknown,
    ProducerFenced,
    TidelogError,
    UsageError,
)
from tidelog.spark.discovery import INTERNAL
from tidelog.spark.offsets import to_json
from tidelog.spark.options import GO_ON
from tidelog.spark.routing import lost_target, partitions_there
from tidelog.spark.staging import DURABILITY, OpenCluster, Stage, cut, staged, targets_of

FENCED_TRIES = 8  # of a batch write, beside others of the same sink
WAIT_S = 0.2
MEMORY = "memory"


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


class Owned(NamedTuple):
    """A transactional id that this process has, and the sink's last mark."""

    transactions: Transactions
    mark: Mark | None


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
    due = is_due(mark, writing) and marks.is_worth_a_mark(mark, writing.sources, rows=rows, counts=writing.counts)
    if due and owned is None:
        owned = _take(cluster, writing)
        due = is_due(owned.mark, writing)
    if due and owned is not None:
        owned = owned._replace(mark=_write(owned, writing, stages, open_cluster))
    if owned is not None:
        kept[writing.sink] = owned
    cut(cluster, stages)
    return due


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
) -> Mark:
    owner, before = owned
    cluster = owner.cluster
    reported = _reported(cluster, writing)
    ids = _ids(cluster, writing, before)
    _warn_of_memory(cluster, targets_of(stages))
    with _in_time(owner, writing), owner.transaction() as producer:
        written = produce(owner, stages, open_cluster)
        if writing.group is not None:
            owner.send_offsets(writing.group, reported)
        mark = Mark(
            sink=writing.sink,
            query_id=writing.query_id,
            batch_id=writing.batch_id,
            sources=writing.sources,
            ends=_ends(cluster, writing, before, written),
            time_ms=int(time.time() * 1000),
            generation=writing.generation,
            ids=ids,
            counts=added(NOTHING if before is None else before.counts, writing.counts),
        )
        name, value = marks.encode(mark)
        producer.send(marks.topic_of(writing.sink), value, key=key or name, partition=0)
    return mark


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


def _ends(
    cluster: Cluster, writing: Writing, before: Mark | None, written: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """For every partition of every target."""
    old = {at.topic for at in before.ends} if before is not None else set()
    made = () if writing.marked else writing.topics
    topics = sorted({*writing.topics, *(at.topic for at in written), *old})
    cluster.retry(lambda: cluster.ask_metadata(topics))  # one may have more partitions than before
    targets = set(written)
    for topic in topics:
        try:
            targets.update(cluster.partitions(topic, auto_create=topic in made))
        except BrokerError as error:
            if error.code not in UNKNOWN_TOPIC or topic not in old:
                raise
    told = before.ends if before is not None else {}
    untold = [at for at in targets if at not in written and at not in told]
    now = {at: found.offset for at, found in list_offsets(cluster, dict.fromkeys(untold, LATEST)).items()}
    return dict(marks.ends_after(before, written, sorted(targets), now))


def _reported(cluster: Cluster, writing: Writing) -> dict[TopicPartition, int]:
    """The offsets of sources that are on this cluster: others cannot be a group's here."""
    if writing.group is None:
        return {}
    known: dict[str, set[int]] = {}
    for topic in {at.topic for at in writing.sources.offsets}:
        try:
            known[topic] = set(cluster.topic(topic).partitions)
        except BrokerError:
            continue
    return {at: n for at, n in writing.sources.offsets.items() if at.partition in known.get(at.topic, ())}


def _ids(cluster: Cluster, writing: Writing, before: Mark | None) -> dict[str, str]:
    """Of the topics that were read, as far as they are on this cluster, and of those that are written. One that is not
    what the last mark says was deleted, and made anew: from where the query was it would read on in another topic, or
    write on. One that had nothing yet has lost nothing: who starts the app makes it anew (`pipelines/placing.py`).
    """
    if not writing.marked:
        return {}
    read = {at.topic for at in writing.sources.offsets if not at.topic.startswith(INTERNAL)}
    named = sorted(read.union(writing.topics))
    known = _known(cluster, named, writing.topics)
    found = {topic: known[topic].topic_id.hex() for topic in named if topic in known and known[topic].has_id}
    told = {} if before is None else before.ids
    for topic in (topic for topic, one in found.items() if told.get(topic, one) != one):
        assert before is not None
        if topic in writing.topics and any(end for at, end in before.ends.items() if at.topic == topic):
            raise lost_target(topic, f"was deleted and made anew after micro-batch {before.batch_id}")
        if topic in read:
            raise DataLoss(
                f"topic {topic} was deleted and made anew after micro-batch {before.batch_id} had read the other one of"
                f" this name; data may be lost: {GO_ON}"
            )
    return found


def _known(cluster: Cluster, topics: Sequence[str], targets: Sequence[str]) -> Mapping[str, Topic]:
    """Not as it was known before: it may be another. The broker that is asked may not know of all targets yet."""
    known = cluster.retry(lambda: cluster.ask_metadata(topics)).topics
    missing = [topic for topic in targets if topic not in known or not known[topic].led]
    for topic in missing:
        cluster.forget()
        partitions_there(cluster, topic)
    return cluster.retry(lambda: cluster.ask_metadata(topics)).topics if missing else known


# Warnings -------------------------------------------------------------------------------------------------------------

_looked_at: set[str] = set()


def _warn_of_memory(cluster: Cluster, topics: Iterable[str]) -> None:
    """Once a topic and process."""
    for topic in set(topics) - _looked_at:
        _looked_at.add(topic)
        try:
            found = configs.describe(cluster, configs.TOPIC, topic, keys=[DURABILITY])
        except TidelogError:
            continue
        if any(one.name == DURABILITY and one.value == MEMORY for one in found):
            import logging

            logging.getLogger(__name__).warning(
                "topic %s is written exactly once and has %s=%s: a power cut may lose what a mark says is there; use a"
                " durable topic, or deliveryGuarantee at-least-once",
                *(topic, DURABILITY, MEMORY),
            )
