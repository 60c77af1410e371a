"""The one table of types, beside those whose types it names: Arrow, DuckDB, Spark and SQLite themselves."""

from __future__ import annotations

import sqlite3

import pyarrow as pa
import pytest

from proving import proves
from tidelog.schema.column_types import KINDS, OF_A_KEY, OF_SPARK, STORED, TYPES, arrow_of, c_format
from tidelog.schema.decoding.column import MEMORY
from tidelog.sql.c_stream import ArrowField, ArrowTable
from tidelog.views.stores.key_order import _PARTS

WHOLE = [kind for kind, one in KINDS.items() if one.arrow]  # that no parts belong to
INNER = {
    "+s": (ArrowField("a", "l"),),
    "+l": (ArrowField("element", "l"),),
    "+m": (ArrowField("entries", "+s", (ArrowField("key", "u"), ArrowField("value", "l"))),),
}


@proves("architecture")
def test_every_table_has_every_type() -> None:
    assert set(TYPES) == set(STORED) == {one.view for one in KINDS.values()} - {""}
    assert all(KINDS[kind].view == kind for kind in TYPES)
    assert set(OF_A_KEY) == set(_PARTS) < set(TYPES)
    assert set(KINDS) == set(MEMORY)


@proves("architecture")
@pytest.mark.parametrize("text", sorted({KINDS[kind].arrow for kind in WHOLE} | {one.files for one in STORED.values()}))
def test_a_form_of_arrow_is_the_text_of_its_type(text: str) -> None:
    assert str(arrow_of(text)).removesuffix("[day]") == text


@proves("architecture")
@pytest.mark.parametrize("kind", WHOLE)
def test_a_kind_takes_as_much_memory_as_its_type_of_arrow(kind: str) -> None:
    made, width = arrow_of(KINDS[kind].arrow), MEMORY[kind][1]
    assert width == (made.byte_width if made.bit_width > 1 else 0) if pa.types.is_primitive(made) else width == 0


@proves("sql")
def test_duckdb_has_the_types_that_it_is_said_to_have() -> None:
    import duckdb

    fields = [ArrowField(kind, c_format(kind, 10, 2), INNER.get(one.c_format, ())) for kind, one in KINDS.items()]
    given = ArrowTable(fields, lambda: iter(()))  # noqa: F841  DuckDB finds it by its name
    found = {name: told for name, told, *_ in duckdb.connect().execute("describe select * from given").fetchall()}
    told = {"struct": "STRUCT(a BIGINT)", "list": "BIGINT[]", "map": "MAP(VARCHAR, BIGINT)", "decimal": "DECIMAL(10,2)"}
    assert found == {kind: one.duckdb for kind, one in KINDS.items()} | told


@proves("P1", "typed")
@pytest.mark.parametrize(("kind", "name"), [(kind, one.spark) for kind, one in KINDS.items() if one.spark])
def test_spark_has_the_types_that_it_is_said_to_have(kind: str, name: str) -> None:
    from pyspark.sql.types import StructField

    read = StructField.fromJson({"name": "", "type": name, "nullable": True, "metadata": {}}).dataType
    assert read.jsonValue().partition("(")[0] == name
    if kind not in ("json", "interval"):
        assert OF_SPARK[read.typeName()] == OF_SPARK[read.simpleString().partition("(")[0]] == kind


@proves("P3")
def test_sqlite_keeps_a_value_as_its_column_says() -> None:
    values = {"INTEGER": "12", "REAL": "12", "TEXT": 12, "BLOB": "12"}
    kept = {"INTEGER": "integer", "REAL": "real", "TEXT": "text", "BLOB": "text"}  # BLOB changes nothing
    columns, marks = ", ".join(f"{kind} {one.sqlite}" for kind, one in STORED.items()), ", ".join("?" * len(STORED))
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE TABLE t ({columns})")
    connection.execute(f"INSERT INTO t VALUES ({marks})", [values[one.sqlite] for one in STORED.values()])
    (found,) = connection.execute(f"SELECT {', '.join(f'typeof({kind})' for kind in STORED)} FROM t")
    assert list(found) == [kept[one.sqlite] for one in STORED.values()]
