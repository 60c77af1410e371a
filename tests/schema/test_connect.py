"""Columns as Kafka Connect describes them, over every description that Debezium wrote (3.6 of PostgreSQL, 3.5 of
MariaDB) of tables with a column of each type: `vectors/connect_columns.jsonl`, each once and without its field's name.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proving import proves
from tidelog.errors import InvalidSchema
from tidelog.schema.column_types import KINDS
from tidelog.schema.connect import FORMS, PRECISION, SCALE, ColumnType, from_connect, to_connect

VECTORS = [json.loads(line) for line in (Path(__file__).parent / "vectors/connect_columns.jsonl").open()]
SCHEMAS = {f"{one['database']}-{one['settings']}-{one['column']}-{place}": one for place, one in enumerate(VECTORS)}
NOT_SEEN = {"byte", "struct"}  # no column of PostgreSQL or MariaDB is an int8, or a struct without a name of Debezium's


def forms_in(column: ColumnType) -> set[str]:
    return {column.form}.union(*(forms_in(one) for _, one in column.parts))


@proves("D1")
@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_of_debezium_is_written_as_it_was_read(name: str) -> None:
    schema = SCHEMAS[name]["schema"]
    default = {"default": schema["default"]} if "default" in schema else {}
    assert json.dumps(to_connect(from_connect(schema)) | default) == json.dumps(schema)


@proves("D1")
def test_every_form_is_one_that_debezium_writes() -> None:
    seen = set().union(*(forms_in(from_connect(one["schema"])) for one in VECTORS))
    assert set(FORMS) - seen == NOT_SEEN


@proves("D1")
def test_every_kind_has_a_form_of_its_own_and_every_form_a_kind() -> None:
    assert {kind: FORMS[kind].kind for kind in KINDS} == {kind: kind for kind in KINDS}
    assert {one.kind for one in FORMS.values()} <= set(KINDS)


@proves("D1")
@pytest.mark.parametrize(
    ("database", "column", "form", "kind"),
    [
        ("postgres", "c_int2", "short", "short"),
        ("postgres", "c_int8", "long", "long"),
        ("postgres", "c_real", "float", "float"),
        ("postgres", "c_bool", "boolean", "boolean"),
        ("postgres", "c_bytea", "binary", "binary"),
        ("postgres", "c_num", "any_decimal", "decimal"),
        ("postgres", "c_date", "date", "date"),
        ("postgres", "c_ts", "timestamp_ntz", "timestamp_ntz"),
        ("postgres", "c_ts0", "timestamp_ms", "timestamp_ntz"),
        ("postgres", "c_tstz", "timestamp", "timestamp"),
        ("postgres", "c_time", "time", "long"),
        ("postgres", "c_interval", "interval", "interval"),
        ("postgres", "c_uuid", "uuid", "string"),
        ("postgres", "c_json", "json", "json"),
        ("postgres", "a_text", "list", "list"),
        ("mariadb", "c_year", "year", "int"),
        ("mariadb", "c_set", "enum_set", "string"),
    ],
)
def test_a_column_has_the_kind_that_holds_its_values(database: str, column: str, form: str, kind: str) -> None:
    (found,) = {
        from_connect(one["schema"])
        for one in VECTORS
        if (one["database"], one["settings"], one["column"]) == (database, "default", column)
    }
    assert (found.form, FORMS[found.form].kind) == (form, kind)


@proves("D1")
def test_a_decimal_has_its_precision_and_its_scale() -> None:
    of_ten_digits = ColumnType("decimal", parameters=((SCALE, "2"), (PRECISION, "10")))
    (seen,) = (one["schema"] for one in VECTORS if one["column"] == "c_num_p")
    assert from_connect(seen) == of_ten_digits


@proves("D1")
def test_a_whole_row_is_a_struct_of_its_columns() -> None:
    fields = [to_connect(ColumnType("int", False)) | {"field": "id"}, to_connect(ColumnType("uuid")) | {"field": "u"}]
    row = {"type": "struct", "fields": fields, "optional": True, "name": "shop.public.orders.Value", "field": "after"}
    assert from_connect(row).parts == (("id", ColumnType("int", False)), ("u", ColumnType("uuid")))


@proves("D1")
def test_a_name_that_is_not_known_leaves_the_plain_type() -> None:
    said = {"type": "int64", "optional": True, "name": "com.example.Cents", "version": 3}
    assert from_connect(said) == ColumnType("long")


@proves("D1")
@pytest.mark.parametrize(
    "schema",
    [
        *({}, [], None, "int32", {"type": "int128"}, {"type": ["int32"]}, {"type": "array", "items": "int32"}),
        *({"type": "struct", "fields": [1]}, {"type": "bytes", "parameters": "scale"}, {"type": "map", "keys": None}),
    ],
)
def test_what_connect_does_not_have_is_refused(schema: Any) -> None:
    with pytest.raises(InvalidSchema, match="Kafka Connect"):
        from_connect(schema)


@proves("D1")
def test_a_schema_without_end_is_refused() -> None:
    schema: dict[str, Any] = {"type": "array"}
    schema["items"] = schema
    with pytest.raises(InvalidSchema, match="too deep"):
        from_connect(schema)
