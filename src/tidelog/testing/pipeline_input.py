"""An input of a pipeline under test: rows are added to its partitions, and every run reads them from the beginning.

It is a log, as a topic is: what was added since a run's last step is that run's next micro-batch. Within a micro-batch
each partition is read by a task of its own, in the order in which its rows were added; partitions without rows have
their task too, so that the number of a task is the number of its partition.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from tidelog.errors import UsageError
from tidelog.testing.pipeline_rows import RowLike, RowsIn, in_jvm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class Added(NamedTuple):
    partition: int
    rows: list[tuple[Any, ...]]


class PipelineInput:
    """Made by `driver.input(...)`."""

    def __init__(self, spark: SparkSession, name: str, schema: str | StructType, partitions: int) -> None:
        from pyspark.sql.types import StructType as Struct

        if partitions < 1:
            raise UsageError(f"input {name!r} is to have {partitions} partitions; it needs one or more")
        self.name = name
        self.partitions = partitions
        self.schema = schema if isinstance(schema, Struct) else cast(Struct, Struct.fromDDL(schema))
        self.added: list[Added] = []
        self._spark = spark
        self._rows_in = RowsIn(spark, self.schema)

    def add(self, rows: Iterable[RowLike], partition: int = 0) -> None:
        """Rows for the next micro-batch: tuples in the order of the columns, dicts, or Rows.

        A text stands for a time where the column is one: "10:03:20" is `at("10:03:20")`.
        """
        if not 0 <= partition < self.partitions:
            raise UsageError(f"input {self.name!r} has no partition {partition}; it has {self.partitions}")
        self.added.append(Added(partition, [self._rows_in.checked(row) for row in rows]))

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """All that was added so far, partition by partition."""
        return [row for number in range(self.partitions) for row in _of_partition(self.added, number)]

    def batch(self) -> DataFrame:
        """All that was added so far, as a batch DataFrame."""
        from pyspark.sql import DataFrame as Frame

        jvm: Any = self._spark._jvm
        rows = jvm.scala.jdk.javaapi.CollectionConverters.asJava(self._rows_in.to_jvm(self.rows))
        frame = self._spark._jsparkSession.createDataFrame(rows, in_jvm(self._spark, self.schema))
        return Frame(frame, self._spark)

    def stream(self, number: int) -> InputStream:
        """This input as one run reads it. Streams of one session have different numbers."""
        return InputStream(self._spark, self, self._rows_in, number)


class InputStream:
    """Spark's own MemoryStream, and how far it has been fed.

    It outlives the queries of its run: a query that goes on from a checkpoint finds in it what was not yet committed.
    """

    def __init__(self, spark: SparkSession, source: PipelineInput, rows_in: RowsIn, number: int) -> None:
        from pyspark.sql import DataFrame as Frame

        jvm: Any = spark._jvm
        encoder = jvm.org.apache.spark.sql.Encoders.row(in_jvm(spark, source.schema))
        kind = jvm.org.apache.spark.sql.execution.streaming.runtime.MemoryStream
        self._stream = kind(number, spark._jsparkSession, jvm.scala.Option.empty(), encoder)
        self._source = source
        self._rows_in = rows_in
        self._fed = 0
        self.frame = Frame(self._stream.toDF(), spark)

    @property
    def has_more(self) -> bool:
        """Whether rows were added since it was fed last."""
        return any(added.rows for added in self._source.added[self._fed :])

    def feed(self) -> bool:
        """What was added since is to be read now; whether there is any."""
        pending, self._fed = self._source.added[self._fed :], len(self._source.added)
        if not any(added.rows for added in pending):
            return False
        self._feed(pending)
        return True

    def feed_nothing(self) -> None:
        """A micro-batch is to be run, for which this input has no rows."""
        self._feed([])

    def _feed(self, pending: list[Added]) -> None:
        """What is given to MemoryStream in one call becomes one task of the micro-batch."""
        for number in range(self._source.partitions):
            self._stream.addData(self._rows_in.to_jvm(_of_partition(pending, number)))


def _of_partition(added: Iterable[Added], number: int) -> list[tuple[Any, ...]]:
    return [row for one in added if one.partition == number for row in one.rows]
