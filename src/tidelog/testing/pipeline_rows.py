"""Rows on their way between Python and the JVM, many in one call.

They cross as pickles of Spark's internal values, which is how PySpark itself moves rows: one struct whose only field is
the list of rows. Rows are checked against the schema before they leave, so that a mistake is reported where it is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from typing import TYPE_CHECKING, Any

from tidelog.errors import UsageError
from tidelog.testing.pipeline_times import at

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession
    from pyspark.sql.types import StructType

RowLike = Any  # a tuple, a dict, a Row


class RowsIn:
    """Rows of one schema, from Python into the JVM."""

    def __init__(self, spark: SparkSession, schema: StructType) -> None:
        from pyspark.sql.types import _make_type_verifier

        jvm: Any = spark._jvm
        self._utils = jvm.org.apache.spark.sql.api.python.PythonSQLUtils
        self._schema = schema
        self._verify = _make_type_verifier(schema, name="row")
        self._wrapper = _listed(schema)
        self._jvm_wrapper = in_jvm(spark, self._wrapper)
        encoder = jvm.org.apache.spark.sql.catalyst.encoders.ExpressionEncoder.apply(self._jvm_wrapper)
        defaults = (getattr(encoder, f"resolveAndBind$default${number}")() for number in (1, 2))
        self._deserializer = encoder.resolveAndBind(*defaults).createDeserializer()

    def checked(self, row: RowLike) -> tuple[Any, ...]:
        """The row as a tuple in the schema's order, or an error that says what is wrong with it."""
        values = self._by_place(row)
        kinds = (field.dataType.typeName() for field in self._schema.fields)
        timed = tuple(_timed(value, kind) for value, kind in zip(values, kinds, strict=True))
        self._verify(timed)
        return timed

    def _by_place(self, row: RowLike) -> tuple[Any, ...]:
        names = self._schema.names
        if hasattr(row, "__fields__"):  # a Row whose values have names, in whatever order
            row = row.asDict()
        if isinstance(row, Mapping):
            if unknown := set(row) - set(names):
                raise UsageError(f"column {', '.join(sorted(unknown))} does not exist; columns are {', '.join(names)}")
            return tuple(row.get(name) for name in names)
        values = tuple(row)
        if len(values) != len(names):
            raise UsageError(f"a row has {len(values)} values, {row!r}; columns are {', '.join(names)}")
        return values

    def to_jvm(self, rows: Iterable[tuple[Any, ...]]) -> Any:
        """A Scala sequence of Spark's rows."""
        data = _pickles().dumps(self._wrapper.toInternal((list(rows),)))
        return self._utils.toJVMRow(data, self._jvm_wrapper, self._deserializer).apply(0).toSeq()


class RowsOut:
    """Rows of one schema, from the JVM into Python."""

    def __init__(self, spark: SparkSession, schema: StructType) -> None:
        self._spark = spark
        self._wrapper = _listed(schema)
        self._jvm_wrapper = in_jvm(spark, self._wrapper)

    def to_python(self, rows: Any) -> list[Row]:
        """`rows` is a Scala sequence of Spark's rows."""
        if rows.isEmpty():
            return []
        jvm: Any = self._spark._jvm
        gateway: Any = self._spark.sparkContext._gateway
        fields = gateway.new_array(jvm.java.lang.Object, 1)
        fields[0] = rows
        wrapped = jvm.org.apache.spark.sql.catalyst.expressions.GenericRowWithSchema(fields, self._jvm_wrapper)
        pickled = bytes(jvm.org.apache.spark.sql.api.python.PythonSQLUtils.toPyRow(wrapped))
        found: list[Row] = self._wrapper.fromInternal(_pickles().loads(pickled))[0]
        return found


def _pickles() -> Any:
    from pyspark.serializers import CPickleSerializer

    return CPickleSerializer()


def in_jvm(spark: SparkSession, schema: StructType) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json())


def _listed(schema: StructType) -> StructType:
    from pyspark.sql.types import ArrayType, StructField
    from pyspark.sql.types import StructType as Struct

    return Struct([StructField("rows", ArrayType(schema))])


def _timed(value: Any, kind: str) -> Any:
    """Texts stand for times where times are wanted."""
    if not isinstance(value, str) or kind not in ("timestamp", "timestamp_ntz", "date"):
        return value
    if kind == "date":
        return date.fromisoformat(value)
    return at(value)
