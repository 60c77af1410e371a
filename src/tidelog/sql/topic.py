"""A topic as a table: its shape from a sample, and its runs of records as batches of Arrow's memory.

    sampled    `open_topic`: a little from the beginning and from the end of the span, so that new fields are seen too
    scanned    `Topic.batches`: the columns that are asked for, and no others, are decoded

A value that is not as its column says (`shape.py`) has null there; one that cannot be read at all has null in every
field, and `value` has it in any case. They are counted, and one warning says how many and which was the first; with
`strict` the first one fails the question.
"""

from __future__ import annotations

import warnings
from array import array
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from tidelog.client.consumer import Consumer
from tidelog.client.metadata import TopicPartition
from tidelog.errors import UndecodableValue
from tidelog.record.header import DecodedBinary
from tidelog.schema.decoding.column import Column
from tidelog.schema.decoding.decoder import Decoder, Failed, Reader, WriterOf, json_reader, reader_of
from tidelog.sql.c_stream import ArrowBatch, ArrowField, ArrowPiece, binary_of
from tidelog.sql.decoded import field_of, piece_of
from tidelog.sql.reading import Connect, Run, read_span, runs_of
from tidelog.sql.shape import OF_THE_RECORD, Sample, Shape, fitted, frame_of, shape_of
from tidelog.sql.span import Options, Span
from tidelog.sql.texts import as_text

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster

SAMPLE_ROWS = 200  # from each end
SAMPLE_PARTITION_BYTES = 32 << 10
SAMPLE_BYTES = 1 << 20
SAMPLE_LAST = 20  # offsets of each partition
SAMPLE_FETCHES = 4  # at most, to reach the last one
SAMPLE_WAIT_MS = 100

FORMAT_OF = {"topic": "u", "partition": "i", "offset": "l", "timestamp": "tsm:"}
HEADERS = ArrowField("headers", "+l", (ArrowField("item", "+s", (ArrowField("key", "u"), ArrowField("value", "z"))),))


class TopicTable(NamedTuple):
    span: Span
    shape: Shape
    reader: Reader | None  # of the registry's schema
    writer_of: WriterOf | None
    options: Options

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.shape.names, *OF_THE_RECORD)

    def fields(self, names: Iterable[str]) -> list[ArrowField]:
        return [self._field(name) for name in names]

    def _field(self, name: str) -> ArrowField:
        if name == "headers":
            return HEADERS
        if name in ("key", "value"):
            text = self.shape.key_is_text if name == "key" else self.shape.value_is_text
            return ArrowField(name, "u" if text else "z")
        if name in FORMAT_OF:
            return ArrowField(name, FORMAT_OF[name])
        return field_of(self.column(name), name)

    def column(self, name: str) -> Column:
        assert self.shape.root is not None
        return self.shape.root.children[self.shape.names.index(name)]

    def batches(self, connect: Connect, names: tuple[str, ...]) -> Iterator[ArrowBatch]:
        made = Batches(self, names)
        for run in read_span(connect, self.span, committed=self.options.committed):
            yield made.batch(run)
        made.warn()


class Batches:
    """Runs into batches, for one scan. A decoder belongs to one thread at a time, as a scan does."""

    def __init__(self, topic: TopicTable, names: tuple[str, ...]) -> None:
        self.topic = topic
        self.names = names
        self.failures = 0
        self.first_failure = ""
        shape = topic.shape
        wanted = [topic.column(name) for name in names if name not in OF_THE_RECORD]
        self._decoder: Decoder | None = None
        if wanted and topic.reader is not None:
            self._decoder = Decoder(topic.reader, topic.writer_of)
        elif wanted and shape.root is not None:
            self._decoder = Decoder(json_reader(Column("value", "struct", tuple(wanted))))

    def batch(self, run: Run) -> ArrowBatch:
        fields = self._fields(run) if self._decoder is not None else {}
        return ArrowBatch(
            run.length, tuple(fields[name] if name in fields else self._kafka(name, run) for name in self.names)
        )

    def _kafka(self, name: str, run: Run) -> ArrowPiece:
        count, parts = run.length, run.columns.parts
        if name == "offset":
            return ArrowPiece(count, (None, parts[0]), offset=run.first)
        if name == "timestamp":
            return ArrowPiece(count, (None, parts[1]), offset=run.first)
        if name == "partition":
            return ArrowPiece(count, (None, array("i", [run.at.partition]) * count))
        if name == "topic":
            data = run.at.topic.encode()
            return ArrowPiece(count, (None, array("i", range(0, (count + 1) * len(data), len(data))), data * count))
        if name == "headers":
            return _headers(run)
        is_text = self.topic.shape.key_is_text if name == "key" else self.topic.shape.value_is_text
        binary = parts[2] if name == "key" else parts[3]
        return ArrowPiece(count, as_text(binary) if is_text else binary, offset=run.first)

    # Fields

    def _fields(self, run: Run) -> dict[str, ArrowPiece]:
        decoder, validity_offsets_data = self._decoder, run.columns.parts[3]
        assert decoder is not None
        taken, failed = decoder.take(run.length, run.first, *validity_offsets_data)
        if failed:
            self._note(run, failed)
            if decoder.reader.schema is None:
                taken, _ = decoder.take(run.length, 0, *_repaired(run, failed, decoder.reader.column))
        tree = decoder.tree
        children = tree.root.children
        if self.topic.reader is not None and tree.root.kind != "struct":
            return {self.topic.shape.names[0]: piece_of(tree, tree.root, taken)}
        names = self.topic.shape.names if self.topic.reader is not None else self._wanted_names()
        return {name: piece_of(tree, child, taken) for name, child in zip(names, children, strict=True)}

    def _wanted_names(self) -> tuple[str, ...]:
        return tuple(name for name in self.names if name not in OF_THE_RECORD)

    def _note(self, run: Run, failed: list[Failed]) -> None:
        row, reason = failed[0]
        if not self.failures:
            self.first_failure = f"{run.at} offset {run.columns.offsets[run.first + row]}: {reason}"
        self.failures += len(failed)
        if self.topic.options.strict:
            instead = "without --strict (strict=True) its field is null"
            raise UndecodableValue(f"the value at {self.first_failure}; {instead}")

    def warn(self) -> None:
        if self.failures:
            are, have = ("is", "has") if self.failures == 1 else ("are", "have")
            warnings.warn(
                f"{self.failures} of the values of {self.topic.span.topic} {are} not as its columns say, and {have}"
                f" null there (the first: {self.first_failure}); column value has them as they are",
                stacklevel=2,
            )


def _headers(run: Run) -> ArrowPiece:
    headers = run.columns.parts[4]
    if headers is None:
        empty = ArrowPiece(0, (None,), (ArrowPiece(0, (None, bytes(4), b"")), ArrowPiece(0, (None, bytes(4), b""))))
        return ArrowPiece(run.length, (None, bytes(4 * run.length + 4)), (empty,))
    offsets, names, values = headers
    total = len(names[1]) // 4 - 1
    pairs = ArrowPiece(total, (None,), (ArrowPiece(total, as_text(names)), ArrowPiece(total, values)))
    return ArrowPiece(run.length, (None, offsets), (pairs,), offset=run.first)


def _repaired(run: Run, failed: list[Failed], root: Column) -> DecodedBinary:
    """The run's values, with those that failed made to fit."""
    rows = list(strings(run.columns.parts[3], run.first, run.length))
    for row, _ in failed:
        held = rows[row]
        rows[row] = None if held is None else fitted(held, root)
    return binary_of(rows)


def strings(binary: DecodedBinary, first: int, count: int) -> Iterator[bytes | None]:
    validity, offsets, data = binary
    ends, whole = memoryview(offsets).cast("B").cast("i"), memoryview(data)
    for row in range(first, first + count):
        there = validity is None or validity[row >> 3] >> (row & 7) & 1
        yield bytes(whole[ends[row] : ends[row + 1]]) if there else None


# --- opening ---------------------------------------------------------------------------------------------------------


def open_topic(cluster: Cluster, span: Span, options: Options, *, past: Span | None = None) -> TopicTable:
    """`past` is sampled in place of a span that has nothing yet, as a follower's."""
    if options.raw:
        return TopicTable(span, shape_of(Sample((), ()), raw=True), None, None, options)
    sample = take_sample(cluster, past if past is not None else span, options)
    reader, writer_of = _registered(cluster, span.topic, sample)
    column = None if reader is None else reader.column
    return TopicTable(span, shape_of(sample, column), reader, writer_of, options)


def take_sample(cluster: Cluster, span: Span, options: Options) -> Sample:
    keys: list[bytes] = []
    values: list[bytes] = []
    last = {at: max(start, span.ends[at] - SAMPLE_LAST) for at, start in span.starts.items()}
    places = [(span.starts, 1), (last, SAMPLE_FETCHES)]
    for place, fetches in places[last == span.starts :]:
        left = SAMPLE_ROWS
        for run in _little(cluster, place, span, options, fetches):
            took = min(run.length, max(1, left))
            keys += [key for key in strings(run.columns.parts[2], run.first, took) if key is not None]
            values += [value for value in strings(run.columns.parts[3], run.first, took) if value is not None]
            left -= took
    return Sample(keys, values)


def _little(
    cluster: Cluster, place: dict[TopicPartition, int], span: Span, options: Options, fetches: int
) -> Iterator[Run]:
    """What so many fetches bring: a batch comes whole, and may be all that one brings."""
    consumer = Consumer(
        cluster,
        max_wait_ms=SAMPLE_WAIT_MS,
        read_committed=options.committed,
        max_bytes=SAMPLE_BYTES,
        max_partition_bytes=SAMPLE_PARTITION_BYTES,
    )
    consumer.assign(place)
    for _ in range(fetches):
        for fetched in consumer.fetch():
            yield from runs_of(fetched, span.ends[fetched.at])
        consumer.assign({at: offset for at, offset in consumer.positions.items() if offset < span.ends[at]})
        if not consumer.positions:
            return


def _registered(cluster: Cluster, topic: str, sample: Sample) -> tuple[Reader | None, WriterOf | None]:
    """The schema to read framed values with: the newest of the topic's subject, else the newest that was seen."""
    frames = [frame_of(value) for value in sample.values]
    ids = [number for number in frames if number is not None]
    if not ids or len(ids) * 2 < len(frames):
        return None, None
    from tidelog.views.schemas import read_schemas

    schemas = read_schemas(cluster)
    seen = next((found for number in reversed(ids) if (found := schemas.with_id(number)) is not None), None)
    if seen is None:
        return None, None
    newest = schemas.newest(f"{topic}-value")
    chosen = newest if newest is not None and newest.format == seen.format else seen
    return reader_of(chosen.format, chosen.text, schemas.texts(chosen)), schemas.schema_of
