"""Every metric, in one table: what is served and what docs/reference/metrics.md lists are made from it.

Rules for names: they begin with `tidelog_`, have base units (bytes, seconds), and counters end in `_total`. Counters of
a broker begin at 0 with its process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"


class Metric(NamedTuple):
    name: str
    kind: str
    what: str
    labels: tuple[str, ...] = ()


class Buckets(NamedTuple):
    """The value of a histogram; `counts` has one more than `bounds`, for what is above all of them."""

    bounds: Sequence[float]
    counts: Sequence[int]
    sum: float


Value = int | float | Buckets
Sample = tuple[tuple[str, ...], Value]
"""The values of the labels, in the metric's order, and the value."""

PARTITION = ("topic", "partition")
GROUP = ("group", *PARTITION)
BROKER = ("broker",)
PART = ("kind", "name")
NAME = ("name",)

BROKERS = Metric("tidelog_brokers", GAUGE, "Brokers in the cluster's metadata.")
SCRAPE_FAILED = Metric(
    "tidelog_scrape_failed", GAUGE, "1 for each part of this scrape that the broker refused.", ("part",)
)
SCRAPE_SECONDS = Metric("tidelog_scrape_duration_seconds", GAUGE, "How long it took to gather this answer.")

TOPIC_PARTITIONS = Metric("tidelog_topic_partitions", GAUGE, "Partitions of a topic.", ("topic",))
START_OFFSET = Metric("tidelog_partition_start_offset", GAUGE, "Offset of the oldest record that is kept.", PARTITION)
END_OFFSET = Metric("tidelog_partition_end_offset", GAUGE, "Offset that the next visible record gets.", PARTITION)
SIZE = Metric("tidelog_partition_size_bytes", GAUGE, "Bytes of a partition on disk, of its largest replica.", PARTITION)
LEADERLESS = Metric("tidelog_partitions_without_leader", GAUGE, "Partitions that are offline, in all topics.")

GROUPS = Metric("tidelog_groups", GAUGE, "Consumer groups, by state.", ("state",))
COMMITTED = Metric("tidelog_group_committed_offset", GAUGE, "Offset that a group has committed.", GROUP)
LAG = Metric("tidelog_group_lag_records", GAUGE, "Records that a group has not read.", GROUP)
LAG_BYTES = Metric(
    "tidelog_group_lag_bytes", GAUGE, "Bytes that a group has not read, in proportion to records.", GROUP
)
LAG_SECONDS = Metric(
    "tidelog_group_lag_seconds", GAUGE, "How long ago the first record was written that a group has not read.", GROUP
)
RETENTION_LEFT = Metric(
    "tidelog_group_retention_left_seconds",
    GAUGE,
    "Time until retention takes what a group has not read; absent where it never does.",
    GROUP,
)
LOST = Metric(
    "tidelog_group_lost_records", GAUGE, "Records behind a group's commit that were deleted before it read them.", GROUP
)

STARTED = Metric("tidelog_broker_start_time_seconds", GAUGE, "When the broker started, as Unix time.", BROKER)
REPORTED = Metric(
    "tidelog_broker_report_time_seconds",
    GAUGE,
    "When the broker last wrote its status, as Unix time; an idle broker does not write it.",
    BROKER,
)
REQUESTS = Metric("tidelog_broker_requests_total", COUNTER, "Requests, by Kafka API.", ("broker", "api"))
REQUEST_BYTES = Metric("tidelog_broker_request_bytes_total", COUNTER, "Bytes of requests.", BROKER)
SENT_BYTES = Metric("tidelog_broker_sent_bytes_total", COUNTER, "Bytes of replies.", BROKER)
REFUSED_BATCHES = Metric(
    "tidelog_broker_refused_batches_total",
    COUNTER,
    "Batches that producers sent and the broker refused, by Kafka's name of the error.",
    ("broker", "error"),
)
HELD_BATCHES = Metric(
    "tidelog_overload_held_batches_total",
    COUNTER,
    "Batches that were stored while their producer was made to wait (tidelog.overload.policy=block).",
    ("topic",),
)
HELD_TIME = Metric(
    "tidelog_overload_held_seconds_total", COUNTER, "How long producers were made to wait, all together.", ("topic",)
)
OVERLOAD_REFUSED = Metric(
    "tidelog_overload_refused_batches_total",
    COUNTER,
    "Batches that were refused because a group was more than twice the limit behind.",
    ("topic",),
)
DROPPED = Metric(
    "tidelog_overload_dropped_records_total",
    COUNTER,
    "Records that were deleted above the limit (tidelog.overload.policy=drop).",
    ("topic",),
)
DROPPED_UNREAD = Metric(
    "tidelog_overload_lost_records", GAUGE, "Records that a group lost by that, of all time.", ("topic", "group")
)
DEAD_GROUPS = Metric(
    "tidelog_overload_dead_groups",
    GAUGE,
    "Groups that producers no longer wait for (tidelog.block.dead.ms).",
    ("topic",),
)
MALFORMED = Metric(
    "tidelog_broker_malformed_requests_total",
    COUNTER,
    "Connections ended because their bytes were not a request.",
    BROKER,
)
FAULTS = Metric("tidelog_broker_faults_total", COUNTER, "Faults of the broker's own; each is in its log.", BROKER)
CONNECTIONS = Metric("tidelog_broker_connections", GAUGE, "Connections that are open.", BROKER)
OPENED = Metric("tidelog_broker_connections_opened_total", COUNTER, "Connections that were opened.", BROKER)
REFUSED = Metric(
    "tidelog_broker_connections_refused_total", COUNTER, "Connections that were one too many (max.connections).", BROKER
)
COMMITS = Metric(
    "tidelog_broker_commit_duration_seconds", HISTOGRAM, "How long group commits took to be on disk.", BROKER
)
DISK_FREE = Metric("tidelog_broker_disk_free_bytes", GAUGE, "Free bytes on the disk of the data folder.", BROKER)
DISK_LEFT = Metric(
    "tidelog_broker_disk_left_seconds", GAUGE, "Time until the disk is full, while it is filling; else absent.", BROKER
)
PARTITIONS = Metric("tidelog_broker_partitions", GAUGE, "Partitions that the broker has, its own included.", BROKER)
PARTITIONS_OPEN = Metric("tidelog_broker_partitions_open", GAUGE, "Partitions that are in use.", BROKER)
OFFLINE = Metric(
    "tidelog_broker_partitions_offline", GAUGE, "Partitions that do not accept records because a sync failed.", BROKER
)
HOLES = Metric("tidelog_broker_holes", GAUGE, "Damaged places that readers stop at (tidelog repair).", BROKER)
QUEUE_IN_FLIGHT = Metric("tidelog_broker_queue_in_flight", GAUGE, "Records that members of share groups have.", BROKER)
QUEUE_DELAYED = Metric("tidelog_broker_queue_delayed", GAUGE, "Records of queues that are not due yet.", BROKER)
QUEUE_REDELIVERED = Metric(
    "tidelog_broker_queue_redelivered_total", COUNTER, "Deliveries to share groups that failed and come again.", BROKER
)
QUEUE_DEAD = Metric("tidelog_broker_queue_dead_letters_total", COUNTER, "Records that became dead letters.", BROKER)
QUEUE_DELAYS_REFUSED = Metric(
    "tidelog_broker_queue_delays_refused_total", COUNTER, "Delays that were malformed, negative or too long.", BROKER
)

PART_HEALTHY = Metric(
    "tidelog_part_healthy", GAUGE, "0 if a part has a fault: it has failed, retries or is gone.", PART
)
PART_STATE = Metric("tidelog_part_state", GAUGE, "1 for the state in which a part is.", (*PART, "state"))
PART_REPORTED = Metric("tidelog_part_report_time_seconds", GAUGE, "When a part last reported, as Unix time.", PART)
PART_ROWS_IN = Metric("tidelog_part_rows_in_total", COUNTER, "Rows that a part has read since it was started.", PART)
PART_ROWS_OUT = Metric("tidelog_part_rows_out_total", COUNTER, "Rows that it has written since then.", PART)
PART_LATE_ROWS = Metric("tidelog_part_late_rows_total", COUNTER, "Rows that came too late.", PART)
PART_LEFT_OUT = Metric(
    "tidelog_part_left_out_records_total",
    COUNTER,
    "Records of a topic that a part has left out, by reason, since its output was first run: those that could"
    " not be decoded, and those that were passed.",
    (*PART, "topic", "reason"),
)
PART_DROPPED = Metric(
    "tidelog_part_dropped_rows_total",
    COUNTER,
    "Rows that an operator has dropped, because they were late, or without_time, or without_key; of operators of ours"
    " since the output was first run, of those that begin with spark since the query was started.",
    (*PART, "operator", "reason"),
)
PART_LAG = Metric("tidelog_part_lag_records", GAUGE, "Records that a part has not read.", PART)
PART_LAG_SECONDS = Metric(
    "tidelog_part_lag_seconds", GAUGE, "How long ago the first record was written that a part has not read.", PART
)
PART_WATERMARK = Metric(
    "tidelog_part_watermark_time_seconds", GAUGE, "Event time that is complete, as Unix time.", PART
)
PART_STATE_ROWS = Metric("tidelog_part_state_rows", GAUGE, "Rows of the state that a part keeps.", PART)
PART_STATE_BYTES = Metric("tidelog_part_state_bytes", GAUGE, "Bytes of the state that a part keeps.", PART)
PART_BATCH = Metric(
    "tidelog_part_batch_duration_seconds", GAUGE, "How long its last micro-batch that had rows took.", PART
)
PART_RESTARTS = Metric("tidelog_part_restarts_total", COUNTER, "How often a part was tried again after a fault.", PART)
PART_NEXT_TRY = Metric(
    "tidelog_part_next_try_time_seconds", GAUGE, "When a part that retries is tried again, as Unix time.", PART
)
PART_ERROR = Metric("tidelog_part_last_error_time_seconds", GAUGE, "When a part last had a fault, as Unix time.", PART)
CAPTURE_LAG = Metric("tidelog_capture_lag_bytes", GAUGE, "Bytes of a database's log that a capture has not read.", NAME)
CAPTURE_KEPT = Metric(
    "tidelog_capture_kept_bytes", GAUGE, "Bytes of its log that a database keeps because of a capture.", NAME
)

METRICS = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
