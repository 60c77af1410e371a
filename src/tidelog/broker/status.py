"""What the broker tells of itself: counters, and a record of them in the compacted topic `__tidelog.status`.

    key      {"v":1,"kind":"broker","name":"1"}           the broker's node id
    value    {"at_ms":MS,"started_ms":MS,"requests":{"produce":N,...},"commits":{"le_s":[...],"counts":[...]},...}

Metrics, commands and pages learn from that topic, and from nothing else, how a broker is (`Figures` has all fields).
Other long-running parts report there too, under kinds of their own.

Rules:
- Counting costs an addition. What must be looked at (holes, offline partitions, the disk) is looked at when it is told.
- A record at most every `REPORT_S`, and only when it says something new. It is whole, so older ones are of no use, and
  compaction removes them. Nobody waits for its sync (`durable` False): a crash loses the last seconds.
- Counters begin at 0 with the process; `started_ms` tells who computes rates that they did.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from tidelog.broker import record_text
from tidelog.broker.settings.topic_config import TopicConfig
from tidelog.broker.topics import STATUS_TOPIC
from tidelog.errors import StorageError
from tidelog.log.latency import BOUNDS_S
from tidelog.log.settings import FOREVER, LogSettings
from tidelog.wire.error_code import name as error_name

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.log.log import Log

FIRST_S = 2.0
REPORT_S = 5.0
SEGMENT_BYTES = 1 << 20
API_KEYS = 128
FREE_BYTES_STEP = 64 << 20  # a change of free space that is news
ANY_TIME_MS = 2**63 - 1  # other parts' clocks are their own

STATUS_CONFIG = TopicConfig(
    LogSettings(segment_bytes=SEGMENT_BYTES, retention_ms=FOREVER, durable=False, compact=True),
    SEGMENT_BYTES,
    ANY_TIME_MS,
    ANY_TIME_MS,
    compact=True,
)


class Counters:
    """Changed by the loop's thread, one addition at a time."""

    __slots__ = (
        "connections",
        "faults",
        "malformed",
        "opened",
        "refused",
        "refused_batches",
        "request_bytes",
        "requests",
        "sent_bytes",
    )

    def __init__(self) -> None:
        self.requests = [0] * API_KEYS  # by api key
        self.request_bytes = 0
        self.sent_bytes = 0
        self.connections = 0  # open now
        self.opened = 0
        self.refused = 0  # connections that were one too many
        self.refused_batches: dict[int, int] = defaultdict(int)  # of Produce, by error code
        self.malformed = 0  # requests that were none
        self.faults = 0  # of ours


class Status:
    """Reports for one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._started_ms = broker.now().wall_ms
        self._told: dict[str, Any] = {}

    def begin(self) -> None:
        self._broker.scheduler.call_later(FIRST_S, self._turn)

    def _turn(self) -> None:
        self._broker.scheduler.call_later(REPORT_S, self._turn)
        self.report()

    def report(self) -> None:
        """Writes a record, if there is news."""
        try:
            partition = self._broker.partition(STATUS_TOPIC.name, 0)  # before the figures: it is an open one itself
            assert partition is not None
            figures = self.figures()
            news = {**figures, "disk": _steps(figures["disk"])}
            if news != self._told:
                self._write(partition.log, figures)
                self._told = news
        except StorageError as error:
            self._broker.logger.seldom("status not written", error=error)

    def figures(self) -> dict[str, Any]:
        from tidelog.broker.dispatch import APIS
        from tidelog.broker.queue_totals import queue_totals

        broker = self._broker
        counters, partitions = broker.counters, list(broker.open_partitions())
        return {
            "started_ms": self._started_ms,
            "requests": {entry.name: counters.requests[key] for key, entry in APIS.items() if counters.requests[key]},
            "request_bytes": counters.request_bytes,
            "sent_bytes": counters.sent_bytes,
            "connections": counters.connections,
            "connections_opened": counters.opened,
            "connections_refused": counters.refused,
            "refused_batches": {error_name(code): count for code, count in counters.refused_batches.items()},
            "malformed": counters.malformed,
            "faults": counters.faults,
            "commits": {
                "le_s": BOUNDS_S,
                "counts": list(broker.commits.counts),
                "sum_s": round(broker.commits.sum_s, 6),
            },
            "overload": broker.overload_made.told() if broker.overload_made is not None else {},
            "queues": queue_figures(broker),
            "disk": {"free_bytes": broker.housekeeping.free_bytes, "hours_left": broker.housekeeping.disk_hours_left},
            "partitions": broker.topics.partitions,
            "partitions_open": len(partitions),
            "partitions_offline": sum(one.log.offline is not None or one.log.is_short for one in partitions),
            **queue_totals(broker.queues if broker.has_queues else None),
            "holes": sum(not hole.passed for one in partitions for hole in one.log.holes),
        }

    def _write(self, log: Log, figures: dict[str, Any]) -> None:
        from tidelog.record.codec import check
        from tidelog.record.columns import encode

        wall_ms = self._broker.now().wall_ms
        name = str(self._broker.config.int("node.id"))
        key = record_text.encode({"v": 1, "kind": "broker", "name": name})
        value = record_text.encode({"at_ms": wall_ms, **figures})
        batch = encode([(key, value, (), wall_ms)])
        log.append(memoryview(batch), check(batch), wall_ms)


def queue_figures(broker: Broker) -> dict[str, dict[str, int]]:
    if not broker.has_queues:
        return {}
    from tidelog.broker.queue_figures import figures

    return figures(broker.queues.state)


def _steps(disk: dict[str, Any]) -> dict[str, Any]:
    free, left = disk["free_bytes"], disk["hours_left"]
    return {"free": None if free is None else free // FREE_BYTES_STEP, "left": None if left is None else round(left)}
