"""The mark of a sink: one record, written last in the transaction, that says how far the sink has come.

    topic    __tidelog.marks.<sink>, one partition, compacted, kept for the feed horizon
    key      the sink's name
    value    {"v":1,"sink":S,"generation":G,"query":Q,"batch":N,
              "sources":{"offsets":{TOPIC:{"0":N}},"positions":{SOURCE:TEXT}},"ends":{TOPIC:{"0":N}},"time_ms":MS,
              "ids":{TOPIC:ID},"counts":{KIND:{NAME:{WHAT:N}}},"complete_ms":MS,"watermark_ms":MS,"watermarks":{TOPIC:MS}}

Rules (docs/formats/mark.md has every field):
- A sink has a topic of its own, so that nobody else's open transaction holds back the last stable offset.
- All offsets are the next one: `sources` of what was read, `ends` of what was written, for every partition of every
  target; one that was not written to repeats its last end.
- Equal marks are equal bytes: fields in this order, topics sorted, partitions sorted by number, no blanks.
- A value with a higher `v` is refused. Fields that are not known are passed over.
- A mark counts when it is committed. `read_mark` gives the last that is, at or below an end offset; one that is to hold
  until the next commit is read up to an end that was taken after the sink's transactional id was (`start()`): by then
  what was open has been ended, and nobody but the new owner writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidelog.client.cluster import UNKNOWN_TOPIC, Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, list_offsets
from tidelog.control import counts
from tidelog.control.counts import NOTHING, Counts
from tidelog.control.offsets import from_fields, to_fields
from tidelog.control.reading import read
from tidelog.errors import BrokerError, LostCheckpoint, MalformedMark, UsageError

VERSION = 1
TOPIC_PREFIX = "__tidelog.marks."
STAGING_PREFIX = "__tidelog.staging."
OWNER_PREFIX = "tidelog.sink."
FEED_HORIZON_MS = 7 * 24 * 3600 * 1000
SINK_LENGTH_MAX = 249 - len(STAGING_PREFIX)  # a topic's name has at most 249
LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
NOTHING_HELD = -1  # instead of a watermark: the query has no event time, or keeps no state
FIRST_LOOK = 16  # offsets before the end: a commit takes two, and an abort before it as many

Ends = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Sources:
    """What a sink has read: the next offset by partition, or a database's position (its own text) by source."""

    offsets: Ends = field(default_factory=dict)
    positions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Mark:
    sink: str
    query_id: str
    batch_id: int
    sources: Sources
    ends: Ends
    time_ms: int
    generation: int = 0
    ids: Mapping[str, str] = field(default_factory=dict)  # of topics read and written, in hexadecimal, if known
    counts: Counts = field(default_factory=lambda: NOTHING)  # sums since the sink's first micro-batch
    complete_ms: int | None = None  # of a capture: nothing that was committed before is still to come
    watermark_ms: int | None = None  # with which the micro-batch ran, or NOTHING_HELD; None: not known
    watermarks: Mapping[str, int] = field(default_factory=dict)  # of inputs whose silence holds it, each alone


# Names ----------------------------------------------------------------------------------------------------------------


def topic_of(sink: str) -> str:
    return TOPIC_PREFIX + _checked(sink)


def staging_topic_of(sink: str) -> str:
    return STAGING_PREFIX + _checked(sink)


def transactional_id_of(sink: str) -> str:
    return OWNER_PREFIX + _checked(sink)


def partition_of_marks(sink: str) -> TopicPartition:
    return TopicPartition(topic_of(sink), 0)


def _checked(sink: str) -> str:
    if 0 < len(sink) <= SINK_LENGTH_MAX and LEGAL.issuperset(sink):
        return sink
    raise UsageError(
        f"{sink!r} is not a valid sink name; use 1 to {SINK_LENGTH_MAX} letters, digits, '.', '_' and '-' (sinkName)"
    )


# Bytes ----------------------------------------------------------------------------------------------------------------


def encode(mark: Mark) -> tuple[bytes, bytes]:
    """Key and value."""
    content = {
        "v": VERSION,
        "sink": mark.sink,
        "generation": mark.generation,
        "query": mark.query_id,
        "batch": mark.batch_id,
        "sources": {
            "offsets": to_fields(mark.sources.offsets),
            "positions": dict(sorted(mark.sources.positions.items())),
        },
        "ends": to_fields(mark.ends),
        "time_ms": mark.time_ms,
    }
    content |= {"ids": dict(sorted(mark.ids.items()))} if mark.ids else {}
    content |= {"counts": counts.to_fields(mark.counts)} if mark.counts else {}
    content |= {"complete_ms": mark.complete_ms} if mark.complete_ms is not None else {}
    content |= {"watermark_ms": mark.watermark_ms} if mark.watermark_ms is not None else {}
    content |= {"watermarks": dict(sorted(mark.watermarks.items()))} if mark.watermarks else {}
    return mark.sink.encode(), json.dumps(content, separators=(",", ":")).encode()


def decode(value: bytes) -> Mark:
    try:
        content = json.loads(value)
        version = content["v"]
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedMark(f"{value[:80]!r} is not a mark; something else was written to a topic of marks") from error
    if not isinstance(version, int) or version > VERSION:
        raise MalformedMark(
            f"a mark of sink {content.get('sink')!r} has format version {version}, and this Tidelog knows version"
            f" {VERSION}; use the newer one"
        )
    try:
        return _mark(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MalformedMark(f"{value[:80]!r} is not a mark of version {version}: {error!r}") from error


def _mark(content: Mapping[str, Any]) -> Mark:
    sources = content["sources"]
    return Mark(
        sink=str(content["sink"]),
        query_id=str(content["query"]),
        batch_id=int(content["batch"]),
        sources=Sources(
            from_fields(sources["offsets"]), {str(key): str(at) for key, at in sources["positions"].items()}
        ),
        ends=from_fields(content["ends"]),
        time_ms=int(content["time_ms"]),
        generation=int(content["generation"]),
        ids={str(topic): str(one) for topic, one in content.get("ids", {}).items()},
        counts=counts.from_fields(content.get("counts")),
        complete_ms=None if content.get("complete_ms") is None else int(content["complete_ms"]),
        watermark_ms=None if content.get("watermark_ms") is None else int(content["watermark_ms"]),
        watermarks={str(topic): int(at) for topic, at in content.get("watermarks", {}).items()},
    )


# Decisions ------------------------------------------------------------------------------------------------------------


def is_due(mark: Mark | None, sink: str, query_id: str, batch_id: int) -> bool:
    """Whether a micro-batch is still to be written. A mark of another query means that a checkpoint was lost: to write
    would repeat, or leave out, what nobody can tell.
    """
    if mark is None:
        return True
    if mark.query_id != query_id:
        raise LostCheckpoint(
            f"sink {sink!r} was last written by query {mark.query_id} (batch {mark.batch_id}), and this is query"
            f" {query_id} (batch {batch_id}): its checkpoint was lost, or two queries have one sink name; give each"
            " query a name of its own, and after a lost checkpoint either go on from the mark's sources (if the query"
            " does not keep state) or rebuild into a new topic",
            "was lost, or belongs to another query",
        )
    return batch_id > mark.batch_id


def is_worth_a_mark(
    before: Mark | None, sources: Sources, *, rows: int, counts: Counts = NOTHING, watermark_ms: int | None = None
) -> bool:
    """A micro-batch without rows that moves neither a source nor the watermark, and has counted nothing, says nothing.
    A query that holds nothing back, or whose watermark is not known, moves none.
    """
    if rows > 0 or counts or before is None or before.sources != sources:
        return True
    return watermark_ms not in (None, NOTHING_HELD, before.watermark_ms)


def ends_after(before: Mark | None, written: Ends, targets: Iterable[TopicPartition], now: Ends) -> Ends:
    """The `ends` of the next mark. `written` is from the produce replies; `now` is where partitions end that no mark
    has told of yet.
    """
    last = before.ends if before is not None else {}
    return {at: written.get(at, last.get(at, now.get(at, 0))) for at in targets}


# The topic ------------------------------------------------------------------------------------------------------------


def settings_of_topic(horizon_ms: int = FEED_HORIZON_MS) -> dict[str, str]:
    return {"cleanup.policy": "compact", "min.compaction.lag.ms": str(horizon_ms)}


def ensure_topic(cluster: Cluster, sink: str, *, horizon_ms: int = FEED_HORIZON_MS) -> TopicPartition:
    """Makes the topic unless it is there; what is there keeps its settings."""
    at = partition_of_marks(sink)
    from tidelog.client.admin import topics

    topics.ensure(cluster, at.topic, partitions=1, configs=settings_of_topic(horizon_ms))
    return at


def end_of_marks(cluster: Cluster, sink: str) -> int:
    """To be taken after the sink's transactional id was. 0 where there is no topic yet."""
    return _end(cluster, partition_of_marks(sink), READ_UNCOMMITTED)


def read_mark(cluster: Cluster, sink: str, end: int | None = None) -> Mark | None:
    """The last committed mark below `end`; by default the last that is committed by now, where a commit that is under
    way may or may not count.
    """
    at = partition_of_marks(sink)
    if end is None:
        end = _end(cluster, at, READ_COMMITTED)
    if end == 0:
        return None
    start = list_offsets(cluster, {at: EARLIEST})[at].offset
    look = FIRST_LOOK
    while True:
        # From the end backwards: seven days of marks may be many.
        begin = max(start, end - look)
        values = list(_values(cluster, at, begin, end))
        if values:
            return decode(values[-1])
        if begin == start:
            return None
        look *= 8


def read_marks(cluster: Cluster, sink: str, end: int) -> list[Mark]:
    """All committed marks below `end` that compaction has left, the oldest first."""
    return list(each_mark(cluster, sink, end))


def each_mark(cluster: Cluster, sink: str, end: int) -> Iterator[Mark]:
    """`read_marks` one by one, as they are read: those of a horizon may be more than fit into memory."""
    if end == 0:
        return
    at = partition_of_marks(sink)
    start = list_offsets(cluster, {at: EARLIEST})[at].offset
    yield from map(decode, _values(cluster, at, start, end))


def _end(cluster: Cluster, at: TopicPartition, isolation: int) -> int:
    try:
        return list_offsets(cluster, {at: LATEST}, isolation=isolation)[at].offset
    except BrokerError as error:
        if error.code in UNKNOWN_TOPIC:
            return 0
        raise


def _values(cluster: Cluster, at: TopicPartition, begin: int, end: int) -> Iterator[bytes]:
    """Of committed records, waiting until what is open there is ended."""
    return (row.value for _, row in read(cluster, {at: begin}, {at: end}) if row.value is not None)
