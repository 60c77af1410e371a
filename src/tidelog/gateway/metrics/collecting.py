"""Where each metric comes from: Kafka's own APIs for topics and groups, `__tidelog.status` for brokers and parts.

A part that the broker refuses (an authorizer, an API that it lacks) is left out and named in
`tidelog_scrape_failed`; the others are told. Only a refused login, or no broker at all, is an error of the request.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from tidelog.client.admin import brokers, groups
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import NO_LEADER, Metadata, TopicPartition, by_topic
from tidelog.client.offsets import EARLIEST, LATEST
from tidelog.control import lag
from tidelog.control.counts import RECORDS, from_fields
from tidelog.control.health import health_of, is_long_ago
from tidelog.control.lag import Unread
from tidelog.control.metrics import lost_by_operator, metrics_of
from tidelog.control.status import Report, read_status
from tidelog.errors import BrokerError
from tidelog.gateway.access import LOGIN_REFUSED
from tidelog.gateway.metrics import table
from tidelog.gateway.metrics.table import Buckets, Metric, Sample
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

PARTITIONS_A_REQUEST = 2_000

Found = dict[Metric, list[Sample]]
Offsets = dict[TopicPartition, int]


def collect(cluster: Cluster) -> Found:
    started = time.monotonic()
    found: Found = defaultdict(list)
    failed = found[table.SCRAPE_FAILED]
    metadata = cluster.retry(lambda: cluster.ask_metadata(None))

    def part(name: str, gather: Callable[[], object]) -> None:
        try:
            gather()
            failed.append(((name,), 0))
        except BrokerError as error:
            if error.code in LOGIN_REFUSED:
                raise
            failed.append(((name,), 1))

    part("topics", lambda: _topics(cluster, metadata, found))
    part("sizes", lambda: _sizes(cluster, found))
    part("groups", lambda: _groups(cluster, found))
    part("brokers", lambda: _brokers(cluster, metadata, found))
    part("parts", lambda: _parts(cluster, found))
    found[table.SCRAPE_SECONDS].append(((), round(time.monotonic() - started, 6)))
    return {metric: found[metric] for metric in table.METRICS if metric in found}


def _topics(cluster: Cluster, metadata: Metadata, found: Found) -> None:
    places = [TopicPartition(name, index) for name, topic in metadata.topics.items() for index in topic.partitions]
    led = [at for at in places if metadata.topics[at.topic].partitions[at.partition].leader != NO_LEADER]
    found[table.LEADERLESS].append(((), len(places) - len(led)))
    for name, topic in sorted(metadata.topics.items()):
        found[table.TOPIC_PARTITIONS].append(((name,), len(topic.partitions)))
    found[table.END_OFFSET] += _by_partition(_offsets(cluster, metadata, led, LATEST))
    found[table.START_OFFSET] += _by_partition(_offsets(cluster, metadata, led, EARLIEST))


def _offsets(cluster: Cluster, metadata: Metadata, places: Iterable[TopicPartition], which: int) -> Offsets:
    """Without those that the broker does not tell: one partition in trouble must not hide all others."""
    by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
    for at in places:
        by_leader[metadata.topics[at.topic].partitions[at.partition].leader].append(at)
    offsets: Offsets = {}
    for node_id, led in by_leader.items():
        for start in range(0, len(led), PARTITIONS_A_REQUEST):
            request = ListOffsetsRequest(replica_id=-1)
            for topic, indexes in by_topic(led[start : start + PARTITIONS_A_REQUEST]).items():
                wanted = [ListOffsetsPartition(partition_index=index, timestamp=which) for index in indexes]
                request.topics.append(ListOffsetsTopic(name=topic, partitions=wanted))
            for answered in cluster.node(node_id).call(request, ListOffsetsResponse).topics:
                for place in answered.partitions:
                    if not place.error_code:
                        offsets[TopicPartition(answered.name, place.partition_index)] = place.offset
    return offsets


def _sizes(cluster: Cluster, found: Found) -> None:
    sizes: Offsets = {}
    for folder in brokers.log_dirs(cluster):
        for at, size in folder.sizes.items():
            sizes[at] = max(size, sizes.get(at, 0))
    found[table.SIZE] += _by_partition(sizes)


def _groups(cluster: Cluster, found: Found) -> None:
    listed = groups.list_all(cluster)
    states = Counter(one.state or "Unknown" for one in listed)
    found[table.GROUPS] += [((state,), count) for state, count in sorted(states.items())]
    held = {one.group: groups.committed(cluster, one.group) for one in listed}
    offsets = {group: {at: one.offset for at, one in committed.items()} for group, committed in held.items()}
    for group, behind in lag.of_groups(cluster, offsets).items():
        for unread in behind:
            _unread((group, unread.at.topic, str(unread.at.partition)), unread, found)


def _unread(labels: tuple[str, ...], unread: Unread, found: Found) -> None:
    """What cannot be told, because the partition is gone or the user may not look, is left out."""
    found[table.COMMITTED].append((labels, unread.committed))
    for metric, told, scale in (
        (table.LAG, unread.records, 1),
        (table.LAG_BYTES, unread.bytes, 1),
        (table.LAG_SECONDS, unread.age_ms, 1000),
        (table.RETENTION_LEFT, unread.left_ms, 1000),
        (table.LOST, unread.lost, 1),
    ):
        if told is not None:
            found[metric].append((labels, told if scale == 1 else told / scale))


def _brokers(cluster: Cluster, metadata: Metadata, found: Found) -> None:
    found[table.BROKERS].append(((), len(metadata.nodes)))
    for report in read_status(cluster):
        if report.kind == "broker":
            _broker(report, found)


def _broker(report: Report, found: Found) -> None:
    told = report.figures
    labels = (report.name,)
    for metric, key in SIMPLE.items():
        if isinstance(told.get(key), int):
            found[metric].append((labels, told[key]))
    for metric, key in TIMES.items():
        found[metric].append((labels, told[key] / 1000))
    for api, count in sorted(told["requests"].items()):
        found[table.REQUESTS].append(((report.name, api), count))
    for error, count in sorted(told.get("refused_batches", {}).items()):
        found[table.REFUSED_BATCHES].append(((report.name, error), count))
    for topic, figures in sorted(told.get("overload", {}).items()):
        _overload(topic, figures, found)
    commits, disk = told["commits"], told["disk"]
    found[table.COMMITS].append((labels, Buckets(commits["le_s"], commits["counts"], commits["sum_s"])))
    if disk["free_bytes"] is not None:
        found[table.DISK_FREE].append((labels, disk["free_bytes"]))
    if disk["hours_left"] is not None:
        found[table.DISK_LEFT].append((labels, round(disk["hours_left"] * 3600)))


def _overload(topic: str, told: dict[str, Any], found: Found) -> None:
    found[table.HELD_BATCHES].append(((topic,), told["held"]))
    found[table.HELD_TIME].append(((topic,), told["held_ms"] / 1000))
    found[table.OVERLOAD_REFUSED].append(((topic,), told["refused"]))
    found[table.DROPPED].append(((topic,), told["dropped"]))
    found[table.DEAD_GROUPS].append(((topic,), len(told["dead"])))
    found[table.DROPPED_UNREAD] += [((topic, group), records) for group, records in sorted(told["lost"].items())]


def _parts(cluster: Cluster, found: Found) -> None:
    """Brokers have their own figures. Of a part that ended long ago nothing is told."""
    now_ms = time.time() * 1000
    for report in sorted(read_status(cluster)):
        if report.kind != "broker" and not is_long_ago(report, now_ms):
            _part(report, now_ms, found)


def _part(report: Report, now_ms: float, found: Found) -> None:
    labels, how, told = (report.kind, report.name), health_of(report, now_ms), metrics_of(report.figures)
    found[table.PART_HEALTHY].append((labels, int(how.fault is None)))
    found[table.PART_STATE].append(((*labels, how.state), 1))
    _lost(report, found)
    for metric, value, scale in (
        (table.PART_REPORTED, report.figures.get("at_ms"), 1000),
        (table.PART_ROWS_IN, told.rows_in, 1),
        (table.PART_ROWS_OUT, told.rows_out, 1),
        (table.PART_LATE_ROWS, told.late_rows, 1),
        (table.PART_LAG, told.lag_records, 1),
        (table.PART_LAG_SECONDS, told.lag_seconds, 1),
        (table.PART_WATERMARK, told.watermark_ms, 1000),
        (table.PART_STATE_ROWS, told.state_rows, 1),
        (table.PART_STATE_BYTES, told.state_bytes, 1),
        (table.PART_BATCH, told.batch_ms, 1000),
        (table.PART_RESTARTS, told.restarts, 1),
        (table.PART_ERROR, told.last_error_ms, 1000),
        (table.PART_NEXT_TRY, report.figures.get("next_try_ms"), 1000),
    ):
        if isinstance(value, int | float):
            found[metric].append((labels, value if scale == 1 else value / scale))
    if report.kind == "capture" and isinstance(lag := report.figures.get("lag"), dict):
        for metric, value in ((table.CAPTURE_LAG, lag.get("bytes")), (table.CAPTURE_KEPT, lag.get("kept_bytes"))):
            if isinstance(value, int):
                found[metric].append(((report.name,), value))


def _lost(report: Report, found: Found) -> None:
    """By what it was lost to: a topic and a reason, or an operator and a reason."""
    labels, left_out = (report.kind, report.name), from_fields({RECORDS: report.figures.get("left_out")})
    for topic, sums in sorted(left_out.get(RECORDS, {}).items()):
        found[table.PART_LEFT_OUT] += [((*labels, topic, reason), number) for reason, number in sorted(sums.items())]
    for operator, lost in sorted(lost_by_operator(report.figures).items()):
        found[table.PART_DROPPED] += [((*labels, operator, reason), number) for reason, number in sorted(lost.items())]


SIMPLE: dict[Metric, str] = {
    table.REQUEST_BYTES: "request_bytes",
    table.SENT_BYTES: "sent_bytes",
    table.MALFORMED: "malformed",
    table.FAULTS: "faults",
    table.CONNECTIONS: "connections",
    table.OPENED: "connections_opened",
    table.REFUSED: "connections_refused",
    table.PARTITIONS: "partitions",
    table.PARTITIONS_OPEN: "partitions_open",
    table.OFFLINE: "partitions_offline",
    table.HOLES: "holes",
    table.QUEUE_IN_FLIGHT: "queue_in_flight",
    table.QUEUE_DELAYED: "queue_delayed",
    table.QUEUE_REDELIVERED: "queue_redelivered",
    table.QUEUE_DEAD: "queue_dead_letters",
    table.QUEUE_DELAYS_REFUSED: "queue_delays_refused",
}
TIMES: dict[Metric, str] = {table.STARTED: "started_ms", table.REPORTED: "at_ms"}


def _by_partition(values: dict[TopicPartition, Any]) -> list[Sample]:
    return [((at.topic, str(at.partition)), value) for at, value in sorted(values.items())]
