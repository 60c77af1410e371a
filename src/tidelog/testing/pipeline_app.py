"""One output of an app in the driver: records go into the topics that it reads, rows come out, a micro-batch a step.

    def test_revenue(tidelog_pipeline):
        run = AppRun(tidelog_pipeline, "shop.py", "revenue")
        run.add("orders", '{"id": 1, "product": "tea", "amount": 2.5}')
        assert_rows(run.step(), [{"product": "tea", "revenue": 2.5, "orders": 1}])

Records are decoded, timed and made tables by the app's own code, as in `tidelog run`; the function is the declared one.
An output that it reads is a topic of its name, with records as that output writes them.

Rows are plain: times as ISO texts in UTC, decimals as texts, bytes in hex, structs as dicts; so a test means the same
on every machine. `_seq`, which orders a changelog within one micro-batch and means nothing else, is left out.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.errors import UsageError
from tidelog.pipelines.app import App, Input, Output, Time
from tidelog.pipelines.graph import Node, graph_of
from tidelog.pipelines.inputs import NOTHING_MORE, Reader
from tidelog.pipelines.loading import load_app, travelling_whole
from tidelog.pipelines.operators.changelog import SEQ
from tidelog.spark.typed_values import typed_by
from tidelog.testing.pipeline_times import from_epoch_ms
from tidelog.views.asking import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidelog.spark.typed_values import Task
    from tidelog.testing.pipeline import PipelineDriver

NOWHERE = {"kafka.bootstrap.servers": "127.0.0.1:1"}  # of streams that are planned and never run
CREATE_TIME = 0
DIGITS = 9  # of floating point that are compared: sums depend on their order

PlainRow = dict[str, Any]
Text = str | bytes | None


@dataclass(frozen=True, slots=True)
class RecordsReader(Reader):
    """The app's own reading, of records that are given by topic."""

    frames: Mapping[str, DataFrame] = field(default_factory=dict)

    def _load(
        self,
        topic: str,
        time: Time | None,
        one: Input | None = None,
        more: Mapping[str, str] = NOTHING_MORE,
        value: Task | None = None,
    ) -> DataFrame:
        found = self.frames.get(topic)
        if found is None:
            return Reader._load(self, topic, time, one, more, value)
        return found if value is None else found.transform(typed_by(value))


class AppRun:
    """`app` is an App or the file that has it. `partitions` are those of topics that have more than one."""

    def __init__(
        self,
        driver: PipelineDriver,
        app: App | str | Path,
        output: str,
        *,
        partitions: Mapping[str, int] | None = None,
    ) -> None:
        from tidelog.pipelines.view_topic import mode_of
        from tidelog.spark.source import topic_schema

        found = app if isinstance(app, App) else load_app(str(app))
        travelling_whole(found)
        self._driver = driver
        self._graph = graph_of(found)
        self._node = self._graph.node(output)
        shares = partitions or {}
        self._inputs = {
            topic: driver.input(topic, topic_schema(False), partitions=shares.get(topic, 1))
            for topic in topics_of(self._graph.app, self._node)
        }
        mode: Any = mode_of(self._node.output, self._reader({}).result(self._node))
        self._run = driver.run(self._pipeline, *self._inputs.values(), output_mode=mode)
        self._next = dict.fromkeys(
            ((topic, n) for topic, one in self._inputs.items() for n in range(one.partitions)), 0
        )

    def add(
        self,
        topic: str,
        value: Text,
        *,
        key: Text = None,
        partition: int = 0,
        offset: int | None = None,
        timestamp_ms: int = 0,
    ) -> None:
        """A record for the next step; its offset is the next one of its partition, unless it is said."""
        if topic not in self._inputs:
            raise UsageError(f"{self._node.name} does not read {topic!r}; it reads {', '.join(self._inputs)}")
        place = self._next.get((topic, partition), 0) if offset is None else offset
        self._next[topic, partition] = place + 1
        time = from_epoch_ms(timestamp_ms)
        row = (_bytes(key), _bytes(value), topic, partition, place, time, CREATE_TIME)
        self._inputs[topic].add([row], partition)

    def add_all(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Records as `add` takes them, from JSON: bytes that are not text are `key_base64` and `value_base64`."""
        for one in records:
            fields = dict(one)
            for name in ("key", "value"):
                if (encoded := fields.pop(f"{name}_base64", None)) is not None:
                    fields[name] = base64.b64decode(encoded)
            self.add(fields.pop("topic"), fields.pop("value"), **fields)

    def step(self) -> list[PlainRow]:
        """Runs exactly one micro-batch; the rows that the function gave."""
        return plain_rows(self._run.step(settle=False))

    def _pipeline(self, *frames: DataFrame) -> DataFrame:
        return self._reader(dict(zip(self._inputs, frames, strict=True))).result(self._node)

    def _reader(self, frames: Mapping[str, DataFrame]) -> RecordsReader:
        return RecordsReader(self._driver.spark, NOWHERE, self._graph, lambda one: one.name, frames=frames)


def topics_of(app: App, node: Node) -> list[str]:
    """What it reads: topics by their names, outputs by theirs, each once; its questions last."""
    asked = [Pipeline(app.name, node.name).questions] if node.asked else []
    return list(dict.fromkeys([*map(_topic, node.reads), *asked]))


def _topic(read: Input | Output) -> str:
    return read.topic if isinstance(read, Input) else read.name


def _bytes(text: Text) -> bytes | None:
    return text.encode() if isinstance(text, str) else text


# Rows -----------------------------------------------------------------------------------------------------------------


def plain_rows(rows: Iterable[Any]) -> list[PlainRow]:
    return [{name: plain(value) for name, value in row.asDict().items() if name != SEQ} for row in rows]


def plain(value: Any) -> Any:
    if hasattr(value, "asDict"):
        return plain(value.asDict())
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return value.hex()
    return str(value) if isinstance(value, Decimal) else value


def assert_rows(found: Iterable[PlainRow], expected: Iterable[PlainRow]) -> None:
    """They are the same rows, in any order; floating point as far as its first nine digits."""
    ours, theirs = (Counter(map(_comparable, rows)) for rows in (found, expected))
    missing, extra = sorted((theirs - ours).elements()), sorted((ours - theirs).elements())
    assert not missing and not extra, (
        f"missing: {', '.join(missing) or 'none'}; not expected: {', '.join(extra) or 'none'}"
    )


def _comparable(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_comparable(inner)}" for name, inner in sorted(value.items())) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_comparable, value)) + "]"
    return f"{value:.{DIGITS}g}" if isinstance(value, float) else repr(value)
