"""`tidelog status`: every long-running part, how far it is, and what is wrong; also beside Apache Kafka.

How a part is, `control/health.py` decides. A part that has failed is shown with its reason also when its run has ended,
and so is one that was stopped while it retried after a fault. What has ended, or was last heard of, long ago is left
out, unless it is asked for by name or by --all. The lag of a query that has ended is looked up, by its group: the
query itself cannot tell what has come since.

Exit code 0 where all is well, 1 where a part that is shown has a fault: it has failed, retries, or is gone.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tidelog.cli import options as command
from tidelog.cli.main import FAILED as EXIT_FAILED
from tidelog.cli.main import OK
from tidelog.cli.telling import unknown
from tidelog.cli.terminal import paint, show_json, show_table
from tidelog.control.counts import RECORDS, from_fields
from tidelog.control.health import FAILED, GONE, RETRYING, STOPPED, health_of, is_long_ago
from tidelog.control.metrics import metrics_of
from tidelog.control.status import Report, status_for
from tidelog.errors import TidelogError, UsageError

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster

QUERY = "query"
ENDED = (STOPPED, FAILED, GONE)
SOMETIMES = ("watermark", "held", "late", "left out", "restarts", "next try")
HEADER = ("kind", "name", "state", "rows in", "rows out", "lag", "behind s", *SOMETIMES, "error")
EXAMPLES = """\
  tidelog status
  tidelog status --json
  tidelog status shop.revenue
  tidelog pause shop.revenue
"""


def parser() -> command.Parser:
    made = command.command_parser(
        "status", "Show queries, appliers and all other parts.", EXAMPLES, parent=command.connection_options()
    )
    made.add_argument(
        "part", nargs="?", metavar="PART", help="only parts of this name; an event store: all that run it"
    )
    made.add_argument("--all", action="store_true", help="also parts that ended, or were last heard of, long ago")
    command.add_json(made)
    return made


def run(arguments: list[str]) -> int:
    options = command.parse(parser(), arguments)
    with command.connect(options) as cluster:
        there = status_for(cluster)
        found = [one for one in there if options.part is None or one.is_meant_by(options.part)]
        if options.part is not None and not found:
            raise UsageError(unknown(options.part, (one.name for one in there)))
        now_ms = int(time.time() * 1000)
        every = options.all or options.part is not None
        rows = [of_now(cluster, one, now_ms) for one in sorted(found) if every or not is_long_ago(one, now_ms)]
    if options.json:
        show_json([_fields(one, now_ms) for one in rows])
    else:
        header, cells = with_values(HEADER, [_row(one, now_ms) for one in rows])
        show_table(header, cells)
        if left := len(found) - len(rows):
            print(paint(f"{left} that ended, or were last heard of, long ago are left out; --all shows them", "dim"))
    well = all(health_of(one, now_ms).fault is None for one in rows)
    return OK if well else EXIT_FAILED


def of_now(cluster: Cluster, one: Report, now_ms: int) -> Report:
    """Where the group cannot be read, and of a query of an older version, the lag is what was told last."""
    from tidelog.pipelines.progress import lag_of

    group = one.figures.get("group")
    if one.kind != QUERY or health_of(one, now_ms).state not in ENDED or not isinstance(group, str):
        return one
    with suppress(TidelogError):
        lag = lag_of(cluster, group)
        return one._replace(figures={**one.figures, "lag": None if lag is None else lag.fields})
    return one


def with_values(header: Sequence[str], rows: list[list[Any]]) -> tuple[list[str], list[list[Any]]]:
    """Without the columns of SOMETIMES in which no part has anything."""
    kept = [n for n, name in enumerate(header) if name not in SOMETIMES or any(row[n] is not None for row in rows)]
    return [header[n] for n in kept], [[row[n] for n in kept] for row in rows]


def _fields(one: Report, now_ms: int) -> dict[str, Any]:
    how = health_of(one, now_ms)
    return {"kind": one.kind, "name": one.name, "health": how.fault, **one.figures, "state": how.state}


def _row(one: Report, now_ms: int) -> list[Any]:
    how, told = health_of(one, now_ms), metrics_of(one.figures)
    lag_s = None if told.lag_seconds is None else f"{told.lag_seconds:.1f}"
    shown = how.said if how.state == GONE else how.reason if how.state in (RETRYING, FAILED, STOPPED) else None
    left_out = from_fields({RECORDS: one.figures.get("left_out")}).get(RECORDS, {})
    return [
        *(one.kind, one.name, how.state, told.rows_in, told.rows_out, told.lag_records, lag_s),
        _time(told.watermark_ms),
        _held(one.figures.get("held")),
        told.late_rows or None,
        sum(sum(sums.values()) for sums in left_out.values()) if left_out else None,
        told.restarts or None,
        _time(one.figures.get("next_try_ms")) if how.state == RETRYING else None,
        shown,
    ]


def _held(told: Any) -> int | None:
    """Rows, and windows that are open, which wait for the watermark, of all operators; --json has them by name."""
    numbers = [rows for rows in told.values() if isinstance(rows, int)] if isinstance(told, dict) else []
    return sum(numbers) or None


def _time(at_ms: Any) -> str | None:
    """In UTC, to the second."""
    if not isinstance(at_ms, int | float):
        return None
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
