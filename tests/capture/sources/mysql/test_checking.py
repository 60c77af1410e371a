"""What `capture check` finds: judged over facts, and asked of a real MariaDB."""

from __future__ import annotations

import socket
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from capture.sources.mysql.reading import Database, read_all, rows_of
from proving import proves
from tidelog.capture.sources.mysql.checking import Cascade, MysqlFacts, judge
from tidelog.errors import UsageError

GOOD = MysqlFacts(
    "10.11.6-MariaDB",
    True,
    {
        "log_bin": "ON",
        "binlog_format": "ROW",
        "binlog_row_image": "FULL",
        "binlog_row_metadata": "FULL",
        "server_id": "1",
        "expire_logs_days": "10",
    },
    "'u'@'%'",
    ["GRANT ALL PRIVILEGES ON *.* TO `u`@`%`"],
    tables=["d.t"],
)
MYSQL = replace(GOOD, version="8.4.2", mariadb=False, variables={**GOOD.variables, "gtid_mode": "ON"})
CASCADE = [Cascade("d.child", "fk", "d.parent", "ON DELETE CASCADE")]
numbers = count(1)


def changed(facts: MysqlFacts = GOOD, **variables: str) -> MysqlFacts:
    return replace(facts, variables={**facts.variables, **variables})


@proves("D1")
@pytest.mark.parametrize("facts", [GOOD, MYSQL])
def test_a_server_that_is_set_up_has_nothing_to_mend(facts: MysqlFacts) -> None:
    assert [finding.severity for finding in judge(facts)] == ["ok"]


@proves("D1", "cdc.25")
@pytest.mark.parametrize(
    ("facts", "severity", "what", "remedy"),
    [
        (changed(log_bin="OFF"), "error", "writes no binlog", "log_bin=binlog"),
        (changed(binlog_format="MIXED"), "error", "binlog_format is MIXED", "SET GLOBAL binlog_format = 'ROW'"),
        (changed(binlog_row_image="MINIMAL"), "error", "is MINIMAL", "SET GLOBAL binlog_row_image = 'FULL'"),
        (changed(binlog_row_metadata="NO_LOG"), "error", "NO_LOG", "SET GLOBAL binlog_row_metadata = 'FULL'"),
        (changed(server_id="0"), "error", "server_id is 0", "SET GLOBAL server_id"),
        (changed(MYSQL, gtid_mode="OFF"), "warning", "gtid_mode is OFF", "gtid_mode=ON"),
        (changed(MYSQL, binlog_row_value_options="PARTIAL_JSON"), "error", "PARTIAL_JSON", "binlog_row_value_options"),
        (changed(MYSQL, binlog_transaction_compression="ON"), "error", "compression", "compression = OFF"),
        (changed(binlog_expire_logs_seconds="3600"), "warning", "3600 s", "binlog_expire_logs_seconds = 604800"),
        (replace(GOOD, filters="binlog_do_db=x"), "error", "binlog_do_db=x", "my.cnf"),
        (
            replace(GOOD, grants=["GRANT RELOAD ON *.* TO `u`@`%`"]),
            "error",
            "read the binlog",
            "GRANT REPLICATION SLAVE",
        ),
        (replace(GOOD, reads_position=False), "error", "position", "GRANT BINLOG MONITOR"),
        (replace(MYSQL, reads_position=False), "error", "position", "GRANT REPLICATION CLIENT"),
        (replace(GOOD, grants=["GRANT REPLICATION SLAVE ON *.* TO `u`@`%`"]), "warning", "lock tables", "GRANT RELOAD"),
        (replace(MYSQL, grants=["GRANT REPLICATION SLAVE ON *.* TO `u`@`%`"]), "error", "lock tables", "GRANT RELOAD"),
        (replace(GOOD, missing=["d.x"]), "error", "d.x is not there", "GRANT SELECT ON d.x"),
        (replace(GOOD, tables=[]), "error", "no table matches", "database.table"),
        (replace(GOOD, unreadable=["d.t"]), "error", "may not read d.t", "GRANT SELECT ON d.t"),
        (replace(GOOD, versioned=["d.t"]), "error", "system-versioned", "DROP SYSTEM VERSIONING"),
        (replace(GOOD, without_key=["d.t"]), "warning", "no primary key", "ADD PRIMARY KEY"),
        (replace(GOOD, engines={"d.t": "MyISAM"}), "warning", "MyISAM", "ENGINE = InnoDB"),
        (replace(GOOD, cascades=CASCADE), "error", "d.child", "DROP FOREIGN KEY fk"),
        (replace(GOOD, cascades=CASCADE, accept_cascades=True), "warning", "d.child", "--accept-cascades"),
        (replace(MYSQL, cascades=CASCADE), "error", "d.child", "--accept-cascades"),
    ],
)
def test_each_finding_has_what_mends_it(facts: MysqlFacts, severity: str, what: str, remedy: str) -> None:
    (finding,) = [found for found in judge(facts) if found.severity != "ok"]
    assert finding.severity == severity
    assert what in finding.what and remedy in finding.remedy


@proves("D1")
def test_a_mysql_that_logs_cascades_has_no_finding_of_them() -> None:
    assert [finding.severity for finding in judge(replace(MYSQL, version="9.6.0", cascades=CASCADE))] == ["ok"]


def severities(found: Any) -> dict[str, str]:
    return {finding.what: finding.severity for finding in found}


@proves("D1")
@pytest.mark.external
def test_a_child_whose_rows_go_by_a_foreign_key_is_refused_since_they_do_not_come(db: Database) -> None:
    db.run(
        "CREATE TABLE parent (id int PRIMARY KEY)",
        "CREATE TABLE child (id int PRIMARY KEY, p int,"
        " CONSTRAINT fk1 FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE)",
        "INSERT INTO parent VALUES (1)",
        "INSERT INTO child VALUES (1, 1)",
    )
    (found,) = [finding for finding in db.source("*").check() if finding.severity == "error"]
    assert f"{db.name}.child" in found.what and "ON DELETE CASCADE" in found.what
    (accepted, *_) = [
        finding for finding in db.source("*", options="?accept_cascades=true").check() if "fk1" in finding.what
    ]
    assert accepted.severity == "warning"
    assert [finding.severity for finding in db.source("parent").check()] == ["ok"]
    start = db.here()
    db.run("DELETE FROM parent")
    assert [row.table.name for row in rows_of(read_all(db.source("*").stream(start)))] == ["parent"]
    assert db.run("SELECT * FROM child") == []


@proves("D1")
@pytest.mark.external
def test_missing_rights_are_found_and_the_statements_given_mend_them(db: Database) -> None:
    user = f"checker{next(numbers)}"
    db.run("CREATE TABLE t (id int PRIMARY KEY)", f"CREATE USER {user}@'127.0.0.1' IDENTIFIED BY 'p'")
    db.run(f"GRANT INSERT ON {db.name}.t TO {user}@'127.0.0.1'")
    found = db.source("t", user=user, password="p").check()
    assert {finding.severity for finding in found} == {"error", "warning"}
    assert len(found) == 4  # binlog, position, lock, SELECT
    with pytest.raises(UsageError, match="REPLICATION SLAVE"):
        read_all(db.source("t", user=user, password="p").stream(db.here()))
    db.run(*(finding.remedy.rstrip(";") for finding in found))
    assert [finding.severity for finding in db.source("t", user=user, password="p").check()] == ["ok"]


@proves("D1")
@pytest.mark.external
def test_a_real_server_is_looked_at_table_by_table(db: Database) -> None:
    db.run("CREATE TABLE nokey (a int)", "CREATE TABLE m (id int PRIMARY KEY) ENGINE = MyISAM")
    db.run("CREATE TABLE v (id int PRIMARY KEY) WITH SYSTEM VERSIONING", "CREATE SEQUENCE s")
    told = severities(db.source("nokey", "m", "v", "gone").check())
    for word, severity in (("nokey", "warning"), ("MyISAM", "warning"), ("versioned", "error"), ("gone", "error")):
        assert [what for what in told if word in what and told[what] == severity], (word, told)
    assert not [what for what in severities(db.source("*").check()) if f"{db.name}.s " in what]


@proves("D1")
@pytest.mark.external
def test_nothing_is_made_in_the_database(db: Database) -> None:
    db.run("CREATE TABLE t (id int PRIMARY KEY)")
    before = db.server.run("SELECT @@gtid_binlog_pos")
    source = db.source("t")
    source.prepare()
    source.heartbeat()
    noticed_ms = source._control._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert noticed_ms == 60_000, "a server that is gone without a word"
    assert source.remove() == []
    assert db.server.run("SELECT @@gtid_binlog_pos") == before
