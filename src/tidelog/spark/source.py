"""What Spark calls: `format("tidelog")` for reads and writes, in batch and in streams. Thin shells.

Where it runs:
- `TidelogSource` in short-lived processes, whenever Spark looks at the format's schema or makes a reader or a writer;
- `TopicStream` in one process of the driver for as long as the query runs: it plans;
- `read` in Python workers of the executors, from a copy that Spark pickled: it holds options and no connection.

States of a `TopicStream`: planning (each trigger looks for the latest offsets), and, after
`prepareForTriggerAvailableNow`, bound: the latest offsets of the first trigger are the end of the query.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidelog.errors import UsageError
from tidelog.spark.arrow_rows import COLUMNS, WITH_HEADERS
from tidelog.spark.discovery import Discovery
from tidelog.spark.offsets import from_json, to_json
from tidelog.spark.options import SourceOptions, check_names, read_options
from tidelog.spark.planning import Planner
from tidelog.spark.ranges import OffsetRange, cut
from tidelog.spark.reading import Reading, read_range
from tidelog.spark.registration import FORMAT
from tidelog.spark.ticks import Tick, tick_of, tick_rows, with_tick

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter

SINK = "tidelog.spark.sink"  # loaded by those who write
EVERY_OFFSET = 2**62  # a limit that limits nothing


def topic_schema(headers: bool) -> StructType:
    """The columns of Spark's Kafka connector, all of which may be null."""
    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    types: dict[str, DataType] = {
        "key": BinaryType(),
        "value": BinaryType(),
        "topic": StringType(),
        "partition": IntegerType(),
        "offset": LongType(),
        "timestamp": TimestampType(),
        "timestampType": IntegerType(),
        "headers": ArrayType(header),
    }
    return StructType([StructField(name, types[name]) for name in (WITH_HEADERS if headers else COLUMNS)])


class TidelogSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        check_names(self.options)
        headers = self.options.get("includeHeaders", "false").strip().lower() == "true"
        return decoded_schema(topic_schema(headers), self.options.get("decode"))

    def reader(self, schema: StructType) -> TopicReader:
        options = read_options(self.options, streaming=False)
        return TopicReader(options, columns_of(schema, options))

    def streamReader(self, schema: StructType) -> TopicStream:
        options = read_options(self.options, streaming=True)
        return TopicStream(options, columns_of(schema, options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        made: DataSourceWriter = import_module(SINK).TopicWriter(self.options, schema, overwrite)
        return made

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        made: DataSourceStreamWriter = import_module(SINK).TopicStreamWriter(self.options, schema, overwrite)
        return made


def decoded_schema(schema: StructType, decode: str | None) -> StructType:
    """With the columns that `decode` makes of one of them."""
    if decode is None:
        return schema
    from tidelog.spark.typed_values import reader_for, task_from, typed_schema

    task = task_from(decode)
    return typed_schema(schema, task, reader_for(task))


def columns_of(schema: StructType, options: SourceOptions) -> tuple[str, ...]:
    """The columns to read: all, or those that the user's own schema names, which is less to carry over to Spark."""
    known = {field.name: field.dataType for field in decoded_schema(topic_schema(options.headers), options.decode)}
    for field in schema.fields:
        if known.get(field.name) != field.dataType:
            has = ", ".join(f"{name} {kind.simpleString()}" for name, kind in known.items())
            raise UsageError(f"column {field.name} {field.dataType.simpleString()} is not of this source; it has {has}")
    return tuple(schema.fieldNames())


class TopicReader(DataSourceReader):
    """Everything between two boundaries."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self.options = options
        self.reading = reading_of(options, columns)

    def partitions(self) -> list[InputPartition]:
        discovery = Discovery(self.options)
        try:
            start, end = discovery.resolve(self.options.starting), discovery.resolve(self.options.ending)
            topic_ids = discovery.topic_ids
        finally:
            discovery.close()
        for at, offset in start.items():
            if offset > end.get(at, offset):
                raise UsageError(f"{at} starts at {offset} and ends at {end[at]}; it is to start before its end")
        return planned(start, end, self.options, topic_ids)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self.reading, partition)


class TopicStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark reads the offsets that its methods take and return as JSON, in the Kafka connector's form."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self.options = options
        self.reading = reading_of(options, columns)
        self._planner: Planner | None = None

    @property
    def planner(self) -> Planner:
        """Made where it is used: what Spark pickles for its workers has none."""
        if self._planner is None:
            self._planner = Planner(self.options)
        return self._planner

    def initialOffset(self) -> dict[str, Any]:
        return to_json(self.planner.initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark asks for all there is where a trigger is to be the last, and nothing then holds any of it back."""
        return ReadMaxRows(EVERY_OFFSET if self.options.max_offsets is None else self.options.max_offsets)

    def prepareForTriggerAvailableNow(self) -> None:
        self.planner.bind()

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begin, now = from_json(start), time.monotonic()
        most, everything = (
            limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            isinstance(limit, ReadAllAvailable),
        )
        end = self.planner.end(begin, most, everything=everything, now=now)
        if self.planner.rests(begin, found=end):
            self.planner.await_record(begin)
            now = time.monotonic()
            end = self.planner.end(begin, most, everything=everything, now=now)
        tick = self.planner.tick(begin, now=now)
        if end != begin:
            return to_json(end)
        # Spark compares text: where nothing is new, it gets back what it gave.
        return dict(start) if tick is None else with_tick(to_json(end), tick)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return to_json(self.planner.latest) or None

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        begin, until = from_json(start), from_json(end)
        tick = tick_of(end)
        ticks = [] if tick is None or tick == tick_of(start) else [InputPartition(tick)]
        ranges = planned(self.planner.begin(begin, until), until, self.options, self.planner.topic_ids())
        if ranges and self.planner.reporter.token is not None:
            ranges[0] = InputPartition(ranges[0].value._replace(token=self.planner.reporter.token))
            self.planner.reporter.sent()
        return ranges + ticks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self.reading, partition)

    def commit(self, end: Mapping[str, Any]) -> None:
        self.planner.reporter.note(from_json(end), now=time.monotonic())

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()


def reading_of(options: SourceOptions, columns: tuple[str, ...]) -> Reading:
    return Reading(options.reach, columns, options.fail_on_data_loss, options.poll_timeout_ms, options.decode)


def planned(
    start: Mapping[Any, int], end: Mapping[Any, int], options: SourceOptions, topic_ids: Mapping[str, bytes]
) -> list[InputPartition]:
    ranges = cut(start, end, min_partitions=options.min_partitions, max_records=options.max_records)
    return [InputPartition(one._replace(topic_id=topic_ids.get(one.at.topic, one.topic_id))) for one in ranges]


def read_partition(reading: Reading, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Spark plans one partition of None where a batch read has none."""
    wanted: OffsetRange | Tick | None = partition.value
    if isinstance(wanted, Tick):
        rows = iter([tick_rows(wanted, reading.columns_read)])
    else:
        rows = iter(()) if wanted is None else read_range(reading, wanted)
    return rows if reading.decode is None else values_decoded(reading.decode, rows, reading.columns)


def values_decoded(decode: str, rows: Iterator[pa.RecordBatch], columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """By the process that has read them: a stage of its own would take them through the JVM once more."""
    from tidelog.spark.typed_values import task_from

    for batch in task_from(decode)(rows):
        yield batch.select(columns)
