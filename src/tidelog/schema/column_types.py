"""The one table of types: which columns there are, and what each is called wherever a column is made. Pure.

KINDS    every column that values are decoded to, and its form in Arrow, DuckDB and Spark
TYPES    those of them that a view's column has, and STORED, what a store makes of each

Rules:
- A type has one name in Tidelog, whoever asks: a type of a view is the kind of the same name.
- Nothing of Arrow, DuckDB or Spark is imported here: forms are texts, and `arrow_of` makes Arrow's type of one.
- What a store has made stands in tables, indexes and files that are kept: a form of STORED that is changed changes no
  store that is there.
- `connect.py` has the forms of Kafka Connect and Debezium.
"""

from __future__ import annotations

from typing import Any, NamedTuple

BOOLEAN, LONG, DOUBLE, DECIMAL, STRING, BINARY, DATE, TIMESTAMP, JSON = TYPES = (
    *("boolean", "long", "double", "decimal", "string", "binary", "date", "timestamp", "json"),
)
OF_A_KEY = (BOOLEAN, LONG, STRING, DATE, TIMESTAMP, DECIMAL, BINARY)  # a double is equal to itself not always
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1
IN_UTC = "timestamp[us, tz=UTC]"


class Kind(NamedTuple):
    """One of a decoded column. A decimal's precision and scale, and what is inside a struct, stand with the column."""

    view: str  # the type of a view's column that holds its values; "" where there is not one
    arrow: str  # as pyarrow writes it; "" where it has parts
    c_format: str  # Arrow's, in the C data interface; DuckDB gets times in UTC without their zone
    duckdb: str
    spark: str  # in Spark's JSON of schemas, and taken by its DDL; "" where it has parts
    words: tuple[str, ...]  # by which Spark's DDL names it; the first is Spark's own


KINDS = {
    "boolean": Kind(BOOLEAN, "bool", "b", "BOOLEAN", "boolean", ("boolean",)),
    "byte": Kind(LONG, "int8", "c", "TINYINT", "byte", ("tinyint", "byte")),
    "short": Kind(LONG, "int16", "s", "SMALLINT", "short", ("smallint", "short")),
    "int": Kind(LONG, "int32", "i", "INTEGER", "integer", ("int", "integer")),
    "long": Kind(LONG, "int64", "l", "BIGINT", "long", ("bigint", "long")),
    "float": Kind(DOUBLE, "float", "f", "FLOAT", "float", ("float", "real")),
    "double": Kind(DOUBLE, "double", "g", "DOUBLE", "double", ("double",)),
    "decimal": Kind(DECIMAL, "", "d", "DECIMAL", "decimal", ("decimal", "dec", "numeric")),
    "string": Kind(STRING, "string", "u", "VARCHAR", "string", ("string", "char", "character", "varchar")),
    "binary": Kind(BINARY, "binary", "z", "BLOB", "binary", ("binary",)),
    "json": Kind(JSON, "string", "u", "VARCHAR", "string", ()),
    "date": Kind(DATE, "date32", "tdD", "DATE", "date", ("date",)),
    "timestamp": Kind(TIMESTAMP, IN_UTC, "tsu:", "TIMESTAMP", "timestamp", ("timestamp", "timestamp_ltz")),
    "timestamp_ntz": Kind(TIMESTAMP, "timestamp[us]", "tsu:", "TIMESTAMP", "timestamp_ntz", ("timestamp_ntz",)),
    "interval": Kind("", "duration[us]", "tDu", "INTERVAL", "interval day to second", ("interval",)),
    "struct": Kind(JSON, "", "+s", "STRUCT", "", ("struct",)),
    "list": Kind(JSON, "", "+l", "LIST", "", ("array",)),
    "map": Kind(JSON, "", "+m", "MAP", "", ("map",)),
}
OF_SPARK = {word: kind for kind, one in KINDS.items() for word in one.words}


class Stored(NamedTuple):
    """Of a view's type."""

    sqlite: str
    postgres: str
    copied: str  # to PostgreSQL: what it is where nothing is compared or kept
    opensearch: dict[str, Any]
    files: str  # Arrow's, in Parquet and Delta


_LENIENT = {"ignore_malformed": True}
_TEXT = {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 8191}}}
_DAY = {"type": "date", "format": "strict_date", **_LENIENT}
_TIME = {"type": "date", "format": "strict_date_optional_time", **_LENIENT}
STORED = {
    BOOLEAN: Stored("INTEGER", "boolean", "bool", {"type": "boolean"}, "bool"),
    LONG: Stored("INTEGER", "bigint", "int8", {"type": "long"}, "int64"),
    DOUBLE: Stored("REAL", "double precision", "float8", {"type": "double", **_LENIENT}, "double"),
    DECIMAL: Stored("TEXT", "numeric", "numeric", {"type": "double", **_LENIENT}, "string"),
    STRING: Stored("TEXT", 'text COLLATE "C"', "text", _TEXT, "string"),
    BINARY: Stored("BLOB", "bytea", "bytea", {"type": "binary"}, "binary"),
    DATE: Stored("TEXT", "date", "date", _DAY, "date32"),
    TIMESTAMP: Stored("TEXT", "timestamptz", "timestamptz", _TIME, IN_UTC),
    JSON: Stored("TEXT", "json", "text", {"type": "object", "enabled": False}, "string"),
}


def quoted(name: str) -> str:
    """A column's or a table's name in SQL, as SQLite, PostgreSQL and DuckDB take it."""
    return '"' + name.replace('"', '""') + '"'


def arrow_of(text: str) -> Any:
    """pyarrow's type."""
    import pyarrow

    return pyarrow.timestamp("us", "UTC") if text == IN_UTC else pyarrow.type_for_alias(text)


def c_format(kind: str, precision: int, scale: int) -> str:
    """Of a column; a decimal's has its precision and scale."""
    return f"d:{precision},{scale}" if kind == DECIMAL else KINDS[kind].c_format
