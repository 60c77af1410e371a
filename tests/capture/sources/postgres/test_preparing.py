"""Publications, slots and rights: what capture makes in a database, what it must not break, and what `check` says."""

from __future__ import annotations

import re

import pytest

from capture.sources.postgres.following import Base, told
from proving import proves
from tidelog.capture.sources.postgres import source as postgres_source
from tidelog.capture.sources.postgres.checking import ERROR, WARNING, PostgresServer, of_server, of_slot
from tidelog.capture.sources.postgres.publications import statements
from tidelog.capture.sources.postgres.session import arguments_of
from tidelog.capture.sources.postgres.slots import ReplicationSlot
from tidelog.capture.sources.postgres.source import connect
from tidelog.errors import Disconnected, PeerError, UsageError

KV = "CREATE TABLE kv (id int PRIMARY KEY, v text)"
FINE = PostgresServer(160000, "16.1", "logical", 10, 1, 10, 1, 1000, 0, False, "ann", True, 0)
SLOT = ReplicationSlot("s", "pgoutput", "shop", None, "reserved", 90, 100)


@proves("cdc.9", "cdc.17")
def test_no_update_of_the_application_fails_because_of_capture(base: Base) -> None:
    base.run(KV, "CREATE TABLE nokey (a int)", "CREATE TABLE nothing (id int PRIMARY KEY)")
    base.run("ALTER TABLE nothing REPLICA IDENTITY NOTHING", "CREATE TABLE late_key (id int PRIMARY KEY DEFERRABLE)")
    _, stream = base.started()
    for table, column in (("nokey", "a"), ("nothing", "id"), ("late_key", "id"), ("kv", "id")):
        base.run(f"INSERT INTO {table} VALUES (1)", f"UPDATE {table} SET {column} = 2", f"DELETE FROM {table}")
    base.run("CREATE TABLE tomorrow (a int)", "INSERT INTO tomorrow VALUES (1)", "UPDATE tomorrow SET a = 2")
    came = [(table, op) for table, op, _, _ in told(base.drain(stream))]
    assert came == [("nokey", "c"), ("nothing", "c"), ("late_key", "c"), ("kv", "c"), ("kv", "u"), ("kv", "d")]


@proves("cdc.17")
def test_a_table_that_gets_an_identity_is_captured_whole_when_prepared_anew(base: Base) -> None:
    base.run("CREATE TABLE t (a int)")
    source, stream = base.started()
    assert [each.severity for each in source.check() if "public.t" in each.what] == [WARNING]
    (remedy,) = [each.remedy for each in source.check() if "public.t" in each.what]
    base.run(remedy, KV)
    source.prepare()
    source.prepare()
    base.run("INSERT INTO t VALUES (1)", "UPDATE t SET a = 2", "INSERT INTO kv VALUES (1, 'a')")
    assert told(base.drain(stream)) == [
        ("t", "c", None, {"a": 1}),
        ("t", "u", {"a": 1}, {"a": 2}),
        ("kv", "c", None, {"id": 1, "v": "a"}),
    ]
    assert [each.what for each in source.check() if each.severity == ERROR] == []


@proves("cdc.17")
def test_partitions_are_told_by_their_root(base: Base) -> None:
    base.run("CREATE TABLE p (id int, r int, PRIMARY KEY (id, r)) PARTITION BY RANGE (r)")
    base.run(*(f"CREATE TABLE p{n} PARTITION OF p FOR VALUES FROM ({n}0) TO ({n + 1}0)" for n in range(2)))
    base.run("INSERT INTO p VALUES (1, 1), (2, 11)")
    source, stream = base.started()
    base.run("INSERT INTO p VALUES (3, 2)", "UPDATE p SET r = 12 WHERE id = 3")
    rows = told(base.drain(stream))
    assert [(name, op) for name, op, _, _ in rows] == [("p", "c"), ("p", "d"), ("p", "c")]
    assert [each.severity for each in source.check() if "a TRUNCATE of one partition alone is not seen" in each.what]
    table = base.source("public.p1", name="leaf")
    table.prepare()
    assert base.ask("SELECT tablename FROM pg_publication_tables WHERE pubname = 'tidelog_leaf'") == [("p1",)]
    assert source.lag().state == "reserved"


@proves("cdc.17")
def test_a_user_without_rights_is_told_the_statements(base: Base) -> None:
    base.run(KV, f"CREATE ROLE r_{base.name} LOGIN")
    try:
        source = base.source(url=base.url.replace("postgres@", f"r_{base.name}@"))
        errors = {each.what: each.remedy for each in source.check() if each.severity == ERROR}
        assert any("REPLICATION" in remedy for remedy in errors.values())
        assert any("GRANT SELECT" in remedy for remedy in errors.values())
        (script,) = [remedy for remedy in errors.values() if "CREATE PUBLICATION" in remedy]
        with pytest.raises(UsageError, match="CREATE PUBLICATION"):
            source.prepare()
        base.run(script, f"GRANT SELECT ON kv TO r_{base.name}", f"ALTER ROLE r_{base.name} REPLICATION")
        assert [each for each in source.check() if each.severity == ERROR] == []
        source.prepare()
        snapshot = source.snapshot()
        snapshot.close()
        stream = base.stream(source, snapshot.position)
        base.run("INSERT INTO kv VALUES (1, 'a')")
        assert len(told(base.drain(stream))) == 1
        stream.close()
        source.close()
    finally:
        base.run(f"DROP OWNED BY r_{base.name}", f"DROP ROLE r_{base.name}")


@proves("cdc.17")
def test_what_was_made_is_taken_away(base: Base) -> None:
    base.run(KV)
    source = base.source()
    source.prepare()
    source.snapshot().close()
    assert len(source.remove()) == 3
    assert base.ask("SELECT count(*) FROM pg_publication") == [(0,)]
    assert source.remove() == []
    assert source.lag().state == "gone"


@proves("cdc.17")
def test_a_slot_that_somebody_reads_is_not_taken_away_and_its_reader_is_named(
    base: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_source, "RELEASE_S", 0.1)
    base.run(KV)
    source, _ = base.started()
    said = r"slot tidelog_t is still being read .*\(tidelog, of the user postgres at .*\); stop that .* run this again"
    with pytest.raises(PeerError, match=said):
        source.remove()


@proves("cdc.17")
def test_a_table_that_moves_is_in_one_of_the_publications_all_the_time() -> None:
    table = frozenset({("public", "t")})
    none: frozenset[tuple[str, str]] = frozenset()
    assert statements({"a": none, "i": table}, {"a": table, "i": none}, "i") == [
        'ALTER PUBLICATION "a" ADD TABLE ONLY "public"."t"; ALTER PUBLICATION "i" DROP TABLE ONLY "public"."t"',
    ]
    assert statements({}, {"a": table, "i": none}, "i") == [
        'CREATE PUBLICATION "a" FOR TABLE ONLY "public"."t" WITH (publish_via_partition_root = true)',
        "CREATE PUBLICATION \"i\" WITH (publish = 'insert, truncate', publish_via_partition_root = true)",
    ]


@proves("cdc.6")
@pytest.mark.parametrize(
    ("change", "severity", "what"),
    [
        ({"version": 130000, "version_text": "13.1"}, ERROR, "14 is the oldest"),
        ({"wal_level": "replica"}, ERROR, "wal_level is replica"),
        ({"may_replicate": False}, ERROR, "ann may not"),
        ({"max_slots": 1}, ERROR, "all 1 replication slots are taken"),
        ({"max_senders": 1}, ERROR, "senders"),
        ({"keep_mb": -1}, WARNING, "max_slot_wal_keep_size"),
        ({"idle_timeout": 60}, WARNING, "idle_replication_slot_timeout"),
        ({"standby": True, "version": 150000}, ERROR, "standby"),
        ({"oldest_s": 100}, WARNING, "open for 100 s"),
    ],
)
def test_check_says_what_a_server_lacks(change: dict[str, object], severity: str, what: str) -> None:
    assert [each for each in of_server(FINE, None) if each.severity != "ok"] == []
    (found,) = [each for each in of_server(FINE._replace(**change), None) if each.severity != "ok"]  # type: ignore[arg-type]
    assert found.severity == severity
    assert what in found.what


@proves("cdc.6")
def test_check_says_what_a_slot_is() -> None:
    found = [next(iter(of_slot("s", slot, "shop"))) for slot in (None, SLOT, SLOT._replace(wal_status="lost"))]
    assert [each.severity for each in found] == ["ok", "ok", WARNING]
    assert next(iter(of_slot("s", SLOT, "other"))).severity == ERROR


@proves("cdc.6")
def test_check_says_what_a_slot_keeps_before_the_disk_is_full() -> None:
    (found,) = of_slot("s", SLOT._replace(kept=2 << 30), "shop")
    assert (
        found.severity == WARNING
        and "keeps 2147483648 bytes of its log for the slot s, which nobody reads" in found.what
    )
    assert "tidelog capture remove" in found.remedy


@proves("cdc.6", "cdc.17")
def test_check_says_which_tables_are_not_there_and_which_are_in_no_log(base: Base) -> None:
    base.run(KV, "CREATE UNLOGGED TABLE quick (id int PRIMARY KEY)")
    found = {
        each.what: each.remedy for each in base.source("kv", "quick", "public.kw").check() if each.severity == WARNING
    }
    assert found["the table public.kw is not there; it is captured as soon as it is made"] == ""
    (remedy,) = [remedy for what, remedy in found.items() if "public.quick is UNLOGGED" in what]
    base.run(remedy)
    assert not [each for each in base.source("kv", "quick").check() if "quick" in each.what]


@proves("cdc.17")
def test_every_name_has_a_slot_of_its_own_and_a_malformed_url_is_refused() -> None:
    names = ["shop", "Shop", "sh-op", "sh_op", "a" * 60, "a" * 61, "ä", ""]
    slots = {connect("postgresql://h/d", name, ["*"]).slot for name in names}
    assert len(slots) == len(names)
    assert all(re.fullmatch("tidelog_[a-z0-9_]{1,47}", slot) for slot in slots)
    assert "tidelog_shop" in slots
    with pytest.raises(UsageError, match="malformed") as refused:
        connect("postgresql://u:pass word@h:x y/d", "n", ["*"])
    assert "pass" not in str(refused.value).replace("password", "")


@proves("cdc.4")
def test_a_server_that_is_not_there_is_disconnected_and_no_password_is_told() -> None:
    source = connect("postgresql://u:hunter2@127.0.0.1:1/d?connect_timeout=2", "n", ["*"])
    with pytest.raises(Disconnected) as refused:
        source.check()
    assert "hunter2" not in str(refused.value)


@proves("cdc.4")
def test_a_host_that_goes_without_a_word_is_noticed_within_a_minute_unless_the_url_says_otherwise() -> None:
    told = arguments_of("postgresql://h/d")
    assert (told["tcp_user_timeout"], told["keepalives_idle"] + 3 * told["keepalives_interval"]) == (60_000, 60)
    assert arguments_of("postgresql://h/d?tcp_user_timeout=5")["tcp_user_timeout"] == "5"


@proves("cdc.17")
def test_a_pattern_that_no_table_matches_is_refused(base: Base) -> None:
    with pytest.raises(UsageError, match="no table matches"):
        base.source("public.nothing").prepare()
