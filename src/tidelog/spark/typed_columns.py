"""Columns as Spark's types, and Spark's types as columns for values in JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.errors import UsageError
from tidelog.schema.column_types import KINDS, OF_SPARK
from tidelog.schema.decoding.column import Column, map_of

if TYPE_CHECKING:
    from pyspark.sql.types import DataType


def spark_type(column: Column) -> DataType:
    from pyspark.sql import types

    if column.kind == "struct":
        return types.StructType([types.StructField(child.name, spark_type(child)) for child in column.children])
    if column.kind == "list":
        return types.ArrayType(spark_type(column.children[0]))
    if column.kind == "map":
        key, value = column.children[0].children
        return types.MapType(spark_type(key), spark_type(value))
    if column.kind == "decimal":
        return types.DecimalType(column.precision, column.scale)
    leaf = {"name": "", "type": KINDS[column.kind].spark, "nullable": True, "metadata": {}}
    return types.StructField.fromJson(leaf).dataType


def column_of(name: str, kind: DataType) -> Column:
    """What JSON cannot be read as is refused by name."""
    from pyspark.sql import types

    if isinstance(kind, types.StructType):
        return Column(name, "struct", tuple(column_of(field.name, field.dataType) for field in kind))
    if isinstance(kind, types.ArrayType):
        return Column(name, "list", (column_of("element", kind.elementType),))
    if isinstance(kind, types.MapType) and isinstance(kind.keyType, types.StringType):
        return map_of(name, Column("key", "string"), column_of("value", kind.valueType))
    if isinstance(kind, types.DecimalType):
        return Column(name, "decimal", precision=kind.precision, scale=kind.scale)
    plain = OF_SPARK.get(kind.typeName())
    if plain is None or plain in ("interval", "map"):
        raise UsageError(f"column {name!r} is {kind.simpleString()}, which is not read from JSON; use another type")
    return Column(name, plain)
