"""Asking a pipeline that runs: a record to the topic of its questions, an answer from that of its replies. No PySpark.

    __tidelog.questions.<app>.<output>    key    the question's id, by which its answer is found
                                          value  a key as JSON: {"user": "ada"}, ["ada"] or "ada"
    __tidelog.replies.<app>.<output>      key    the question's id
                                          value  {"status": "answered", "rows": [...]}, {"status": "unknown"}, or
                                                 {"status": "refused", "error": "..."}

Rules (docs/formats/asking.md):
- Who may write the one topic may ask, who may read the other gets answers, all of them.
- An unknown key, an answer that does not come in time, and a pipeline that does not run are three different things.
- Where replies end is looked at before the question is written: its answer can only come behind that. What comes with
  another id is of others, or late, and passed over; of two answers to one id the first counts.
- Whether the pipeline runs is looked at when an answer has not come at once: who gets one pays nothing for it.
- The topics are durable, and kept for minutes: an answer is worth nothing later, and a topic that forgets its end in a
  power cut would be one that the query has read beyond.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

from tidelog.client.cluster import UNKNOWN_TOPIC, Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.client.producer import Producer
from tidelog.control.catalog import TOPIC, VIEW, Catalog, View
from tidelog.control.derived import Derived
from tidelog.control.health import health_of
from tidelog.control.reading import follow
from tidelog.control.status import Report, read_status
from tidelog.errors import BrokerError, NotAnswered, PipelineStopped, TidelogError, UnknownKey, UsageError

QUESTIONS, REPLIES = "__tidelog.questions.", "__tidelog.replies."
NAME_MAX = 249  # of a topic
KEPT_MS = 10 * 60 * 1000
QUESTION_MAX_BYTES = 16 << 10  # of a batch of questions, as the broker takes them
SETTINGS = {
    QUESTIONS: {"retention.ms": str(KEPT_MS), "segment.ms": str(KEPT_MS), "max.message.bytes": str(QUESTION_MAX_BYTES)},
    REPLIES: {"retention.ms": str(KEPT_MS), "segment.ms": str(KEPT_MS)},
}

ANSWERED, UNKNOWN = "answered", "unknown"
QUERY = "query"
AT_ONCE_S = 1.0  # after which it is looked at whether the pipeline runs
TIMEOUT_S = 10.0


class Pipeline(NamedTuple):
    """An output of an app, as its query."""

    app: str
    output: str

    @property
    def questions(self) -> str:
        return f"{QUESTIONS}{self.app}.{self.output}"

    @property
    def replies(self) -> str:
        return f"{REPLIES}{self.app}.{self.output}"

    @property
    def part(self) -> str:
        """As its status is told."""
        return f"{self.app}.{self.output}"


class PipelineAnswer(NamedTuple):
    """`more` is how many rows there are beyond those that an answer has."""

    rows: list[dict[str, Any]]
    more: int = 0


# Decisions ------------------------------------------------------------------------------------------------------------


def pipeline_of(catalog: Catalog, name: str) -> Pipeline:
    """By the name of the output, or `APP.OUTPUT`."""
    for key in ((VIEW, name), (TOPIC, name)):
        if isinstance(found := catalog.get(key), View | Derived):
            return Pipeline(found.app, name)
    for found in catalog.values():
        if f"{found.app}.{found.name}" == name:
            return Pipeline(found.app, found.name)
    raise UsageError(f"output {name[:100]!r} does not exist; `tidelog plan` shows those of an app")


def read_answer(value: bytes | None, asked: str) -> PipelineAnswer:
    """What a reply says; raises what is not an answer."""
    try:
        said: Mapping[str, Any] = json.loads(value or b"")
        status = said["status"]
        if status == ANSWERED:
            return PipelineAnswer(list(said["rows"]), int(said.get("more", 0)))
        told = str(said.get("error", status))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise NotAnswered("the reply is not one that this version reads; use a newer one") from None
    if status == UNKNOWN:
        raise UnknownKey(f"nothing is kept of the key {asked[:100]}")
    raise UsageError(f"the pipeline refused the question: {told}")


def why_stopped(report: Report | None, now_ms: float) -> str | None:
    """Why nobody will answer; None where somebody should."""
    if report is None:
        return "it has never run"
    # One of a clock that is ahead may well be there: who asks hears so, or that it took too long.
    how = health_of(report, now_ms, careful=True)
    return None if how.runs else f"it {how.said}"


# The shell ------------------------------------------------------------------------------------------------------------


def ask(cluster: Cluster, pipeline: Pipeline, key: Any, timeout_s: float = TIMEOUT_S) -> PipelineAnswer:
    """What the pipeline keeps of `key`: a mapping, a list of values, or the value of its one column.

    `UnknownKey` where it keeps nothing, `NotAnswered` where no answer came in time, `PipelineStopped` where it does not
    run, `UsageError` where it cannot be asked.
    """
    deadline = time.monotonic() + timeout_s
    text = json.dumps(key, separators=(",", ":"))
    positions = _ends_of_replies(cluster, pipeline)
    name = uuid.uuid4().hex
    with Producer(cluster) as producer:
        producer.send(pipeline.questions, text.encode(), key=name.encode())
    found = _wait(cluster, positions, name, min(deadline, time.monotonic() + AT_ONCE_S))
    if found is None:
        _check_running(cluster, pipeline)
        found = _wait(cluster, positions, name, deadline)
    if found is None:
        _check_running(cluster, pipeline)
        raise NotAnswered(f"pipeline {pipeline.part} did not answer within {timeout_s:g} s; it runs, ask again")
    return read_answer(found[0], text)


def _ends_of_replies(cluster: Cluster, pipeline: Pipeline) -> dict[TopicPartition, int]:
    try:
        cluster.topic(pipeline.questions)
        places = cluster.partitions(pipeline.replies)
    except BrokerError as error:
        if error.code not in UNKNOWN_TOPIC:
            raise
        raise UsageError(
            f"pipeline {pipeline.part} takes no questions; name a parameter `questions` in its function, give it to its"
            " operator, and run it"
        ) from None
    return {at: found.offset for at, found in list_offsets(cluster, dict.fromkeys(places, LATEST)).items()}


def _wait(
    cluster: Cluster, positions: dict[TopicPartition, int], name: str, deadline: float
) -> tuple[bytes | None] | None:
    """The value of the first reply with this id, if one comes in time."""
    wanted = name.encode()
    return next(((row.value,) for _, row in follow(cluster, positions, deadline) if row.key == wanted), None)


def _check_running(cluster: Cluster, pipeline: Pipeline) -> None:
    """Nothing, where nobody lets us know."""
    try:
        reports = read_status(cluster)
    except TidelogError:
        return
    found = next((one for one in reports if (one.kind, one.name) == (QUERY, pipeline.part)), None)
    if why := why_stopped(found, time.time() * 1000):
        raise PipelineStopped(f"pipeline {pipeline.part} does not answer: {why}; `tidelog run` starts it")
