"""How far a query has read, as the offsets of a group: kcat, Kafka's tools and lag exporters see Spark's lag.

The group is the one that an option names, else `tidelog.<query name>`. The name is Spark's, and Spark tells it to tasks
alone, while offsets are known where the driver plans. So they meet at the broker: the first task of a micro-batch
commits where its range begins, with the planner's token as metadata; the planner looks for its token among the groups,
and from then on it is the one who commits.

    unknown     a token goes out with each micro-batch and is looked for at the next trigger
    known       reported at a trigger: at once when nothing is new to read, else every REPORT_EVERY_S; and at the end
    silent      by option; or the query has no name; or its sink reports to the same group and has taken the token's
                place, in its own transaction; or the brokers did not let us

It is for tools: the checkpoint counts. So a fault is only said, once; a broker that was not reached is tried again.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.client.admin import groups
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.errors import BrokerError, TidelogError
from tidelog.spark.offsets import Offsets

if TYPE_CHECKING:
    from tidelog.spark.discovery import Discovery

PREFIX = "tidelog."
NO_GROUP = "none"
REPORT_EVERY_S = 1.0
LOOKS = 3  # micro-batches
DESCRIPTION = "spark.job.description"  # a local property of the query's tasks, which begins with the query's name
NAMED = re.compile(r"(?P<name>.+)\nid = [0-9a-f-]{36}\nrunId = ", re.DOTALL)


def name_in(description: str | None) -> str | None:
    """Of a query; None where it has none."""
    found = NAMED.match(description or "")
    return found["name"] if found else None


class OffsetReporter:
    """Of one query, where it is planned."""

    def __init__(self, discovery: Discovery, group: str | None) -> None:
        self._discovery = discovery
        self.group = None if group == NO_GROUP else group
        self.token: str | None = uuid.uuid4().hex if group is None else None  # for the next micro-batch
        self._looks = 0
        self._awaited = self._warned = False
        self._reported: Offsets = {}
        self._reported_at: float | None = None
        self._reached: Offsets = {}

    def sent(self) -> None:
        """The token is on its way."""
        self._awaited = True

    def trigger(self, reached: Offsets, *, idle: bool, now: float) -> None:
        """Also looks for the token: tasks of the micro-batch before are done."""
        if self._awaited:
            self._try(self._look)
        self.note(reached, idle=idle, now=now)

    def note(self, reached: Offsets, *, idle: bool = False, now: float) -> None:
        """All before these offsets is done."""
        self._reached = reached
        waits = self._reported_at is not None and now - self._reported_at < REPORT_EVERY_S
        if self.group is not None and (idle or not waits):
            self._reported_at = now
            self.report()

    def report(self) -> None:
        if self.group is not None and self._reached != self._reported:
            self._try(self._commit)

    def _commit(self) -> None:
        assert self.group is not None
        groups.commit(self._discovery.cluster, self.group, self._reached)
        self._reported = self._reached

    def _look(self) -> None:
        self._awaited = False
        self._looks += 1
        assert self.token is not None
        self.group = group_with(self._discovery.cluster, self.token)
        if self.group is not None or self._looks == LOOKS:
            self.token = None

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except TidelogError as error:
            if not self._warned:
                warn(self.group or f"{PREFIX}<query name>", error)
            self._warned = True
            if isinstance(error, BrokerError):
                self.group = self.token = None


def group_with(cluster: Cluster, token: str) -> str | None:
    for one in groups.list_all(cluster):
        if one.group.startswith(PREFIX) and any(
            found.metadata == token for found in groups.committed(cluster, one.group).values()
        ):
            return one.group
    return None


def introduce(cluster: Cluster, at: TopicPartition, start: int, token: str) -> None:
    """In a task: says which group its query has."""
    from pyspark import TaskContext

    context = TaskContext.get()
    name = name_in(context.getLocalProperty(DESCRIPTION)) if context is not None else None
    if name is None:
        return
    try:
        groups.commit(cluster, PREFIX + name, {at: start}, metadata=token)
    except TidelogError as error:
        warn(PREFIX + name, error)


def warn(group: str, error: TidelogError) -> None:
    import logging

    logging.getLogger(__name__).warning("source offsets are not reported as group %s: %s", group, error)
