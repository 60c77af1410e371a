"""Columns as Spark writes them, read without Spark: its names and types, and what it would refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from proving import proves
from tidelog.errors import UsageError
from tidelog.spark.ddl import columns_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TAKEN = [
    "id long, product string, amount double, at timestamp",
    "ID BIGINT, n Int not null, `a ``b` string comment 'it, is'",
    "id: long, place: struct<city: string, at: struct<x: double, y: float>>",
    "tags array<string>, counts map<string, array<int>>, cost decimal(10, 2), plain decimal",
    "a tinyint, b byte, c smallint, d short, e integer, f real, g boolean, h date, i binary, j timestamp_ntz",
    "a timestamp_ltz, b char(3), c varchar(10), d numeric(5), e dec(5,1), f interval day to second, g variant",
    "a struct<>, b string",
    "`straße` string, _x int",
]


@proves("P1")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("id lnog, at timestamp", "column 'id' is of type 'lnog', which Spark does not have; did you mean long?"),
        ("id long, at timestmap", "did you mean timestamp?"),
        ("id str", "which Spark does not have; did you mean string?"),
        ("id qqqqqq", "which Spark does not have; types are boolean, tinyint"),
        ("tags array<sting>", "column 'tags' is of type 'sting', which Spark does not have; did you mean string?"),
        ("m map<string, struct<x: doble>>", "column 'x' is of type 'doble', which Spark does not have; did you mean"),
        ("id, name string", "column 'id' has no type; write it behind the name, as in id string"),
        ("name string, id", "column 'id' has no type"),
    ],
)
def test_a_type_that_spark_does_not_have_is_refused_with_its_column(text: str, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        columns_of(text)
    assert told in str(refused.value)


@proves("P1")
@pytest.mark.parametrize(
    "text", ["a double precision", "a int b int", "a array<int", "a int default 3", "a int,", "-", ""]
)
def test_what_is_written_in_another_way_is_left_to_spark(text: str) -> None:
    assert columns_of(text) is None


@proves("P1")
@pytest.mark.parametrize("text", TAKEN)
def test_columns_are_those_that_spark_finds(spark: SparkSession, text: str) -> None:
    from pyspark.sql.types import StructType

    theirs = [(field.name, field.dataType.typeName()) for field in StructType.fromDDL(text)]
    ours = columns_of(text)
    assert ours is not None
    assert [(name, SAID_OTHERWISE.get(kind, kind)) for name, kind in theirs] == [tuple(column) for column in ours]


SAID_OTHERWISE = {
    "interval day to second": "interval",
    "daytimeinterval": "interval",
    "char": "string",
    "varchar": "string",
}
