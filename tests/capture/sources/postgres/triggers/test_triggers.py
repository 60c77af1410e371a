"""What triggers log and what is told of it: every kind of write, types, tables that change, and the writer's safety."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from capture.sources.postgres.comparing import (
    CHANGING,
    DIFFERENCES,
    OF_EXTENSIONS,
    cases,
    create,
    debezium_name,
    of_columns,
    records_of,
)
from capture.sources.postgres.following import Base, rows_of, shown, told
from capture.sources.postgres.triggers.logged import KV, drained, source_of, started
from proving import proves
from tidelog.capture.change import Begin, Idle, Message, RowChange, SchemaChange, SourceTable
from tidelog.errors import SourceLost, UsageError


@proves("D2", "cdc.11", "cdc.13")
def test_every_kind_of_write_is_told(base: Base) -> None:
    base.run(KV)
    source, stream = started(base)
    base.run(
        "INSERT INTO kv VALUES (1, 'a'), (2, NULL)",
        "UPDATE kv SET v = 'b' WHERE id = 1",
        "UPDATE kv SET id = 3 WHERE id = 2",
        "INSERT INTO kv VALUES (1, 'c') ON CONFLICT (id) DO UPDATE SET v = excluded.v",
        "DELETE FROM kv WHERE id = 1",
        "MERGE INTO kv USING (VALUES (3, 'm')) AS n(id, v) ON kv.id = n.id WHEN MATCHED THEN UPDATE SET v = n.v",
        "TRUNCATE kv",
        "COPY kv FROM PROGRAM 'printf \"7\\\\tq\\\\n\"'",
    )
    events = drained(stream)
    assert told(events) == [
        ("kv", "c", None, {"id": 1, "v": "a"}),
        ("kv", "c", None, {"id": 2, "v": None}),
        ("kv", "u", {"id": 1, "v": "a"}, {"id": 1, "v": "b"}),
        ("kv", "u", {"id": 2, "v": None}, {"id": 3, "v": None}),
        ("kv", "u", {"id": 1, "v": "b"}, {"id": 1, "v": "c"}),
        ("kv", "d", {"id": 1, "v": "c"}, None),
        ("kv", "u", {"id": 3, "v": None}, {"id": 3, "v": "m"}),
        ("kv", "t", None, None),
        ("kv", "c", None, {"id": 7, "v": "q"}),
    ]
    begin, row = next(event for event in events if isinstance(event, Begin)), rows_of(events)[0]
    block = json.loads(source.source_block(row, begin, "false", "shop"))
    schema = [field["field"] for field in source.source_schema["fields"]]
    assert list(block) == schema, "the same fields in the same order as the log's"
    assert (block["txId"], block["lsn"], block["table"]) == (int(begin.id), None, "kv")


@proves("D2")
def test_cascades_partitions_and_triggers_of_the_application_are_told_in_order(base: Base) -> None:
    base.run(
        "CREATE TABLE parent (id int PRIMARY KEY)",
        "CREATE TABLE child (id int PRIMARY KEY, p int REFERENCES parent ON DELETE CASCADE ON UPDATE CASCADE)",
        "CREATE TABLE parts (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF parts FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE high (v text, id int NOT NULL)",
        "ALTER TABLE parts ATTACH PARTITION high FOR VALUES FROM (10) TO (20)",
        "CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE low SET v = v || '!'"
        " WHERE id = NEW.id AND v NOT LIKE '%!'; RETURN NULL; END $$",
        "CREATE TRIGGER a_touch AFTER INSERT ON low FOR EACH ROW EXECUTE FUNCTION touch()",
        "INSERT INTO parent VALUES (1), (2)",
        "INSERT INTO child VALUES (1, 1), (2, 2)",
    )
    _, stream = started(base)
    base.run(
        "UPDATE parent SET id = 3 WHERE id = 2",
        "DELETE FROM parent WHERE id = 1",
        "INSERT INTO parts VALUES (1, 'a')",
        "INSERT INTO high VALUES ('b', 11)",
        "UPDATE parts SET id = 12 WHERE id = 1",
    )
    assert told(drained(stream)) == [
        ("parent", "u", {"id": 2}, {"id": 3}),
        ("child", "u", {"id": 2, "p": 2}, {"id": 2, "p": 3}),
        ("parent", "d", {"id": 1}, None),
        ("child", "d", {"id": 1, "p": 1}, None),
        ("parts", "c", None, {"id": 1, "v": "a"}),
        ("parts", "u", {"id": 1, "v": "a"}, {"id": 1, "v": "a!"}),
        ("parts", "c", None, {"v": "b", "id": 11}),
        ("parts", "d", {"id": 1, "v": "a!"}, None),
        ("parts", "c", None, {"v": "a!", "id": 12}),
    ]


@proves("D2", "cdc.15")
def test_values_do_not_depend_on_the_settings_of_the_writer(base: Base) -> None:
    base.run(
        "CREATE TABLE s (id int PRIMARY KEY, t timestamptz, d date, i interval, b bytea, f float8, x text, e text)"
    )
    _, stream = started(base)
    row = "'2024-02-29 12:34:56.5+00', '2024-02-03', '1 year 2 mons -3 days 04:05:06', '\\x00ff', 0.1"
    texts = "'a,\"b\"\\c (d)\n', ''"
    base.run(f"INSERT INTO s VALUES (1, {row}, {texts})")
    base.run(
        "SET datestyle = 'SQL, DMY'",
        "SET intervalstyle = 'iso_8601'",
        "SET timezone = 'Asia/Kolkata'",
        "SET bytea_output = 'escape'",
        "SET extra_float_digits = -10",
        f"INSERT INTO s SELECT 2, {row.replace('2024-02-03', '03/02/2024')}, {texts}",
    )
    first, second = [after for _, _, _, after in told(drained(stream))]
    assert {**second, "id": 1} == first
    assert (first["x"], first["e"], first["f"]) == ('a,"b"\\c (d)\n', "", 0.1)


@proves("D2", "cdc.9", "cdc.15")
def test_every_value_and_schema_is_that_of_the_log_and_of_debezium(base: Base) -> None:
    """All cases that Debezium wrote. Old rows are not compared: triggers tell them whole."""
    all_cases = list(cases())
    create(base, all_cases, extensions=False)
    source, stream = started(base)
    differ = set()
    tables: dict[str, SourceTable] = {table.name: table for table in source.tables()}
    for case in all_cases:
        if case["case"] == "snapshot":
            continue
        base.run(case["sql"])
        source.prepare()
        rows = rows_of(drained(stream))
        tables |= {row.table.name: row.table for row in rows}
        differ |= _differing(case, rows, tables)
    expected = {each for each in DIFFERENCES if each[0] != "snapshot"}
    unexplained = {each for each in differ - expected if each[2].lstrip("=") not in OF_EXTENSIONS}
    large = {each for each in unexplained if each[1] == "toast_t"}  # Debezium does not have them
    assert unexplained == large != set()


def _differing(case: dict[str, Any], rows: list[RowChange], tables: dict[str, SourceTable]) -> set[Any]:
    ours: dict[str, list[Any]] = {}
    for row in rows:
        ours.setdefault(debezium_name(row.table.name), []).extend(records_of(row))
    found: set[Any] = set()
    for table in {record[0] for record in case["records"] if record[1] != "m"}:
        theirs = [record for record in case["records"] if record[0] == table]
        mine = ours.get(table, [])
        if [record[1] for record in mine] != [record[1] for record in theirs]:
            found.add((case["case"], table, ""))
            continue
        for one, two in zip(mine, theirs, strict=True):
            after, other = one[4] or {}, two[4] or {}
            found |= {
                (case["case"], table, name)
                for name in after.keys() | other.keys()
                if after.get(name, "-") != other.get(name, "-") and (table, name) not in CHANGING
            }
    for table, columns in case["columns"].items():
        found |= of_columns(case["case"], table, tables, columns)
    return found


@proves("D2", "cdc.14")
@pytest.mark.parametrize("late", [False, True], ids=["read at once", "read at the end"])
def test_tables_that_change_are_told_by_the_columns_of_their_time(base: Base, late: bool) -> None:
    base.run(KV)
    _, stream = started(base)
    events = []
    steps = [
        ("INSERT INTO kv VALUES (1, 'a')",),
        ("ALTER TABLE kv ADD COLUMN n int DEFAULT 5", "INSERT INTO kv VALUES (2, 'b', 7)"),
        # Inside of one transaction, in one message, with as many columns as before.
        (
            "BEGIN; UPDATE kv SET n = 8 WHERE id = 2; ALTER TABLE kv DROP COLUMN v; ALTER TABLE kv ADD COLUMN w text;"
            " UPDATE kv SET w = 'new' WHERE id = 2; COMMIT",
        ),
        ("ALTER TABLE kv RENAME COLUMN w TO x", "ALTER TABLE kv ALTER COLUMN n TYPE text", "UPDATE kv SET n = 'nine'"),
        ("ALTER TABLE kv RENAME TO kw", "DELETE FROM kw WHERE id = 1"),
    ]
    for statements in steps:
        base.run(*statements)
        if not late:
            events += drained(stream)
    events += drained(stream)
    rows = rows_of(events)
    shown_rows = [(row.op, shown(row.table, row.after)) for row in rows]
    assert shown_rows == [
        ("c", {"id": 1, "v": "a"}),
        ("c", {"id": 2, "v": "b", "n": 7}),
        ("u", {"id": 2, "v": "b", "n": 8}),
        ("u", {"id": 2, "n": 8, "w": "new"}),
        ("u", {"id": 1, "n": "nine", "x": None}),
        ("u", {"id": 2, "n": "nine", "x": "new"}),
        ("d", None),
    ]
    assert all(row.table.key == ("id",) for row in rows)
    assert len([event for event in events if isinstance(event, SchemaChange)]) >= 3


@proves("D2")
def test_a_dropped_table_is_told_to_its_end_and_a_new_one_from_its_first_row(base: Base) -> None:
    base.run(KV)
    source, _ = started(base)
    base.run("INSERT INTO kv VALUES (1, 'a')", "DROP TABLE kv", "CREATE TABLE made (id int PRIMARY KEY, v text)")
    base.run("INSERT INTO made VALUES (1, 'before')")
    source.prepare()
    base.run("INSERT INTO made VALUES (2, 'after')")
    source.close()
    source = source_of(base)
    rows = rows_of(drained(source.stream(base.first)))
    assert [(row.table.name, row.table.key, shown(row.table, row.after)) for row in rows] == [
        ("kv", ("id",), {"id": 1, "v": "a"}),
        ("made", ("id",), {"id": 1, "v": "before"}),
        ("made", ("id",), {"id": 2, "v": "after"}),
    ]


@proves("D2")
def test_a_table_whose_triggers_were_off_is_told_anew(base: Base) -> None:
    base.run(KV, "INSERT INTO kv VALUES (1, 'a'), (2, 'b')")
    source, stream = started(base)
    base.run("ALTER TABLE kv DISABLE TRIGGER ALL", "DELETE FROM kv WHERE id = 1", "INSERT INTO kv VALUES (3, 'c')")
    assert drained(stream) == []
    assert any("gone or off" in each.what for each in source.check())
    source.prepare()
    assert [(op, after) for _, op, _, after in told(drained(stream))] == [
        ("t", None),
        ("c", {"id": 2, "v": "b"}),
        ("c", {"id": 3, "v": "c"}),
    ]
    base.run("INSERT INTO kv VALUES (4, 'd')")
    assert len(told(drained(stream))) == 1


@proves("D2")
def test_a_changelog_that_is_gone_fails_no_write_and_stops_the_capture(base: Base) -> None:
    base.run(KV)
    source, stream = started(base)
    base.run("DROP TABLE _tidelog_t.changes, _tidelog_t.state")
    base.run("INSERT INTO kv VALUES (1, 'a')")
    assert base.ask("SELECT count(*) FROM kv") == [(1,)]
    with pytest.raises(SourceLost, match="is gone"):
        stream.read(10, 0.001)
    source.close()
    with pytest.raises(SourceLost, match="is gone"):
        source_of(base).stream(base.first)


@proves("D2", "cdc.31")
def test_only_what_is_confirmed_is_deleted_and_captures_do_not_share(base: Base) -> None:
    base.run(KV)
    source, stream = started(base)
    other, beside = started(base, name="u")
    base.run("INSERT INTO kv VALUES (1, 'a')")
    events = stream.read(100, 0)
    stream.purge()
    assert base.ask("SELECT count(*) FROM _tidelog_t.changes") == [(1,)]
    stream.confirm(events[-1].position)  # type: ignore[union-attr]
    stream.purge()
    assert base.ask("SELECT count(*) FROM _tidelog_t.changes") == [(0,)]
    assert source.lag().seconds == 0.0
    lag = other.lag()
    assert lag.seconds is not None and lag.seconds > 0 and (lag.kept_bytes or 0) > 0
    assert len(told(drained(beside))) == 1


@proves("D2")
def test_what_a_user_without_rights_lacks_is_said_and_removing_leaves_nothing(base: Base) -> None:
    base.run(KV, "INSERT INTO kv VALUES (1, 'a')", "DROP ROLE IF EXISTS little, writer")
    base.run("CREATE ROLE little LOGIN", "CREATE ROLE writer LOGIN", "GRANT ALL ON kv TO writer")
    url = base.url.replace("postgres@", "little@")
    source = source_of(base, url=url)
    wrong = [each for each in source.check() if each.severity == "error"]
    assert [each.remedy.split()[:2] for each in wrong] == [
        ["CREATE", "SCHEMA"],
        ["GRANT", "SELECT"],
        ["GRANT", "TRIGGER"],
    ]
    with pytest.raises(UsageError, match="CREATE SCHEMA"):
        source.prepare()
    for each in wrong:
        base.run(each.remedy.partition("  --")[0].replace("CURRENT_USER", "little"))
    assert [each for each in source.check() if each.severity == "error"] == []
    source.prepare()
    snapshot = source.snapshot()
    assert [list(some) for some in snapshot.rows(snapshot.tables()[0], None, None, 10)] == [[("1", '"a"')]]
    snapshot.close()
    stream = source.stream(snapshot.position)
    with psycopg.connect(base.url.replace("postgres@", "writer@"), autocommit=True) as writer:
        writer.execute("INSERT INTO kv VALUES (2, 'b')")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            writer.execute("SELECT * FROM _tidelog_t.changes")
    base.run("ALTER TABLE kv ADD COLUMN n int")
    source.prepare()
    base.run("INSERT INTO kv VALUES (3, 'c', 1)")
    assert [after for _, _, _, after in told(drained(stream))] == [{"id": 2, "v": "b"}, {"id": 3, "v": "c", "n": 1}]
    assert source.remove()[-1] == "dropped the schema _tidelog_t"
    assert source.remove() == []
    assert base.ask("SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal") == [(0,)]
    assert base.ask("SELECT count(*) FROM pg_namespace WHERE nspname LIKE '%tidelog%'") == [(0,)]
    base.run("INSERT INTO kv VALUES (4, 'd', 1)")
    base.run("DROP OWNED BY little, writer", "DROP ROLE little, writer")


@proves("D2")
def test_a_long_transaction_holds_up_the_capture_and_not_the_application(
    base: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidelog.capture.sources.postgres.triggers import installing
    from tidelog.errors import Disconnected

    monkeypatch.setattr(installing, "LOCK_MS", 50)
    monkeypatch.setattr(installing, "LOCK_S", 0.2)
    base.run(KV)
    long = base.connection()
    long.execute("BEGIN")
    long.execute("INSERT INTO kv VALUES (1, 'a')")
    source = source_of(base)
    with pytest.raises(Disconnected, match="end that transaction"):
        source.prepare()
    base.run("INSERT INTO kv VALUES (2, 'b')")
    long.execute("COMMIT")
    source.prepare()
    snapshot = source.snapshot()
    rows = [row for some in snapshot.rows(snapshot.tables()[0], None, None, 10) for row in some]
    snapshot.close()
    assert rows == [("1", '"a"'), ("2", '"b"')]
    assert drained(source.stream(snapshot.position)) == []


@proves("D2", "cdc.18", "cdc.22")
def test_a_change_that_a_chunk_did_not_see_comes_behind_its_low_watermark(base: Base) -> None:
    """It has a lower number than the watermark, and is committed after it: by numbers it would come before."""
    base.run(KV, "INSERT INTO kv VALUES (1, 'old')")
    source, stream = started(base)
    late = base.connection()
    late.execute("BEGIN")
    late.execute("UPDATE kv SET v = 'new' WHERE id = 1")
    source.watermark("low")
    (table,) = source.tables()
    assert source.last_key(table) == ("1",)
    assert source.chunk(table, None, ("1",), 10) == [("1", '"old"')]
    late.execute("COMMIT")
    source.watermark("high")
    for limit in (1000, 1):
        events = drained(stream, limit)
        shown_events = [
            event.content.decode() if isinstance(event, Message) else event.op
            for event in events
            if isinstance(event, Message | RowChange)
        ]
        assert shown_events == ["low", "u", "high"]
        stream = source.stream(base.first)


@proves("D2")
def test_idle_tells_a_time_before_which_nothing_is_to_come(base: Base) -> None:
    base.run(KV)
    source, stream = started(base)

    def quiet_since() -> int:
        source.heartbeat()
        (idle,) = stream.read(10, 0.001)
        assert isinstance(idle, Idle)
        return idle.at_us

    first = quiet_since()
    late = base.connection()
    late.execute("BEGIN")
    late.execute("INSERT INTO kv VALUES (1, 'a')")
    assert quiet_since() <= quiet_since()
    held = quiet_since()
    late.execute("COMMIT")
    (begin, *_) = drained(stream)
    assert isinstance(begin, Begin) and 0 < first <= held <= begin.commit_us < quiet_since()


@proves("D2")
def test_a_restored_or_foreign_database_is_not_read_on(base: Base) -> None:
    base.run(KV)
    source, _ = started(base)
    ahead = {**base.first, "seen": "90000000:90000000:"}
    for position in (ahead, {**base.first, "log": "another"}, {**base.first, "system": "1"}, {"lsn": "0/1"}):
        with pytest.raises(SourceLost, match="take a new snapshot"):
            source.stream(position)
