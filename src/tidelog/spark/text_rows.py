"""`foreachBatch` for rows that are texts and numbers, without what PySpark makes of each micro-batch first.

PySpark's own makes a session and a DataFrame of what the JVM hands over: ten questions to the JVM. To collect that is a
second query, analysed, planned and compiled, and a connection of its own for the rows. Where our jar is (a session of
ours on this machine), its `TextRows` runs the tasks and hands their bytes back, in two questions; elsewhere, and where
the JVM's rows are not such as it knows, they are collected as ever.

    text      its length in bytes, 4 bytes, -1 for null; its bytes, UTF-8
    number    8 bytes
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tidelog.spark.session import has_our_jar

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType

TEXT, NUMBER = "s", "q"
LENGTH, LONG = struct.Struct(">i"), struct.Struct(">q")
NULL = -1


class TextBatch:
    """One micro-batch. `columns` says of each whether it is TEXT or NUMBER."""

    def __init__(self, rows: Any, session: SparkSession, columns: str, text_rows: Any) -> None:
        self._rows, self._session, self._columns, self._text_rows = rows, session, columns, text_rows

    @cached_property
    def frame(self) -> DataFrame:
        """As PySpark would have handed it over."""
        from pyspark.sql import DataFrame, SparkSession

        return DataFrame(self._rows, SparkSession(self._session.sparkContext, self._rows.sparkSession()))

    @property
    def sparkSession(self) -> SparkSession:
        return self.frame.sparkSession

    def collect(self) -> Sequence[Sequence[Any]]:
        """All rows, in the order of their partitions; this runs what makes them."""
        found = None if self._text_rows is None else self._text_rows(self._rows)
        return self.frame.collect() if found is None else list(unpacked(b"".join(_parts(found)), self._columns))


def _parts(found: Any) -> Iterator[bytes]:
    more = True
    while more:
        part: bytes = found.next()
        more = part[0] == 1
        yield part[1:]


def unpacked(data: bytes, columns: str) -> Iterator[tuple[str | int | None, ...]]:
    at = 0
    while at < len(data):
        row: list[str | int | None] = []
        for column in columns:
            if column == NUMBER:
                row.append(LONG.unpack_from(data, at)[0])
                at += LONG.size
                continue
            length = LENGTH.unpack_from(data, at)[0]
            at += LENGTH.size
            row.append(None if length == NULL else data[at : at + length].decode())
            at += max(length, 0)
        yield tuple(row)


def for_each_batch(
    stream: DataStreamWriter, rows: DataFrame, each: Callable[[TextBatch, int], None]
) -> DataStreamWriter:
    """`rows` are those of the stream. Where columns are not texts and long numbers alone, as a `_seq` that is an int,
    they are collected as ever.
    """
    columns, session = columns_of(rows.schema), rows.sparkSession
    jvm: Any = session.sparkContext._jvm
    known = columns is not None and has_our_jar(session)
    text_rows = jvm.tidelog.checkpoint.TextRows.of if known else None
    calls = _Calls(lambda batch, batch_id: each(TextBatch(batch, session, columns or "", text_rows), batch_id))
    sources = jvm.org.apache.spark.sql.execution.streaming.sources
    sources.PythonForeachBatchHelper.callForeachBatch(stream._jwrite, calls)
    return stream


def columns_of(schema: StructType) -> str | None:
    """Which of them are texts and which numbers; None where one is neither."""
    kinds = {"string": TEXT, "bigint": NUMBER}
    found = [kinds.get(field.dataType.simpleString()) for field in schema.fields]
    return None if None in found else "".join(filter(None, found))


class _Calls:
    """What the JVM calls. The names are Spark's and py4j's."""

    def __init__(self, each: Callable[[Any, int], None]) -> None:
        self.call = each

    class Java:
        implements = ("org.apache.spark.sql.execution.streaming.sources.PythonForeachBatchFunction",)
