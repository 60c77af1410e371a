"""What Debezium 3.5 wrote for the same statements on MariaDB 10.11, case by case, with and without schemas.

Every difference stands in DIFFERENCES, and in the table of docs/guide/capture_mysql.md.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from capture.sources.mysql.reading import Database, key_of, named, read_all
from proving import proves
from tidelog.capture.change import Begin, Event, RowChange, SchemaChange
from tidelog.capture.sources.mysql.source import MySqlSource

pytestmark = pytest.mark.external

VECTORS = Path(__file__).parents[2] / "vectors"
GUIDE = Path(__file__).parents[4] / "docs" / "guide" / "capture_mysql.md"
# Case, column, Debezium's value, ours.
DIFFERENCES = {
    ("snapshot", "c_bigu", -1, 18446744073709551615),
    ("types_insert", "c_bigu", -1, 18446744073709551615),
    ("types_update", "c_bigu", -1, 18446744073709551615),
    ("types_delete", "c_bigu", -1, 18446744073709551615),
}
VOLATILE = {"version", "name", "ts_ms", "ts_us", "ts_ns", "gtid", "file", "pos", "server_id"}


@cache
def vectors() -> list[dict[str, Any]]:
    lines = lzma.decompress((VECTORS / "mariadb.jsonl.xz").read_bytes()).decode().split("\n")
    told = [json.loads(line) for line in lines]
    return [line for line in told if line["value"] is not None and not line["topic"].endswith(".marker")]


def of(case: str, schemas: bool) -> list[dict[str, Any]]:
    """The records of a case but for tombstones and the schema changes."""
    found = [line for line in vectors() if line["case"] == case and line["schemas"] == schemas]
    return by_table(
        [line for line in found if line["topic"].count(".") == 2], lambda line: line["topic"].rsplit(".", 1)[1]
    )


def by_table(found: list[Any], table_of: Callable[[Any], str]) -> list[Any]:
    """Records were noted topic by topic: their order is that of each table."""
    return sorted(found, key=table_of)


def cases() -> list[str]:
    return [case for case in dict.fromkeys(line["case"] for line in vectors()) if case != "snapshot"]


def statements(case: str) -> list[str]:
    sql = next(line["sql"] for line in vectors() if line["case"] == case)
    return [text for text in sql.split("; ") if text]


def as_debezium(row: RowChange) -> list[dict[str, Any]]:
    """An update of the key is a delete and a create; the rest is a record for a row."""
    table, before, after = row.table, row.before, row.after
    moved = before and after and table.key and key_of(table, before) != key_of(table, after)
    if not moved:
        return [{"op": row.op, "before": named(table, before), "after": named(table, after)}]
    return [
        {"op": "d", "before": named(table, before), "after": None},
        {"op": "c", "before": None, "after": named(table, after)},
    ]


class Played:
    """All cases on a real server, read after the last of them: tables have changed and gone by then."""

    def __init__(self, db: Database) -> None:
        ddl = (VECTORS / "mariadb_ddl.sql").read_text().partition("USE vec;")[2]
        db.run(*(text for text in ddl.split(";\n") if text.strip()))
        insert = statements("types_insert")[0]
        db.run(insert.replace("VALUES (3,", "VALUES (1,"), "INSERT INTO types (id) VALUES (2)")
        self.source: MySqlSource = db.source()
        snapshot = self.source.snapshot()
        self.start = snapshot.position
        self.tables = {table.name: table for table in snapshot.tables()}
        self.snapshot = {
            name: [row for part in snapshot.rows(table, None, None, 10) for row in part]
            for name, table in self.tables.items()
        }
        snapshot.close()
        self.events: dict[str, list[Event]] = {}
        ends = {}
        for case in cases():
            db.run(*statements(case))
            ends[case] = db.here()["gtid"]
        stream = self.source.stream(self.start)
        told = read_all(stream)
        stream.close()
        self._by_case(told, ends)

    def rows(self, case: str) -> list[tuple[Begin, RowChange]]:
        """By table, each with the transaction that it is of."""
        begin, found = Begin("", 0), []
        for event in self.events.get(case, []):
            begin = event if isinstance(event, Begin) else begin
            if isinstance(event, RowChange):
                found.append((begin, event))
        return by_table(found, lambda pair: pair[1].table.name)

    def _by_case(self, told: list[Event], ends: dict[str, str]) -> None:
        last = {case: int(gtid.rsplit("-", 1)[1]) for case, gtid in ends.items()}
        number = 0
        for event in told:
            if isinstance(event, Begin):
                number = int(event.id.rsplit("-", 1)[1])
            if isinstance(event, SchemaChange):
                number = int(event.position["gtid"].rsplit("-", 1)[1])
            case = next(case for case, end in last.items() if number <= end)
            self.events.setdefault(case, []).append(event)


@pytest.fixture(scope="module")
def played(server: Any) -> Any:
    db = Database(server, "vec")
    yield Played(db)
    db.close()


def expected_differences(case: str) -> dict[str, tuple[Any, Any]]:
    return {column: (theirs, ours) for named_case, column, theirs, ours in DIFFERENCES if named_case == case}


def with_ours(case: str, values: dict[str, Any] | None) -> dict[str, Any] | None:
    """Debezium's row, with the values that we are known to write otherwise."""
    if values is None:
        return None
    known = expected_differences(case)
    return {
        name: known[name][1] if name in known and value == known[name][0] else value for name, value in values.items()
    }


@proves("D1", "cdc.24", "cdc.26")
@pytest.mark.story
@pytest.mark.parametrize("case", cases())
def test_a_case_gives_the_rows_that_debezium_wrote(played: Played, case: str) -> None:
    ours = [record for _, row in played.rows(case) for record in as_debezium(row)]
    theirs = [
        {
            "op": line["value"]["op"],
            "before": with_ours(case, line["value"]["before"]),
            "after": with_ours(case, line["value"]["after"]),
        }
        for line in of(case, schemas=False)
    ]
    assert ours == theirs


@proves("D1", "cdc.24")
@pytest.mark.parametrize("case", cases())
def test_a_case_has_the_connect_schemas_that_debezium_wrote(played: Played, case: str) -> None:
    ours = [
        (row.table.name, [{**column.connect, "field": column.name} for column in row.table.columns])
        for _, row in played.rows(case)
        for _ in as_debezium(row)
    ]
    theirs = [
        (line["topic"].rsplit(".", 1)[1], line["value"]["schema"]["fields"][1]["fields"])
        for line in of(case, schemas=True)
    ]
    assert ours == theirs


@proves("D1")
@pytest.mark.parametrize("case", cases())
def test_a_case_has_the_source_block_that_debezium_wrote(played: Played, case: str) -> None:
    ours = []
    for begin, row in played.rows(case):
        block = json.loads(played.source.source_block(row, begin, "false", "name"))
        assert block["gtid"] == begin.id
        ours += [block] * len(as_debezium(row))
    theirs = [line["value"]["source"] for line in of(case, schemas=False)]
    assert [list(block) for block in ours] == [list(block) for block in theirs]
    assert [_steady(block) for block in ours] == [_steady(block) for block in theirs]


def _steady(block: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in block.items() if name not in VOLATILE}


@proves("D3")
def test_the_snapshot_gives_the_rows_that_debezium_read(played: Played) -> None:
    theirs = [
        (line["topic"].rsplit(".", 1)[1], with_ours("snapshot", line["value"]["after"]))
        for line in of("snapshot", schemas=False)
    ]
    ours = [(name, named(played.tables[name], row)) for name, rows in played.snapshot.items() for row in rows]
    assert by_table(ours, lambda pair: str(pair[0])) == theirs


@proves("D1")
def test_the_source_schema_is_debeziums(played: Played) -> None:
    theirs = of("insert", schemas=True)[0]["value"]["schema"]["fields"][2]
    assert {**played.source.source_schema, "field": "source"} == theirs


@proves("D1")
def test_schema_changes_come_with_their_statements(played: Played) -> None:
    told = [event for events in played.events.values() for event in events if isinstance(event, SchemaChange)]
    assert [change.ddl.split()[0] for change in told if change.ddl] == ["ALTER", "ALTER", "ALTER", "CREATE", "DROP"]
    assert told[-1].table is None and told[-1].database == "vec"


@proves("D3")
def test_a_row_of_the_snapshot_has_debeziums_source_block(played: Played) -> None:
    row = RowChange(played.tables["kv"], "r", None, played.snapshot["kv"][0])
    ours = json.loads(played.source.source_block(row, Begin("", 1_700_000_000_000_000), "first", "name"))
    theirs = of("snapshot", schemas=False)[0]["value"]["source"]
    assert list(ours) == list(theirs)
    assert (ours["server_id"], ours["gtid"], ours["row"], ours["snapshot"]) == (0, None, 0, "first")
    assert (ours["file"], ours["pos"]) == (played.start["file"], played.start["pos"])


@proves("D1")
def test_values_differ_from_debeziums_exactly_where_the_guide_says(played: Played) -> None:
    found = set()
    for case in [*cases(), "snapshot"]:
        if case == "snapshot":
            ours = [
                {"after": named(played.tables[name], row)}
                for name in sorted(played.tables)
                for row in played.snapshot[name]
            ]
        else:
            ours = [record for _, row in played.rows(case) for record in as_debezium(row)]
        for record, line in zip(ours, of(case, schemas=False), strict=True):
            for image in ("before", "after"):
                mine, theirs = record.get(image) or {}, line["value"][image] or {}
                found |= {(case, name, theirs[name], mine[name]) for name in theirs if theirs[name] != mine[name]}
    assert found == DIFFERENCES
    table = GUIDE.read_text().partition("| what | Debezium 3.5 | Tidelog |\n|---|---|---|\n")[2].partition("\n\n")[0]
    listed = [line.split(" | ")[0].strip("| ") for line in table.split("\n")]
    assert listed == ["`BIGINT UNSIGNED` above 2^63-1", "a table with an `INET6` column", "`TRUNCATE`"]
