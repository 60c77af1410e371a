"""What Debezium 3.6 wrote of a PostgreSQL database, case by case with the SQL that caused it, beside what we tell.

`DIFFERENCES` are all the places where we differ, with the reason; `docs/guide/capture_postgres.md` has the same table.
A difference is (case, table, column): column `` is the row as a whole, `=column` the column's Connect schema.
"""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from capture.sources.postgres.following import Base, rows_of, shown
from tidelog.capture.change import Event, Message, RowChange, SourceTable
from tidelog.capture.sources.postgres.source import PostgresSource
from tidelog.capture.sources.postgres.stream import PostgresStream

VECTORS = Path(__file__).parents[2] / "vectors"
EXTENSIONS = ("hstore", "citext", "ltree")
OF_EXTENSIONS = {"c_hstore", "a_hstore", "c_citext", "a_citext", "c_ltree", "c_xml"}
CHANGING = {("defs", "tsn"), ("defs", "u")}  # other values at every run

Record = tuple[str, str | None, Any, Any, Any]  # table, op, key, before, after; of a tombstone op is None
Difference = tuple[str, str, str]

ROWS_OF_TYPES = ("snapshot", "types_insert", "types_insert_null", "types_update", "types_delete")
WITH_VALUES = ("snapshot", "types_insert", "types_update")
REASONS: dict[str, set[Difference]] = {
    "a numeric keeps the zeros that PostgreSQL keeps": {
        *((case, "types", "c_num") for case in ("snapshot", "types_insert")),
        *((case, "types", "a_numv") for case in WITH_VALUES),
        ("value_num_trailing_zeros", "x_num_trailing_zeros", "c_num"),
    },
    "an array keeps microseconds": {(case, "types", "a_time") for case in WITH_VALUES},
    "an array keeps its dimensions": {
        *((case, "types", "a_int4_2d") for case in WITH_VALUES),
        ("snapshot", "types", "=a_int4_2d"),
    },
    "a column of every type is told": {
        *(
            (case, "types", column)
            for case in ROWS_OF_TYPES
            for column in ("c_comp", "c_box", "c_circle", "a_interval")
        ),
        *(("snapshot", "types", f"={column}") for column in ("c_comp", "c_box", "c_circle", "a_interval")),
    },
    "a date's infinity is the largest number of its schema": {("value_date_infinity", "x_date_infinity", "c_date")},
    "the index that identifies old rows is the key": {("update_identity_index", "kv_index", "")},
    "a partitioned table is told by its own name, once": {
        *(("snapshot", table, "") for table in ("parted_1", "parted_2")),
        *(("partitioned", table, "") for table in ("parted", "parted_1", "parted_2")),
    },
    "a default with a quote in it is whole": {("column_defaults", "defs", "=vc")},
}
DIFFERENCES = set().union(*REASONS.values())


def cases() -> Iterator[dict[str, Any]]:
    with lzma.open(VECTORS / "postgres_source.jsonl.xz", "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def differences(base: Base, *, extensions: bool) -> set[Difference]:
    """Runs every case, and compares all that is told with all that Debezium wrote."""
    all_cases = list(cases())
    create(base, all_cases, extensions=extensions)
    source = base.source("*")
    source.prepare()
    snapshot = source.snapshot()
    differ: set[Difference] = set()
    for case in all_cases:
        if case["case"] == "snapshot":
            rows = [
                RowChange(table, "r", None, values)
                for table in snapshot.tables()
                for some in snapshot.rows(table, None, None, 2)
                for values in some
            ]
            tables: dict[str, SourceTable] = {table.name: table for table in snapshot.tables()}
            snapshot.close()
            stream = base.stream(source, snapshot.position)
        else:
            rows = list(ran(base, source, stream, case, tables))
        differ |= differing(case, rows, tables)
    return differ if extensions else {each for each in differ if each[2].lstrip("=") not in OF_EXTENSIONS}


def ran(
    base: Base, source: PostgresSource, stream: PostgresStream, case: dict[str, Any], tables: dict[str, SourceTable]
) -> Iterator[RowChange]:
    first, _, rest = case["sql"].partition("; ")
    if first.startswith("CREATE TABLE"):  # of a table that no pattern could know: it is published when prepared anew
        base.run(first)
        source.prepare()
        base.run(rest)
    else:
        base.run(case["sql"])
    events = base.drain(stream)
    check_messages(case, events)
    for row in rows_of(events):
        tables[row.table.name] = row.table
        yield row


def check_messages(case: dict[str, Any], events: list[Event]) -> None:
    from base64 import b64encode

    came = [
        {"prefix": each.prefix, "content": b64encode(each.content).decode()}
        for each in events
        if isinstance(each, Message)
    ]
    assert came == [record[4] for record in case["records"] if record[1] == "m"]


def differing(
    case: dict[str, Any], rows: list[RowChange], tables: dict[str, SourceTable]
) -> Iterator[Difference] | set[Difference]:
    name = case["case"]
    ours: dict[str, list[Record]] = {}
    for row in rows:
        ours.setdefault(debezium_name(row.table.name), []).extend(records_of(row))
    theirs: dict[str, list[Record]] = {}
    for record in case["records"]:
        if record[1] != "m":
            theirs.setdefault(record[0], []).append((record[0], *record[1:]))
    found: set[Difference] = set()
    for table in ours.keys() | theirs.keys():
        found |= of_records(name, table, ours.get(table, []), theirs.get(table, []))
    for table, columns in case["columns"].items():
        found |= of_columns(name, table, tables, columns)
    return found


def of_records(case: str, table: str, ours: list[Record], theirs: list[Record]) -> set[Difference]:
    if [record[1:3] for record in ours] != [record[1:3] for record in theirs]:
        return {(case, table, "")}
    found: set[Difference] = set()
    for mine, other in zip(ours, theirs, strict=True):
        for one, two in ((mine[3], other[3]), (mine[4], other[4])):
            if one is None or two is None:
                found |= set() if one == two else {(case, table, "")}
                continue
            names = one.keys() | two.keys()
            missing = object()
            found |= {
                (case, table, column)
                for column in names
                if one.get(column, missing) != two.get(column, missing) and (table, column) not in CHANGING
            }
    return found


def of_columns(case: str, table: str, tables: dict[str, SourceTable], theirs: list[dict[str, Any]]) -> set[Difference]:
    by_name = {debezium_name(each): found for each, found in tables.items()}
    if table not in by_name:
        return {(case, table, "")}
    mine = [{**column.connect, "field": column.name} for column in by_name[table].columns]
    ours = {column["field"]: column for column in mine}
    other = {column["field"]: column for column in theirs}
    return {(case, table, f"={name}") for name in ours.keys() | other.keys() if ours.get(name) != other.get(name)}


def records_of(row: RowChange) -> list[Record]:
    """As Debezium frames it: a delete and its tombstone, a change of the key as a delete and a create."""
    table = row.table
    before, after = shown(table, row.before), shown(table, row.after)
    name = debezium_name(table.name)

    def key(values: dict[str, Any] | None) -> Any:
        return {column: values[column] for column in table.key} if table.key and values is not None else None

    if row.op == "d":
        return [(name, "d", key(before), before, None), (name, None, key(before), None, None)]
    if row.op == "u" and before is not None and key(before) != key(after):
        gone: list[Record] = [(name, "d", key(before), before, None), (name, None, key(before), None, None)]
        return [*gone, (name, "c", key(after), None, after)]
    return [(name, row.op, key(after), before, after)]


def debezium_name(table: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", table)


def create(base: Base, all_cases: list[dict[str, Any]], *, extensions: bool) -> None:
    ddl = (VECTORS / "postgres_ddl.sql").read_text()
    if not extensions:  # as texts, so that the statements hold; what is told of them is not compared
        for each in EXTENSIONS:
            ddl = ddl.replace(f"CREATE EXTENSION {each};", f"CREATE DOMAIN {each} AS text;")
        ddl = ddl.replace("c_xml xml", "c_xml text")
    base.run(ddl)
    declared = ddl[ddl.index("CREATE TABLE types (") :].partition("(")[2]
    types = dict(re.findall(r"(\w+) ((?:\w+(?: precision)?)(?:\([\d,]+\))?(?:\[\])*)(?= PRIMARY|,|\))", declared))
    for case in all_cases:
        found = re.match(r"INSERT INTO (x_\w+) \(([^)]+)\)", case["sql"])
        if found:
            columns = [f"{column} {types[column]}" for column in found[2].split(",") if column != "id"]
            base.run(f"CREATE TABLE {found[1]} (id int PRIMARY KEY, {', '.join(columns)})")
    insert = next(case["sql"] for case in all_cases if case["case"] == "types_insert")
    base.run(insert.replace("VALUES (3,", "VALUES (1,"), "INSERT INTO types (id) VALUES (2)")
