"""Columns as Spark writes them, read without Spark: its names and types, and what it would refuse."""

from __future__ import annotations

import pytest

from proving import proves
from tidelog.errors import UsageError
from tidelog.spark.ddl import columns_of


@proves("P1")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("id lnog, at timestamp", "column 'id' is of type 'lnog', which Spark does not have; did you mean long?"),
        ("id long, at timestmap", "did you mean timestamp?"),
        ("id str", "which Spark does not have; did you mean string?"),
        ("id qqqqqq", "which Spark does not have; there are boolean, tinyint"),
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
