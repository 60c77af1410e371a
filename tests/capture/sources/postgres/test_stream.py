"""Changes of a real PostgreSQL: order, whole transactions, going on after a stop, and what cannot go on."""

from __future__ import annotations

import json

import pytest

from capture.sources.postgres.following import SECONDS, Base, check_frames, rows_of, told
from postgres_server import PostgresServer
from proving import proves
from tidelog.capture.change import UNAVAILABLE, Begin, Commit, Event, Idle, Message, RowChange, SchemaChange
from tidelog.capture.progress import CaptureProgress, apply
from tidelog.capture.sources.postgres.pgoutput import lsn_of, lsn_text
from tidelog.capture.sources.postgres.slots import ReplicationSlot, lsn_in, resume_fault
from tidelog.errors import Disconnected, SourceLost, UsageError

KV = "CREATE TABLE kv (id int PRIMARY KEY, v text)"
HERE = {"lsn": "0/64", "system": "1"}
WORKING = ReplicationSlot("s", "pgoutput", "shop", None, "reserved", 90, 100)


@proves("cdc.1", "cdc.16")
def test_transactions_come_whole_and_in_the_order_of_their_commits(base: Base) -> None:
    base.run(KV)
    source, stream = base.started()
    early, late = base.connection(), base.connection()
    early.execute("BEGIN")
    early.execute("INSERT INTO kv VALUES (1, 'begun first')")
    late.execute("BEGIN")
    late.execute("INSERT INTO kv VALUES (2, 'committed first')")
    late.execute("SAVEPOINT s")
    late.execute("INSERT INTO kv VALUES (3, 'rolled back')")
    late.execute("ROLLBACK TO s")
    late.execute("COMMIT")
    early.execute("INSERT INTO kv VALUES (4, 'begun first')")
    early.execute("COMMIT")
    base.run("BEGIN; INSERT INTO kv VALUES (5, 'never'); ROLLBACK")
    events = base.drain(stream)
    assert [row.after[0] for row in rows_of(events) if row.after] == ["2", "1", "4"]
    positions = [lsn_in(position) for position in check_frames(events)]
    assert positions == sorted(set(positions))
    assert len(positions) == 2
    block = json.loads(
        source.source_block(rows_of(events)[0], next(e for e in events if isinstance(e, Begin)), "false", "n")
    )
    assert (block["connector"], block["db"], block["table"], block["name"]) == ("postgresql", base.name, "kv", "n")
    assert block["lsn"] == rows_of(events)[0].where
    from_snapshot = source.source_block(
        RowChange(rows_of(events)[0].table, "r", None, ("1", "null")), Begin("", 5), "true", "n"
    )
    read = json.loads(from_snapshot)
    assert (read["ts_us"], read["snapshot"], read["txId"]) == (5, "true", None)
    assert read["lsn"] == lsn_in(base.first)
    assert source.tables() == [rows_of(events)[0].table]
    assert set(block) == set(read) == {field["field"] for field in source.source_schema["fields"]}


@proves("cdc.2", "cdc.3")
def test_reading_goes_on_after_any_transaction_with_the_next_and_loses_none(base: Base) -> None:
    base.run(KV)
    source, stream = base.started()
    base.run(*(f"INSERT INTO kv SELECT {n}0 + i, 'x' FROM generate_series(1, 3) i" for n in range(4)))
    events = base.drain(stream)
    stream.close()
    whole = told(events)
    assert len(whole) == 12
    for at, event in enumerate(events):
        if isinstance(event, Commit):
            again = base.stream(source, event.position)
            assert told(base.drain(again)) == told(events[at:])
            again.close()


@proves("cdc.3")
def test_a_copy_of_many_rows_that_is_cut_in_the_middle_comes_whole_again(base: Base) -> None:
    base.run(KV)
    source, stream = base.started()
    start = lsn_text(confirmed(base))
    with base.writer.cursor() as cursor, cursor.copy("COPY kv FROM STDIN") as copy:
        for number in range(1000):
            copy.write_row((number, "row"))
    part: list[Event] = []
    while len(rows_of(part)) < 100:
        part += stream.read(200, SECONDS)
    assert len(rows_of(part)) < 1000
    stream.close()
    until_free(base)
    again = base.stream(source, {"lsn": start})
    rows = rows_of(base.drain(again))
    assert [row.after[0] for row in rows if row.after] == [str(number) for number in range(1000)]
    assert rows[: len(rows_of(part))] == rows_of(part)


@proves("cdc.2")
def test_what_is_in_the_log_when_a_stream_begins_is_there_for_a_read_that_does_not_wait(base: Base) -> None:
    base.run(KV)
    source, stream = base.started()
    stream.close()
    until_free(base)
    source.heartbeat()
    base.run("CREATE TABLE aside AS SELECT i FROM generate_series(1, 20000) i")
    base.run(*(f"INSERT INTO kv SELECT {n}0 + i, 'x' FROM generate_series(1, 3) i" for n in range(4)))
    again = base.stream(source, base.first)
    events: list[Event] = []
    while came := [event for event in again.read(2, 0) if not isinstance(event, Idle)]:
        events += came
    assert len(rows_of(events)) == 12


@proves("cdc.4", "cdc.2")
def test_the_server_forgets_only_what_was_confirmed(base: Base) -> None:
    base.run(KV)
    _, stream = base.started()
    before = confirmed(base)
    base.run("INSERT INTO kv VALUES (1, 'a')", "INSERT INTO kv VALUES (2, 'b')")
    first, second = check_frames(base.drain(stream))
    assert confirmed(base) == before
    stream.confirm(first)
    until_confirmed(base, lsn_in(first))
    assert confirmed(base) < lsn_in(second)


@proves("cdc.5", "cdc.6")
def test_an_idle_database_does_not_hold_the_log_while_others_write(base: Base, logical_server: PostgresServer) -> None:
    base.run(KV)
    source, stream = base.started()
    with Base(logical_server.url()) as other:
        other.run("CREATE TABLE busy AS SELECT i, repeat('x', 1000) FROM generate_series(1, 2000) i")
    before = source.lag()
    assert before.bytes is not None
    assert before.bytes > 1_000_000
    source.heartbeat()
    after = lsn_of(base.ask("SELECT pg_current_wal_lsn()::text")[0][0]) - 10_000
    idle = next(e for e in idles(stream) if lsn_in(e.position) > after and e.at_us > 0)
    stream.confirm(idle.position)
    until_confirmed(base, lsn_in(idle.position))
    behind = source.lag().bytes
    assert behind is not None
    assert behind < before.bytes
    assert source.lag().state == "reserved"


@proves("cdc.7")
def test_a_slot_that_is_ahead_of_what_is_stored_stops_capture(base: Base) -> None:
    base.run(KV)
    source, stream = base.started()
    base.run("INSERT INTO kv VALUES (1, 'a')", "INSERT INTO kv VALUES (2, 'b')")
    first, second = check_frames(base.drain(stream))
    stream.confirm(second)
    until_confirmed(base, lsn_in(second))
    stream.close()
    with pytest.raises(SourceLost, match=r"ahead of the stored position .* take a new snapshot"):
        source.stream(first)
    base.stream(source, second)


@proves("cdc.6")
def test_a_slot_that_is_gone_stops_capture(base: Base) -> None:
    base.run(KV)
    source, stream = base.started()
    base.run("INSERT INTO kv VALUES (1, 'a')")
    (position,) = check_frames(base.drain(stream))
    stream.close()
    until_free(base)
    assert source.remove()[0] == "dropped the replication slot tidelog_t"
    with pytest.raises(SourceLost, match="is gone"):
        source.stream(position)


@proves("cdc.6", "cdc.17")
def test_a_publication_that_somebody_dropped_stops_capture_until_all_is_read_anew(base: Base) -> None:
    base.run(KV)
    source, stream = base.started()
    base.run("INSERT INTO kv VALUES (1, 'a')")
    (position,) = check_frames(base.drain(stream))
    stream.close()
    until_free(base)
    base.run("DROP PUBLICATION tidelog_t", "INSERT INTO kv VALUES (2, 'told to nobody')")
    source.prepare()
    with pytest.raises(SourceLost, match="publication tidelog_t is gone"):
        source.stream(position)
    snapshot = source.snapshot()
    assert [len(rows) for rows in snapshot.rows(snapshot.tables()[0], None, None, 10)] == [2]
    snapshot.close()
    base.run("INSERT INTO kv VALUES (3, 'c')")
    assert told(base.drain(base.stream(source, snapshot.position))) == [("kv", "c", None, {"id": 3, "v": "c"})]


@proves("cdc.6", "cdc.7")
@pytest.mark.parametrize(
    ("slot", "position", "why"),
    [
        (None, HERE, "is gone"),
        (WORKING._replace(wal_status="lost"), HERE, "is lost"),
        (WORKING._replace(confirmed=0), HERE, "is lost"),
        (WORKING._replace(confirmed=101), HERE, "ahead of the stored position 0/64"),
        (WORKING._replace(database="other"), HERE, "of the database|the database other"),
        (WORKING._replace(plugin="wal2json"), HERE, "plugin wal2json"),
        (WORKING, {"lsn": "0/64", "system": "2"}, "another cluster"),
        (WORKING._replace(confirmed=101), {"lsn": "0/66", "system": "1"}, "log ends at 0/65, before .* 0/66"),
        (WORKING, HERE, None),
        (WORKING._replace(wal_status="unreserved"), HERE, None),
    ],
)
def test_what_cannot_go_on_is_told_with_what_to_do(
    slot: ReplicationSlot | None, position: dict[str, str], why: str | None
) -> None:
    import re

    fault = resume_fault(slot, "s", position, "1", "shop", 101)
    assert (fault is None) == (why is None)
    if fault is not None and why is not None:
        assert re.search(why, fault)
        assert "take a new snapshot" in fault


@proves("cdc.7")
def test_what_is_not_a_position_is_refused() -> None:
    for wrong in ({}, {"lsn": "x"}, {"lsn": "zz/1"}):
        with pytest.raises(UsageError, match="is not a position"):
            lsn_in(wrong)


@proves("cdc.2")
def test_a_message_outside_of_transactions_is_told_once(base: Base) -> None:
    base.run(KV)
    source, stream = base.started()
    base.run("SELECT pg_logical_emit_message(false, 'loose', 'one')")
    came: list[Event] = []
    while not any(isinstance(event, Message) for event in came):
        came += stream.read(10, SECONDS)
    told_at = next(at for at, event in enumerate(came) if isinstance(event, Message))
    progress = apply(CaptureProgress(base.first), came[: told_at + 2])
    assert lsn_in(progress.position or {}) == came[told_at].where  # type: ignore[union-attr]
    stream.close()
    until_free(base)
    assert progress.position is not None
    position = base.ask("SELECT pg_current_wal_flush_lsn()::text")[0][0]
    assert lsn_in(progress.position) <= lsn_of(position)
    base.run("SELECT pg_logical_emit_message(false, 'loose', 'two')", "SELECT pg_switch_wal()")
    again = base.stream(source, progress.position)
    told_again = base.drain(again)
    assert [event.content for event in told_again if isinstance(event, Message)] == [b"two"]


@proves("cdc.4")
def test_a_slot_that_another_capture_reads_is_waited_for(base: Base) -> None:
    base.run(KV)
    source, stream = base.started()
    base.run("INSERT INTO kv VALUES (1, 'a')")
    (position,) = check_frames(base.drain(stream))
    with pytest.raises(Disconnected, match="another capture"):
        source.stream(position)


@proves("cdc.4")
def test_a_connection_that_the_server_ends_is_disconnected(base: Base) -> None:
    base.run(KV)
    source, stream = base.started()
    base.run("INSERT INTO kv VALUES (1, 'a')")
    (position,) = check_frames(base.drain(stream))
    base.run("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = current_database()")
    with pytest.raises(Disconnected):
        while True:
            stream.read(10, SECONDS)
    base.run("INSERT INTO kv VALUES (2, 'b')")
    until_free(base)
    assert told(base.drain(base.stream(source, position))) == [("kv", "c", None, {"id": 2, "v": "b"})]


@proves("cdc.10")
def test_a_large_value_that_did_not_change_is_marked(base: Base) -> None:
    base.run("CREATE TABLE t (id int PRIMARY KEY, n int, big text)", "ALTER TABLE t ALTER big SET STORAGE EXTERNAL")
    _, stream = base.started()
    base.run("INSERT INTO t VALUES (1, 1, repeat('x', 10000))", "UPDATE t SET n = 2")
    (_, update) = rows_of(base.drain(stream))
    assert update.after == ("1", "2", f'"{UNAVAILABLE}"')
    assert update.after[2] == update.table.columns[2].unavailable


@proves("cdc.14")
def test_rows_before_and_after_a_change_of_the_table_are_each_read_by_their_own_shape(base: Base) -> None:
    base.run(KV)
    _, stream = base.started()
    base.run("INSERT INTO kv VALUES (1, 'a')")
    base.run("ALTER TABLE kv RENAME v TO w; ALTER TABLE kv ADD n numeric(5,1) NOT NULL DEFAULT 2.5")
    base.run("INSERT INTO kv VALUES (2, 'b', 1)", "ALTER TABLE kv DROP w", "DELETE FROM kv WHERE id = 1")
    events = base.drain(stream)
    assert told(events) == [
        ("kv", "c", None, {"id": 1, "v": "a"}),
        ("kv", "c", None, {"id": 2, "w": "b", "n": "Cg=="}),
        ("kv", "d", {"id": 1, "n": None}, None),
    ]
    changes = [event for event in events if isinstance(event, SchemaChange)]
    assert [[column.name for column in each.table.columns] for each in changes if each.table] == [
        ["id", "w", "n"],
        ["id", "n"],
    ]
    tables = [row.table for row in rows_of(events)]
    assert tables[1] is changes[0].table
    assert tables[2] is changes[1].table


@proves("cdc.14")
def test_a_table_is_the_same_object_as_long_as_its_shape_is(base: Base) -> None:
    base.run(KV)
    source, stream = base.started()
    base.run("INSERT INTO kv VALUES (1, 'a')")
    events = base.drain(stream)
    stream.close()
    until_free(base)
    (position,) = check_frames(events)
    base.run("ANALYZE kv", "INSERT INTO kv VALUES (2, 'a')")
    again = base.drain(base.stream(source, position))
    assert rows_of(again)[0].table is rows_of(events)[0].table
    assert not [event for event in again if isinstance(event, SchemaChange)]


@proves("cdc.14")
def test_changes_of_a_table_that_was_dropped_meanwhile_are_told(base: Base) -> None:
    base.run(KV, "CREATE TABLE gone (id int PRIMARY KEY, v text)")
    _, stream = base.started()
    base.run("INSERT INTO gone VALUES (1, 'a')", "DELETE FROM gone", "DROP TABLE gone")
    events = base.drain(stream)
    assert told(events) == [("gone", "c", None, {"id": 1, "v": "a"}), ("gone", "d", {"id": 1, "v": None}, None)]
    assert rows_of(events)[0].table.key == ("id",)


@proves("cdc.22")
def test_a_watermark_takes_its_place_among_commits(base: Base) -> None:
    base.run(KV)
    source, stream = base.started()
    base.run("INSERT INTO kv VALUES (1, 'a')")
    source.watermark("low 1")
    base.run("INSERT INTO kv VALUES (2, 'b')")
    events = base.drain(stream)
    kinds = [type(event).__name__ for event in events]
    assert kinds == ["Begin", "RowChange", "Commit", "Begin", "Message", "Commit", "Begin", "RowChange", "Commit"]
    message = next(event for event in events if isinstance(event, Message))
    assert (message.prefix, message.content, message.transactional) == ("tidelog.watermark", b"low 1", True)


@proves("cdc.17")
def test_a_table_that_a_foreign_hand_published_and_nobody_chose_is_not_told(base: Base) -> None:
    base.run(KV, "CREATE TABLE secret (id int PRIMARY KEY)")
    _, stream = base.started("public.kv")
    base.run("ALTER PUBLICATION tidelog_t ADD TABLE secret")
    base.run("INSERT INTO secret VALUES (1)", "TRUNCATE secret", "INSERT INTO kv VALUES (1, 'a')")
    assert told(base.drain(stream)) == [("kv", "c", None, {"id": 1, "v": "a"})]


@proves("cdc.16")
def test_a_large_transaction_comes_in_pieces_of_the_limit(base: Base) -> None:
    base.run(KV)
    _, stream = base.started()
    base.run("INSERT INTO kv SELECT i, 'x' FROM generate_series(1, 500) i")
    events: list[Event] = []
    while not (events and isinstance(events[-1], Commit)):
        came = stream.read(64, SECONDS)
        assert 0 < len(came) <= 64
        events += [event for event in came if not isinstance(event, Idle)]
    assert len(rows_of(events)) == 500
    check_frames(events)


@proves("cdc.13")
def test_a_truncate_of_several_tables_is_one_event_each(base: Base) -> None:
    base.run("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int PRIMARY KEY, a int REFERENCES a)")
    _, stream = base.started()
    base.run("TRUNCATE a CASCADE")
    assert sorted(told(base.drain(stream))) == [("a", "t", None, None), ("b", "t", None, None)]


def confirmed(base: Base) -> int:
    asked = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE database = current_database()"
    return lsn_of(base.ask(asked)[0][0])


def until_confirmed(base: Base, lsn: int) -> None:
    for _ in range(400):
        if confirmed(base) >= lsn:
            return
        base.run("SELECT pg_sleep(0.02)")
    raise AssertionError(f"the slot is at {confirmed(base)} and not at {lsn}")


def until_free(base: Base) -> None:
    for _ in range(400):
        if base.ask("SELECT active FROM pg_replication_slots WHERE database = current_database()")[0][0] is False:
            return
        base.run("SELECT pg_sleep(0.02)")
    raise AssertionError("the slot is still being read")


def idles(stream: object) -> list[Idle]:
    """Idle events until one tells a time."""
    found: list[Idle] = []
    while not (found and found[-1].at_us):
        came = stream.read(100, SECONDS)  # type: ignore[attr-defined]
        assert came
        found += [event for event in came if isinstance(event, Idle)]
    return found
