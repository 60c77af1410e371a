"""What declared functions get: topics as DataFrames, as a stream from their beginning, or over a stretch of history.

    stream   the value's columns, and those of the record that were asked for; records without a value are left out
    table    a changelog of the latest row by key (`as_changelog`); with versions, upserts with an event time
    captured a database's table, the same by its envelopes (`captured_tables.py`)
    topic    a derived one: as a stream, or, where its rows replace each other by key, as a table
    view     its topic as a table
    questions   what is put to the output itself, as rows of `operators/state/questions.py`; over history none

Rules:
- All is read committed: what a transaction did not commit was never there.
- A record that cannot be decoded fails the query, or, by `on_error`, is left out; so is one that was passed. Neither is
  a tombstone (`spark/left_out.py`).
- Of a table's records by key, the last one counts by one order, also where keys move between partitions
  (`operators/joins/places.py`). Versions bring their places along, for `enrich`; no output has them.
- The key of a table's record is the column's own text, or JSON with the columns by name, as views and derived topics
  have it; it is needed for tombstones alone, elsewhere the columns are the value's.
- Over history, other outputs are computed and not read: the same code over the same records, whatever was written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.control.captures import JSON, ROW, sink_of
from tidelog.control.passed import RecordPlace
from tidelog.errors import TidelogError, UsageError
from tidelog.pipelines.app import QUESTIONS, RECORD_TIME, STREAM, TOPIC, Input, Output, SourceLine, Time
from tidelog.pipelines.captured_formats import key_schema, value_schema
from tidelog.pipelines.captured_tables import CapturedShape, declared_shape, rows_of
from tidelog.pipelines.loading import place_in
from tidelog.pipelines.observed import Prepared, left_out_now, timing, unobserved
from tidelog.pipelines.operators.changelog import DELETED, INSERT, OP, SEQ, as_changelog
from tidelog.pipelines.operators.joins.places import SEED
from tidelog.pipelines.operators.joins.sides import PLACED, unplaced
from tidelog.pipelines.operators.state.questions import ASKED, BESIDE, QUESTION
from tidelog.pipelines.operators.time import event_time
from tidelog.pipelines.seeding import BEFORE_ALL, older
from tidelog.pipelines.sql_query import SqlFault, said_of
from tidelog.spark.ddl import is_ddl, struct_of
from tidelog.views.asking import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from tidelog.pipelines.graph import Graph, Node
    from tidelog.pipelines.seeding import Seed
    from tidelog.spark.typed_values import Task

OFFSET, TIME, GONE = "_tidelog_offset", "_tidelog_time", "_tidelog_gone"
RECORDED, PARTITION = "_tidelog_recorded", "_tidelog_partition"  # with OFFSET, a place; names are kept with the state
QUESTIONS_AT_ONCE = "10000"  # that a micro-batch answers
METADATA_MS = "1000"  # for so long the partitions of a topic are taken to be as they were
WAIT_MS = "1000"  # for which a query at rest waits for a record, and a stop may have to wait
NOTHING_MORE: Mapping[str, str] = {}
ALIGN = {"format": "alignFormat", "message": "alignMessage", "registry": "alignRegistry"}


class Span(NamedTuple):
    """A stretch of history, by the records' timestamps in ms; None: from the beginning, or to the end."""

    begin_ms: int | None = None
    end_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Reader:
    """DataFrames for one run. `span` is None for streams. `topic_of` says where an output's rows are."""

    spark: SparkSession
    options: Mapping[str, str]  # how the brokers are reached
    graph: Graph
    topic_of: Callable[[Output], str]
    span: Span | None = None
    seed_of: Callable[[str, Input], Seed] | None = None  # for a sink; None where nothing is run
    sink: str | None = None  # of the output whose result is asked for
    loaded: dict[object, DataFrame] = field(default_factory=dict)  # a format is looked at in a process of its own: once
    prepared: dict[str, Prepared] = field(default_factory=dict)  # by output, for a run that starts it now
    turns: dict[object, int] = field(default_factory=dict)  # how often what is being built has read the same
    is_alone: bool = False  # whether what is read is all that the query reads: its source may wait for records then
    view_topic: Callable[[str], str] | None = None  # of a view's name, whosever it is
    passed_by: Callable[[str], frozenset[RecordPlace]] | None = None  # records that an output leaves out
    shape_of: Callable[[Input], CapturedShape] | None = None  # of a captured table; None: as it is declared

    def result(self, node: Node) -> DataFrame:
        """What the function returns; its errors name the user's line."""
        from pyspark.sql import DataFrame

        output = node.output
        reads, reader = iter(node.reads), replace(self, is_alone=len(output.parameters) == 1, turns={})
        passed = frozenset[RecordPlace]() if self.passed_by is None else self.passed_by(output.name)
        given = [
            reader._questions(output) if node.asked and name == QUESTIONS else reader._read(next(reads), passed)
            for name in output.parameters
        ]
        try:
            made = output.function(*given)
        except Exception as error:
            if isinstance(error, TidelogError) and not isinstance(error, UsageError):
                raise  # a broker that is away, say: not the user's, and it may pass
            of_sql = error.place if isinstance(error, SqlFault) else None
            at = of_sql or place_in(error.__traceback__, output.place.file) or output.place
            raise UsageError(f"{at}: {output.kind} {output.name!r}: {_said(error)}") from error
        if not isinstance(made, DataFrame):
            hint = "; does it end without `return`?" if made is None else ""
            raise UsageError(f"{output.place}: {output.kind} {output.name!r} returns {made!r}, not a DataFrame{hint}")
        if self.span is None and not made.isStreaming:
            raise UsageError(f"{output.place}: {output.kind} {output.name!r} returns a DataFrame that is not a stream")
        if node.asked and (missing := [name for name in BESIDE if name not in made.columns]):
            raise UsageError(
                f"{output.place}: {output.kind} {output.name!r} names questions, and its rows have no {missing[0]}:"
                " give them to its last operator (questions=questions), and keep the column"
            )
        return unplaced(made if self.span is None else made.drop(*BESIDE))

    def _questions(self, output: Output) -> DataFrame:
        from pyspark.sql import functions as F

        if self.span is not None:
            return self.spark.createDataFrame([], f"{QUESTION} binary, {ASKED} binary")
        asked = Pipeline(self.graph.app.name, output.name).questions
        frame = self._load(asked, None, more={"failOnDataLoss": "false", "maxOffsetsPerTrigger": QUESTIONS_AT_ONCE})
        return frame.select(F.col("key").alias(QUESTION), F.col("value").alias(ASKED))

    def _read(self, one: Input | Output, passed: frozenset[RecordPlace]) -> DataFrame:
        try:
            if isinstance(one, Output):
                return self._output(one, passed)
            if one.start_from is not None:
                return self._view(one, passed)
            if one.captured:
                return self._captured(one, passed)
            return self._stream(one, passed) if one.kind == STREAM else self._table(one, passed)
        except TidelogError as error:
            raise _at(one.place, error) from error

    # Topics of others

    def _stream(self, one: Input, passed: frozenset[RecordPlace]) -> DataFrame:
        if one.value is None and not one.decoding:
            frame = _without(self._load(one.topic, one.time, one), passed)
            return frame if one.time is None else frame.transform(_timed(one.time, one.topic))
        decoded = self._values(one.topic, one.time, schema_of(one.value), passed, one)
        return _flat(decoded, one.topic, one.time, kept=one.record)

    def _table(self, one: Input, passed: frozenset[RecordPlace]) -> DataFrame:
        decoded = self._values(one.topic, one.time, schema_of(one.value), passed, one)
        return _tabled(decoded, one.topic, one.key, one.time, versions=one.versions, kept=one.record)

    def _view(self, one: Input, passed: frozenset[RecordPlace]) -> DataFrame:
        """A view as a table: from its store, if the output's sink is known, and then from its topic."""
        from pyspark.sql import functions as F

        value = _envelope(schema_of(one.value))
        if self.span is None and self.sink is not None and self.seed_of is not None:
            seed = self.seed_of(self.sink, one)
            topic = seed.view_topic
            frame = older(self._values(topic, one.time, value, passed, more=seed.options), seed)
        else:
            topic = one.topic if self.view_topic is None else self.view_topic(one.topic)
            frame = self._values(topic, one.time, value, passed)
        return _tabled(frame.withColumn("value", F.col("value.after")), topic, one.key, one.time)

    def _captured(self, one: Input, passed: frozenset[RecordPlace]) -> DataFrame:
        from pyspark.sql import functions as F

        from tidelog.spark.typed_values import typed

        if self.shape_of is not None:
            shape = self.shape_of(one)
        elif one.value is not None:
            shape = declared_shape(one.value, one.key)
        else:
            raise UsageError(
                f"the columns of captured table {one.name!r} are not known here, without a broker; give value= and key="
            )
        bound = {"ticksUpTo": sink_of(shape.capture)} if shape.capture and one.time is not None else NOTHING_MORE
        bound = {**bound, "alignBy": RECORD_TIME} if shape.format != JSON and one.time is not None else bound
        frame = self._values(one.topic, one.time, value_schema(shape), passed, one, bound)
        if shape.format != JSON:
            frame = frame.transform(typed(key_schema(shape), column="key", **one.decoding))
        names = [name for name, _ in shape.columns]
        recorded = F.col("timestamp").alias(RECORD_TIME if _is_records(one.time, names) else TIME)
        rows = frame.select(*rows_of(shape, GONE), recorded, *_place())
        if one.time is not None:
            inside = "" if shape.envelope == ROW else "after."
            rows = rows.transform(_timed(one.time, one.topic, inside if shape.format == JSON else None))
        order = (RECORDED, PARTITION, OFFSET)
        made = as_changelog(by=shape.key, order=order, deleted=GONE, captured=True)
        return rows.drop(TIME).transform(made).drop(GONE)

    # Outputs of this app

    def _output(self, one: Output, passed: frozenset[RecordPlace]) -> DataFrame:
        from pyspark.sql import functions as F

        from tidelog.pipelines.view_topic import is_keyed

        node = next(node for node in _whole(self.graph).nodes if node.output == one)
        with unobserved() if self.span is None else nullcontext():
            made = self.result(node)
        keyed = one.kind != TOPIC or is_keyed(one, made)
        if self.span is not None:
            return _as_table(made, one) if keyed else made
        rows = made.drop(OP, SEQ, DELETED, *BESIDE).schema
        value = rows if one.kind == TOPIC else _envelope(rows)
        topic = self.topic_of(one)
        decoded = self._values(topic, one.time, value, passed)
        if one.kind != TOPIC:
            decoded = decoded.withColumn("value", F.col("value.after"))
        return _tabled(decoded, topic, one.key, one.time) if keyed else _flat(decoded, topic, one.time)

    # The source

    def _values(
        self,
        topic: str,
        time: Time | None,
        schema: Any,
        passed: frozenset[RecordPlace],
        one: Input | None = None,
        more: Mapping[str, str] = NOTHING_MORE,
    ) -> DataFrame:
        """Rows whose value is a struct. What cannot be decoded fails the query, and the source decodes; or it is left
        out, and told of, by a stage of its own: the source has nobody to tell.
        """
        from tidelog.spark.left_out import leaving_out
        from tidelog.spark.typed_values import DEAD_LETTER, FAIL, NULL, task_of

        decoding = {} if one is None else dict(one.decoding)
        on_error = decoding.pop("on_error", FAIL)
        task = task_of(schema, **decoding, on_error=FAIL if on_error == FAIL else NULL)
        if on_error == FAIL and not passed:
            return self._load(topic, time, one, more, value=task)
        frame = self._load(topic, time, one, more)
        return leaving_out(frame, task, passed, left_out_now(), letter=on_error == DEAD_LETTER)

    def _load(
        self,
        topic: str,
        time: Time | None,
        one: Input | None = None,
        more: Mapping[str, str] = NOTHING_MORE,
        value: Task | None = None,
    ) -> DataFrame:
        """`value`: how values are decoded, by the stage that reads them."""
        reader: Any = self.spark.readStream if self.span is None else self.spark.read
        options = {**self.options, "subscribe": topic, "kafka.isolation.level": "read_committed"}
        options |= {"startingOffsets": "earliest"} if self.span is None else _stretch(self.span)
        if time is not None and one is not None and time.column != RECORD_TIME and self.span is None:
            options |= _alignment(one)
        options |= {} if value is None else {"decode": value.option}
        if self.span is None:
            options |= {"partition.metadata.cache.ttl.ms": METADATA_MS}
            options |= {"waitForRecords": WAIT_MS} if self.is_alone else {}
        options |= more
        loading = reader.format("tidelog").options(**options)
        if self.span is not None:  # what is there is looked up once for a batch that was loaded, and more may have come
            frame: DataFrame = loading.load()
            return frame
        # Two inputs of one query are two sources, also where they are of one topic: so it is in the checkpoint.
        asked = tuple(sorted(options.items()))
        self.turns[asked] = turn = self.turns.get(asked, 0) + 1
        if (asked, turn) not in self.loaded:
            self.loaded[asked, turn] = loading.load()
        return self.loaded[asked, turn]


def schema_of(value: Any) -> Any:
    """Columns as Spark writes them become a StructType; a schema stays what it is."""
    return struct_of(value) if isinstance(value, str) and is_ddl(value) else value


def _without(frame: DataFrame, passed: frozenset[RecordPlace]) -> DataFrame:
    from tidelog.spark.left_out import leaving_out

    return leaving_out(frame, None, passed, left_out_now(), letter=True) if passed else frame


def _alignment(one: Input) -> dict[str, str]:
    """What the source needs to find the event time in a value that is no JSON."""
    options = {ALIGN[name]: str(value) for name, value in one.decoding.items() if name in ALIGN}
    if isinstance(one.value, str) and not is_ddl(one.value):
        options["alignSchema"] = one.value
    return options


def _stretch(span: Span) -> dict[str, str]:
    options = {"startingOffsets": "earliest", "endingOffsets": "latest"}
    if span.begin_ms is not None:
        options |= {"startingTimestamp": str(span.begin_ms), "startingOffsetsByTimestampStrategy": "latest"}
    if span.end_ms is not None:
        options |= {"endingTimestamp": str(span.end_ms)}
    return options


def _timed(time: Time, topic: str, inside: str | None = "") -> Callable[[DataFrame], DataFrame]:
    """`inside`: where in the value the column stands; None where the source does not look for it."""
    idle = None if time.idle_ms is None else f"{time.idle_ms} milliseconds"
    by = None if time.column == RECORD_TIME or inside is None else inside + time.column
    declare = event_time(time.column, f"{time.lateness_ms} milliseconds", idle, align_by=by)
    return lambda rows: timing(declare(rows), topic, time)


def _flat(decoded: DataFrame, topic: str, time: Time | None, kept: tuple[str, ...] = ()) -> DataFrame:
    """The value's columns, with event time declared where ticks still are."""
    from pyspark.sql import functions as F

    fields = _fields(decoded)
    kept = (*kept, *((RECORD_TIME,) if _is_records(time, fields) and RECORD_TIME not in kept else ()))
    rows = decoded.select(
        *(F.col(f"value.`{name}`").alias(name) for name in fields),
        *(F.col(name) for name in kept if name not in fields),
        F.col("value").isNull().alias(GONE),
        F.col("offset").alias(OFFSET),
        F.col("timestamp").alias(TIME),
    )
    rows = rows if time is None else rows.transform(_timed(time, topic))
    return rows.where(f"not {GONE}").drop(GONE, OFFSET, TIME)


def _is_records(time: Time | None, fields: list[str]) -> bool:
    return time is not None and time.column == RECORD_TIME and RECORD_TIME not in fields


def _tabled(
    decoded: DataFrame,
    topic: str,
    key: tuple[str, ...],
    time: Time | None,
    *,
    versions: bool = False,
    kept: tuple[str, ...] = (),
) -> DataFrame:
    from pyspark.sql import functions as F

    fields = _fields(decoded)
    if missing := [name for name in key if name not in fields]:
        raise UsageError(f"its key has {missing[0]!r}, and its columns are {', '.join(fields)}")
    types = {field.name: field.dataType for field in decoded.schema["value"].dataType.fields}  # type: ignore[attr-defined]
    known = (*fields, RECORD_TIME) if _is_records(time, fields) else fields
    rows = decoded.select(
        *(_key_column(name, types[name], alone=len(key) == 1) for name in key),
        *(F.col(f"value.`{name}`").alias(name) for name in fields if name not in key),
        F.col("value").isNull().alias(GONE),
        F.col("timestamp").alias(RECORD_TIME if _is_records(time, fields) else TIME),
        *_place(),  # behind it: of two columns that are made of the timestamp, ticks take the first
        *(F.col(name) for name in kept if name not in known),
    )
    if versions:
        assert time is not None
        if time.column != RECORD_TIME or RECORD_TIME in fields:  # a tombstone has no columns: it counts from its record
            rows = rows.withColumn(time.column, F.coalesce(F.col(f"`{time.column}`"), F.col(TIME)))
        parts = {"recorded": RECORDED, "partition": PARTITION, "offset": OFFSET}
        place = F.struct(*(F.col(name).alias(part) for part, name in parts.items()))
        timed = rows.transform(_timed(time, topic)).withColumnRenamed(GONE, DELETED)
        return timed.withColumn(PLACED, place).drop(*parts.values(), TIME)
    if time is not None:
        rows = rows.transform(_timed(time, topic))
    order = (RECORDED, PARTITION, OFFSET)
    return rows.drop(TIME).transform(as_changelog(by=key, order=order, deleted=GONE)).drop(GONE)


def _place() -> list[Column]:
    """Numbers all of them. What a seed has lies before all records, whatever its time is."""
    from pyspark.sql import functions as F

    is_seed = F.col("partition") == SEED
    recorded = F.when(is_seed, F.lit(BEFORE_ALL)).otherwise(F.unix_micros("timestamp"))
    partition = F.col("partition").cast("bigint")
    return [recorded.alias(RECORDED), partition.alias(PARTITION), F.col("offset").alias(OFFSET)]


def _key_column(name: str, kind: Any, *, alone: bool) -> Column:
    from pyspark.sql import functions as F

    text = F.col("key").cast("string")
    said = F.get_json_object(text, f"$['{name}']")
    in_json = F.try_to_binary(said, F.lit("base64")) if kind.typeName() == "binary" else said.try_cast(kind)
    found = [F.col(f"value.`{name}`"), in_json]
    found += [text.try_cast(kind)] if alone else []
    return F.coalesce(*found).alias(name)


def _fields(decoded: DataFrame) -> list[str]:
    kind = decoded.schema["value"].dataType
    if kind.typeName() != "struct":
        raise UsageError(f"its values are {kind.simpleString()}, and rows have columns; give value= with columns")
    return list(kind.fieldNames())  # type: ignore[attr-defined]


def _envelope(rows: Any) -> Any:
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField("after", rows)])


def _as_table(made: DataFrame, one: Output) -> DataFrame:
    """A batch result as a changelog, as who reads the topic would see it in the end."""
    from pyspark.sql import functions as F

    from tidelog.pipelines.collisions import latest_rows

    if OP in made.columns:
        return made
    made = latest_rows(one, made)
    head = {OP: F.lit(INSERT), SEQ: F.lit(0).cast("bigint")}
    marked = reduce(lambda rows, item: rows.withColumn(*item), head.items(), made.drop(DELETED))
    return marked.select(OP, SEQ, *(name for name in made.columns if name != DELETED))


def _whole(graph: Graph) -> Graph:
    from tidelog.pipelines.graph import graph_of

    return graph_of(graph.app)


def _at(place: SourceLine, error: TidelogError) -> TidelogError:
    return (
        error
        if str(error).startswith(str(place)) or not isinstance(error, UsageError)
        else type(error)(f"{place}: {error}")
    )


def _said(error: BaseException) -> str:
    text = str(error).strip().split("\n")[0]
    if type(error).__module__.startswith("pyspark."):
        return said_of(text)
    return text if isinstance(error, TidelogError) else f"{type(error).__name__}: {text}"
