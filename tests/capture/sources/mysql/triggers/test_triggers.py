"""Triggers on a real MariaDB: order whatever commits when, every type, tables that change, TRUNCATE, rights."""

from __future__ import annotations

import threading
from random import Random
from typing import Any

import pymysql
import pytest

import tidelog
from capture.captured import envelopes, folded
from capture.sources.mysql.reading import Database
from capture.sources.mysql.test_vectors import VECTORS, as_debezium, by_table, cases, of, statements, with_ours
from capture.sources.mysql.triggers.logged import KV, Reader, drained, source_of, started, told
from proving import proves
from tidelog.capture.change import Begin, Message, RowChange, SchemaChange
from tidelog.capture.sources.mysql.triggers import changelog, installing
from tidelog.errors import SourceLost

pytestmark = pytest.mark.external


def opened(db: Database, *texts: str) -> Any:
    """A transaction that has written, and has not ended."""
    connection = db.server.connect(db.name)
    connection.begin()
    for text in texts:
        connection.cursor().execute(text)
    return connection


@proves("D2", "cdc.1")
@pytest.mark.story
def test_a_low_number_that_is_committed_late_is_not_passed_over(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changelog, "GIVE_UP_EVERY_S", 0.15)  # the server's list is a tenth of a second old at most
    db.run(KV)
    _, stream, _ = started(db)
    late = opened(db, "INSERT INTO kv VALUES (1, 'late')")
    lost = opened(db, "INSERT INTO kv VALUES (3, 'rolled back')")
    db.run("INSERT INTO kv VALUES (2, 'early')")
    ((naive,),) = db.run(f"SELECT MAX(id) FROM _tidelog_{db.name}.changes")
    assert [after["id"] for _, _, after in told(drained(stream))] == [2]
    lost.rollback()
    for _ in range(5):
        assert drained(stream) == [], "a gap is not given up while a transaction is open that was open then"
    assert stream.seen.gaps == ((1, 2),)
    late.commit()
    assert db.run(f"SELECT id FROM _tidelog_{db.name}.changes WHERE id > {naive}") == [], "a naive reader loses it"
    assert [after["id"] for _, _, after in told(drained(stream))] == [1]
    for _ in range(200):
        if not stream.seen.gaps:
            break
        assert stream.read(10, 0.02)
    assert stream.seen.gaps == (), "what was rolled back is given up"


@proves("D2", "cdc.11")
def test_every_kind_of_write_is_told_and_truncate_is_noticed(db: Database) -> None:
    db.run(KV)
    source, stream, _ = started(db)
    db.run(
        "INSERT INTO kv VALUES (1, 'a'), (2, NULL)",
        "UPDATE kv SET v = 'b' WHERE id = 1",
        "UPDATE kv SET id = 3 WHERE id = 2",
        "INSERT INTO kv VALUES (1, 'c') ON DUPLICATE KEY UPDATE v = 'c'",
        "REPLACE INTO kv VALUES (1, 'd')",
        "DELETE FROM kv WHERE id = 1",
    )
    assert told(drained(stream)) == [
        ("c", None, {"id": 1, "v": "a"}),
        ("c", None, {"id": 2, "v": None}),
        ("u", {"id": 1, "v": "a"}, {"id": 1, "v": "b"}),
        ("u", {"id": 2, "v": None}, {"id": 3, "v": None}),
        ("u", {"id": 1, "v": "b"}, {"id": 1, "v": "c"}),
        ("d", {"id": 1, "v": "c"}, None),
        ("c", None, {"id": 1, "v": "d"}),
        ("d", {"id": 1, "v": "d"}, None),
    ]
    db.run("TRUNCATE kv", "INSERT INTO kv VALUES (9, 'z')")
    assert [op for op, _, _ in told(drained(stream))] == ["c"]
    source.prepare()
    assert told(drained(stream)) == [("t", None, None), ("c", None, {"id": 9, "v": "z"})]


def writes(db: Database, seed: int, rounds: int) -> None:
    random = Random(seed)
    connection = db.server.connect(db.name)
    cursor = connection.cursor()
    cursor.execute("SET innodb_lock_wait_timeout = 2")
    for _ in range(rounds):
        try:
            connection.begin()
            for _ in range(random.choice((1, 1, 2, 5))):
                key, value = random.randint(1, 6), random.randint(1, 99)
                cursor.execute(
                    random.choice(
                        (
                            f"INSERT INTO kv VALUES ({key}, {value}) ON DUPLICATE KEY UPDATE v = {value}",
                            f"REPLACE INTO kv VALUES ({key}, {value})",
                            f"UPDATE kv SET v = CONCAT(COALESCE(v, ''), 'x') WHERE id = {key}",
                            f"DELETE FROM kv WHERE id = {key}",
                            f"UPDATE IGNORE kv SET id = {key} WHERE id = {random.randint(1, 6)}",
                        )
                    )
                )
                if random.random() < 0.3:
                    cursor.execute(f"DO SLEEP({random.random() / 50})")
            connection.commit() if random.random() < 0.75 else connection.rollback()
        except pymysql.err.OperationalError:  # a deadlock, as in life
            connection.rollback()
    connection.close()


@proves("D2", "cdc.1", "cdc.2", "cdc.16")
@pytest.mark.parametrize("limit", [2, 1000])
def test_histories_of_several_writers_fold_to_the_table(
    db: Database, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every change must fit what the ones before it made of its row: an order that is wrong for one row fails here."""
    monkeypatch.setattr(changelog, "GIVE_UP_EVERY_S", 0.05)
    db.run(KV)
    reader = Reader(db, limit)
    writers = [threading.Thread(target=writes, args=(db, 5 * limit + one, 80)) for one in range(4)]
    for writer in writers:
        writer.start()
    random = Random(limit)
    while any(writer.is_alive() for writer in writers):
        reader.read_some(random.randint(1, 40))
        if random.random() < 0.2:
            reader.again(confirmed=random.random() < 0.5)
    while not reader.read_some(1):
        pass
    assert reader.rows("kv") == [tuple(row) for row in db.run("SELECT id, v FROM kv ORDER BY id")]


@proves("D2", "cdc.26")
def test_every_value_is_that_of_the_binlog_and_of_debezium(db: Database) -> None:
    """All cases that Debezium wrote, but for those that change a table: triggers tell that otherwise."""
    ddl = (VECTORS / "mariadb_ddl.sql").read_text().partition("USE vec;")[2]
    db.run(*(text for text in ddl.split(";\n") if text.strip()))
    source, stream, _ = started(db)
    compared = []
    for case in cases():
        db.run(*statements(case))
        rows = [row for row in drained(stream) if isinstance(row, RowChange)]
        if any(text.split()[0] in {"ALTER", "CREATE", "DROP", "TRUNCATE"} for text in statements(case)):
            source.prepare()
            drained(stream)
            continue
        ours = [record for row in by_table(rows, lambda row: str(row.table.name)) for record in as_debezium(row)]
        theirs = [
            {"op": line["value"]["op"]} | {name: with_ours(case, line["value"][name]) for name in ("before", "after")}
            for line in of(case, schemas=False)
        ]
        assert ours == theirs, case
        compared.append(case)
    assert {"types_insert", "types_update", "types_delete", "insert"} <= set(compared)


@proves("D2")
def test_values_do_not_depend_on_the_settings_of_the_writer(db: Database) -> None:
    db.run(
        "CREATE TABLE s (id int PRIMARY KEY, t timestamp(6) NULL, d datetime(3), f float, x double, c char(5),"
        " l varchar(9) CHARACTER SET latin1, j json, b blob)",
    )
    _, stream, _ = started(db)
    db.run(
        "INSERT INTO s VALUES (1, '2024-02-29 12:34:56.789012', '2024-02-29 12:34:56.789', 0.1, 0.1, 'ab', 'h\u00e9',"
        """ '{"a": [1, "\u00e9"]}', x'00ff')""",
        "SET time_zone = '+05:30', sql_mode = 'PAD_CHAR_TO_FULL_LENGTH'",
        "INSERT INTO s SELECT 2, t, d, f, x, c, l, j, b FROM s WHERE id = 1",
    )
    first, second = [after for _, _, after in told(drained(stream))]
    assert {**second, "id": 1} == first
    assert (first["c"], first["l"], first["f"]) == ("ab", "h\u00e9", 0.1)


@proves("D2", "cdc.24")
def test_tables_that_change_do_not_fail_writes_and_are_told(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changelog, "IN_STEP_EVERY_S", 1000.0)
    db.run(KV, "INSERT INTO kv VALUES (1, 'a')")
    source, stream, _ = started(db)
    db.run("ALTER TABLE kv ADD COLUMN n int DEFAULT 5", "INSERT INTO kv VALUES (2, 'b', 7)")
    assert told(drained(stream)) == [("c", None, {"id": 2, "v": "b"})]
    source.prepare()
    events = drained(stream)
    assert told(events) == [("u", None, {"id": 2, "v": "b", "n": 7})]
    assert any(isinstance(event, SchemaChange) for event in events)
    db.run("ALTER TABLE kv DROP COLUMN v", "UPDATE kv SET n = 8 WHERE id = 2")
    assert told(drained(stream) + drained(stream)) == [
        ("t", None, None),
        ("c", None, {"id": 1, "n": 5}),
        ("c", None, {"id": 2, "n": 8}),
    ]
    db.run(f"DROP TABLE _tidelog_{db.name}.changes", "INSERT INTO kv VALUES (3, 9)")
    assert db.run("SELECT COUNT(*) FROM kv") == [(3,)]
    with pytest.raises(SourceLost, match="is gone"):
        stream.read(10, 0.001)


@proves("D2", "cdc.3")
def test_a_large_unit_comes_in_pieces_and_again_in_the_same_ones(db: Database) -> None:
    db.run(KV)
    source, stream, _ = started(db)
    db.run("INSERT INTO kv SELECT seq, 'x' FROM seq_1_to_10")
    first = stream.read(4, 0.001)
    position = first[0].position  # type: ignore[union-attr]
    assert "upto" in position and isinstance(first[1], Begin)
    pieces = [first, *(stream.read(4, 0.001) for _ in range(3))]
    db.run("INSERT INTO kv VALUES (11, 'later')")
    again = source.stream(position)
    assert [again.read(4, 0.001) for _ in range(4)] == pieces
    assert [op for op, _, _ in told(drained(again, 4))] == ["c"]
    again.confirm({"log": position["log"], **stream.seen.to_fields()})
    again.purge()
    assert db.run(f"SELECT COUNT(*) FROM _tidelog_{db.name}.changes") == [(1,)]
    again.close()


@proves("D2", "cdc.18")
def test_a_change_that_a_chunk_did_not_see_comes_behind_its_low_watermark(db: Database) -> None:
    db.run(KV, "INSERT INTO kv VALUES (1, 'old')")
    source, stream, _ = started(db)
    late = opened(db, "UPDATE kv SET v = 'new' WHERE id = 1")
    source.watermark("low")
    (table,) = source.tables()
    assert source.chunk(table, None, source.last_key(table), 10) == [("1", '"old"')]
    late.commit()
    source.watermark("high")
    shown = [
        event.content.decode() if isinstance(event, Message) else event.op
        for event in drained(stream)
        if isinstance(event, Message | RowChange)
    ]
    assert shown == ["low", "u", "high"]


@proves("D2")
def test_what_a_user_lacks_is_said_cascades_are_refused_and_removing_leaves_nothing(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installing, "PATIENCE_S", 0.5)
    db.run(
        KV,
        "CREATE TABLE child (id int PRIMARY KEY, p int, CONSTRAINT fk FOREIGN KEY (p) REFERENCES kv (id)"
        " ON DELETE CASCADE)",
        f"CREATE OR REPLACE USER little{db.name} IDENTIFIED BY 'p'",
        f"GRANT SELECT ON {db.name}.* TO little{db.name}",
    )
    source = source_of(db, "kv", user=f"little{db.name}", password="p")
    wrong = [one for one in source.check() if one.severity == "error"]
    assert [one.remedy.split()[:2] for one in wrong] == [
        ["SET", "GLOBAL"],
        ["GRANT", "PROCESS"],
        ["GRANT", "ALL"],
        ["GRANT", "SELECT,"],
    ]
    try:
        for one in wrong:
            db.run(one.remedy)
        source = source_of(db, "kv", user=f"little{db.name}", password="p")
        assert [one for one in source.check() if one.severity == "error"] == []
        source.prepare()
        snapshot = source.snapshot()
        snapshot.close()
        stream = source.stream(snapshot.position)
        db.run("INSERT INTO kv VALUES (1, 'a')")
        assert told(drained(stream)) == [("c", None, {"id": 1, "v": "a"})]
        stream.close()
        assert source.remove()[-1] == f"dropped the database _tidelog_{db.name}"
    finally:
        db.run("SET GLOBAL log_bin_trust_function_creators = OFF")
    assert db.run(f"SELECT COUNT(*) FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = '{db.name}'") == [(0,)]
    with_child = source_of(db, "*")
    assert any("fire triggers" in one.what and one.severity == "error" for one in with_child.check())
    accepted = source_of(db, "*", options="?accept_cascades=true")
    assert not any(one.severity == "error" for one in accepted.check())


@proves("D2", "D3", "cdc.33")
def test_a_capture_by_triggers_tells_snapshot_and_changes(db: Database, tidelog_broker: tidelog.Broker) -> None:
    db.run(KV, "INSERT INTO kv VALUES (1, 'a'), (2, 'b')")
    url = db.server.url(db.name).replace(":@", "@")

    def capture() -> Any:
        return tidelog.capture(url, prefix="shop", name=db.name, bootstrap=tidelog_broker.bootstrap, method="triggers")

    capture().catch_up()
    db.run("UPDATE kv SET v = 'c' WHERE id = 1", "DELETE FROM kv WHERE id = 2", "INSERT INTO kv VALUES (3, 'd')")
    capture().catch_up()
    capture().catch_up()
    found = envelopes(tidelog_broker.bootstrap, f"shop.{db.name}.kv")
    assert [one["op"] for one in found] == ["r", "r", "u", "d", "c"]
    assert folded(found, ["id"]) == {(1,): (1, "c"), (3,): (3, "d")}
