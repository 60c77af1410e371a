"""Whether the topics of a table still have the versions that a join as of event time asks for; it asks their broker.

Rules:
- Compaction keeps the latest row of a key. A join as of an earlier time would get another answer from what is left, so
  a compacted topic is refused unless `min.compaction.lag.ms` covers the horizon: how far back rows may ask.
- Retention deletes rows that are old, also where they are the latest of their key. That is warned of, not refused: a
  query that has been running since before it has them in its state.
- The topics are found in the plan of the table's DataFrame: every source of format `tidelog` or `kafka` below it, with
  the options that it is read by. Where a plan cannot be looked into (Spark Connect) or has no such source, nothing is
  known and nothing is asked, unless a topic is named.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BOOTSTRAP = "kafka.bootstrap.servers"
POLICY, LAG, RETENTION = SETTINGS = ("cleanup.policy", "min.compaction.lag.ms", "retention.ms")
FOREVER = -1
BATCH_RELATION = "DataSourceV2Relation"


class TopicRetention(NamedTuple):
    """How a topic forgets: `compacted_after` and `deleted_after` in ms, None where it does not."""

    topic: str
    compacted_after: int | None
    deleted_after: int | None


def history_of(topic: str, settings: Mapping[str, str | None]) -> TopicRetention:
    policies = {policy.strip() for policy in (settings.get(POLICY) or "").split(",")}
    lag, retention = int(settings.get(LAG) or 0), int(settings.get(RETENTION) or FOREVER)
    deletes = "delete" in policies and retention != FOREVER
    return TopicRetention(topic, lag if "compact" in policies else None, retention if deletes else None)


def check_history(history: TopicRetention, horizon: int) -> None:
    if history.compacted_after is not None and history.compacted_after < horizon:
        raise UsageError(
            f"topic {history.topic} is compacted after {history.compacted_after} ms, and this join asks for versions "
            f"up to {horizon} ms back, which would be gone; set {LAG} of the topic to {horizon} or more, or keep all "
            f"versions by {POLICY}=delete and {RETENTION}={FOREVER}"
        )
    if history.deleted_after is not None:
        warnings.warn(
            f"topic {history.topic} deletes rows after {history.deleted_after} ms, also the latest of a key; a query "
            f"that starts later does not know them: set {RETENTION}={FOREVER} for a table",
            stacklevel=2,
        )


def check_table(table: DataFrame, horizon: int, topic: str | None, bootstrap: str | None) -> None:
    """Refuses a table whose topics may have forgotten what rows up to `horizon` ms back ask for."""
    if (topic is None) != (bootstrap is None):
        raise UsageError("topic and bootstrap are given together, or both are found in the table's plan")
    named = [{BOOTSTRAP: bootstrap, "subscribe": topic}] if bootstrap and topic else _sources(table)
    for options in named:
        for history in _histories(options):
            check_history(history, horizon)


def _histories(options: Mapping[str, str]) -> list[TopicRetention]:
    from tidelog.client.admin.configs import TOPIC, describe
    from tidelog.spark.discovery import Discovery
    from tidelog.spark.options import CHOICES, read_options

    told = {name.lower() for name in CHOICES}
    wanted = {name: value for name, value in options.items() if name.startswith("kafka.") or name.lower() in told}
    discovery = Discovery(read_options(wanted, streaming=True))
    try:
        topics = sorted({at.topic for at in discovery.partitions()})
        found = {name: describe(discovery.cluster, TOPIC, name, keys=SETTINGS) for name in topics}
    finally:
        discovery.close()
    return [history_of(name, {one.name: one.value for one in configs}) for name, configs in found.items()]


def _sources(frame: DataFrame) -> Iterator[Mapping[str, str]]:
    """The options of every source of topics in a DataFrame's plan."""
    from tidelog.spark.plans import sources

    if not hasattr(frame, "_jdf"):
        return
    if frame.isStreaming:
        found = [source.options for source in sources(frame)]
    else:
        leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
        each = [leaves.apply(place) for place in range(leaves.size())]
        found = [_batch_options(leaf) for leaf in each if leaf.getClass().getSimpleName() == BATCH_RELATION]
    yield from (options for options in found if BOOTSTRAP in options)


def _batch_options(leaf: Any) -> dict[str, str]:
    return dict(leaf.options().asCaseSensitiveMap())
