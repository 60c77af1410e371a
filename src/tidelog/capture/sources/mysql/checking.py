"""`capture check` of a MySQL or MariaDB source: facts are asked for, then judged. `judge` is pure.

An error is what would make capture wrong or impossible; each finding has the statement that mends it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidelog.capture.change import CheckFinding
from tidelog.capture.sources.mysql.kinds import parse
from tidelog.capture.sources.mysql.session import MysqlSettings, query, quoted
from tidelog.capture.sources.mysql.shapes import Shapes
from tidelog.errors import UsageError

DAY_SECONDS = 86_400
CASCADES_LOGGED_SINCE = (9, 6)  # of MySQL: since then foreign keys are followed where rows are logged
_VARIABLES = (
    *("log_bin", "binlog_format", "binlog_row_image", "binlog_row_metadata", "server_id", "gtid_mode"),
    *("binlog_expire_logs_seconds", "expire_logs_days", "binlog_row_value_options", "binlog_transaction_compression"),
)
_NO_RIGHT = {1044, 1142, 1143, 1227}


class Cascade(NamedTuple):
    table: str  # whose rows change without row events
    constraint: str
    parent: str
    rules: str  # ON DELETE CASCADE ON UPDATE SET NULL


@dataclass
class MysqlFacts:
    version: str
    mariadb: bool
    variables: Mapping[str, str]
    user: str = ""
    grants: Sequence[str] = ()
    reads_position: bool = True
    filters: str = ""  # binlog_do_db and binlog_ignore_db, where set
    tables: Sequence[str] = ()
    missing: Sequence[str] = ()  # tables that are named in full and not seen
    unreadable: Sequence[str] = ()
    without_key: Sequence[str] = ()
    engines: Mapping[str, str] = field(default_factory=dict)  # of tables that do not have transactions
    versioned: Sequence[str] = ()
    columns: Sequence[str] = ()  # what is wrong with a column, in words
    cascades: Sequence[Cascade] = ()
    accept_cascades: bool = False


def judge(facts: MysqlFacts) -> list[CheckFinding]:
    found = [*_settings(facts), *_rights(facts), *_tables(facts), *_cascades(facts)]
    if not any(finding.severity == "error" for finding in found):
        found.insert(0, CheckFinding("ok", f"{facts.version} can be captured: {len(facts.tables)} tables"))
    return found


def _settings(facts: MysqlFacts) -> list[CheckFinding]:
    has = {name: value.upper() for name, value in facts.variables.items()}
    found = []
    if has.get("log_bin") != "ON":
        remedy = "put log_bin=binlog and server_id=1 under [mysqld] in my.cnf, and restart the server"
        found.append(CheckFinding("error", "the server writes no binlog (log_bin is OFF)", remedy))
    for name, wanted, why in (
        ("binlog_format", "ROW", "changes are not logged row by row"),
        ("binlog_row_image", "FULL", "rows are logged without all of their columns"),
        ("binlog_row_metadata", "FULL", "rows are logged without the names of their columns"),
    ):
        if has.get(name) != wanted:
            told = facts.variables.get(name, "not there: the server is older than MariaDB 10.5 or MySQL 8.0.14")
            found.append(CheckFinding("error", f"{name} is {told}: {why}", f"SET GLOBAL {name} = '{wanted}';"))
    if has.get("server_id") == "0":
        found.append(CheckFinding("error", "server_id is 0: no replica may connect", "SET GLOBAL server_id = 1;"))
    if has.get("binlog_row_value_options"):
        what = "binlog_row_value_options is PARTIAL_JSON: JSON values are logged in part"
        found.append(CheckFinding("error", what, "SET GLOBAL binlog_row_value_options = '';"))
    if has.get("binlog_transaction_compression") == "ON":
        what = "binlog_transaction_compression is ON, which is not supported"
        found.append(CheckFinding("error", what, "SET GLOBAL binlog_transaction_compression = OFF;"))
    if not facts.mariadb and has.get("gtid_mode") != "ON":
        what = f"gtid_mode is {facts.variables.get('gtid_mode', 'OFF')}: after a failover the position has no meaning"
        found.append(CheckFinding("warning", what, "put gtid_mode=ON and enforce_gtid_consistency=ON into my.cnf"))
    if facts.filters:
        what = f"the server leaves databases out of its binlog ({facts.filters})"
        found.append(CheckFinding("error", what, "take binlog_do_db and binlog_ignore_db out of my.cnf"))
    return [*found, *_retention(facts.variables)]


def _retention(variables: Mapping[str, str]) -> list[CheckFinding]:
    seconds = float(variables.get("binlog_expire_logs_seconds") or 0)
    seconds = seconds or float(variables.get("expire_logs_days") or 0) * DAY_SECONDS
    if 0 < seconds < DAY_SECONDS:
        what = f"the binlog is kept for {seconds:.0f} s: a capture that is down for longer needs a new snapshot"
        return [CheckFinding("warning", what, f"SET GLOBAL binlog_expire_logs_seconds = {7 * DAY_SECONDS};")]
    return []


def _rights(facts: MysqlFacts) -> list[CheckFinding]:
    found = []
    if not _granted(facts.grants, "REPLICATION SLAVE", "REPLICATION REPLICA"):
        found.append(_right(facts, "error", "read the binlog", "REPLICATION SLAVE"))
    if not facts.reads_position:
        right = "BINLOG MONITOR" if facts.mariadb else "REPLICATION CLIENT"
        found.append(_right(facts, "error", "ask for the binlog's position", right))
    if not _granted(facts.grants, "RELOAD"):
        what = "lock tables for a moment" + (": snapshots are read by one connection alone" if facts.mariadb else "")
        found.append(_right(facts, "warning" if facts.mariadb else "error", what, "RELOAD"))
    return found


def _right(facts: MysqlFacts, severity: str, what: str, right: str) -> CheckFinding:
    return CheckFinding(severity, f"{facts.user} may not {what}", f"GRANT {right} ON *.* TO {facts.user};")


def _granted(grants: Sequence[str], *rights: str) -> bool:
    everywhere = [grant.upper() for grant in grants if re.search(r" ON \*\.\* TO ", grant, re.IGNORECASE)]
    return any(right in grant for grant in everywhere for right in ("ALL PRIVILEGES", *rights))


def _tables(facts: MysqlFacts) -> list[CheckFinding]:
    found = [
        CheckFinding("error", f"the table {name} is not there, or {facts.user} may not see it", _select(facts, name))
        for name in facts.missing
    ]
    if not facts.tables and not facts.missing:
        found.append(CheckFinding("error", "no table matches the capture's tables", "name them as database.table"))
    for name in facts.unreadable:
        found.append(CheckFinding("error", f"{facts.user} may not read {name}", _select(facts, name)))
    for what in facts.columns:
        found.append(CheckFinding("error", what))
    for name in facts.versioned:
        what = f"{name} is system-versioned, which is not supported: history would come as rows of its own"
        found.append(CheckFinding("error", what, f"ALTER TABLE {name} DROP SYSTEM VERSIONING; or leave it out"))
    for name in facts.without_key:
        what = f"{name} has no primary key: its events have no key, and nothing can bring a later snapshot up to date"
        found.append(CheckFinding("warning", what, f"ALTER TABLE {name} ADD PRIMARY KEY (...);"))
    for name, engine in facts.engines.items():
        what = f"{name} is a table of {engine}, without transactions: a snapshot may see later changes"
        found.append(CheckFinding("warning", what, f"ALTER TABLE {name} ENGINE = InnoDB;"))
    return found


def _select(facts: MysqlFacts, name: str) -> str:
    return f"GRANT SELECT ON {name} TO {facts.user};"


def _cascades(facts: MysqlFacts) -> list[CheckFinding]:
    if not facts.mariadb and _numbers(facts.version) >= CASCADES_LOGGED_SINCE:
        return []
    severity = "warning" if facts.accept_cascades else "error"
    return [
        CheckFinding(
            severity,
            f"the foreign key {cascade.constraint} ({cascade.rules}) changes rows of {cascade.table} when rows of "
            f"{cascade.parent} change, and the server does not write these changes to its binlog",
            f"ALTER TABLE {cascade.table} DROP FOREIGN KEY {cascade.constraint}; and change those rows by statements, "
            "or accept stale rows by --accept-cascades",
        )
        for cascade in facts.cascades
    ]


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


# Asking -------------------------------------------------------------------------------------------------------------


def ask(connection: Any, wanted: MysqlSettings, shapes: Shapes, patterns: Sequence[str], mariadb: bool) -> MysqlFacts:
    listed = ", ".join(f"'{name}'" for name in _VARIABLES)
    variables = dict(query(connection, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({listed})"))
    ((version, user),) = query(connection, "SELECT VERSION(), CURRENT_USER()")
    name, _, host = user.rpartition("@")
    reads, filters = _position_and_filters(connection)
    facts = MysqlFacts(version, mariadb, variables, f"'{name}'@'{host}'", accept_cascades=wanted.accept_cascades)
    facts.grants = [grant for (grant,) in query(connection, "SHOW GRANTS")]
    facts.reads_position, facts.filters = reads, filters
    _ask_tables(connection, shapes, patterns, facts)
    facts.cascades = _ask_cascades(connection, shapes)
    return facts


def _position_and_filters(connection: Any) -> tuple[bool, str]:
    import pymysql

    try:
        found = query(connection, "SHOW MASTER STATUS")
    except pymysql.err.ProgrammingError:
        found = query(connection, "SHOW BINARY LOG STATUS")
    except pymysql.err.OperationalError as error:
        if error.args[0] not in _NO_RIGHT:
            raise
        return False, ""
    names = ("binlog_do_db", "binlog_ignore_db")
    set_ = [f"{name}={text}" for name, text in zip(names, found[0][2:4], strict=False) if text] if found else []
    return True, ", ".join(set_)


def _ask_tables(connection: Any, shapes: Shapes, patterns: Sequence[str], facts: MysqlFacts) -> None:
    rows = query(connection, "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE FROM information_schema.TABLES")
    seen = [row for row in rows if row[2] in {"BASE TABLE", "SYSTEM VERSIONED"} and shapes.wants(row[0], row[1])]
    names = [f"{database}.{table}" for database, table, *_ in seen]
    facts.tables = names
    facts.missing = [name for name in patterns if not set("*?[") & set(name) and name not in names]
    facts.versioned = [f"{row[0]}.{row[1]}" for row in seen if row[2] == "SYSTEM VERSIONED"]
    facts.engines = {f"{row[0]}.{row[1]}": row[3] for row in seen if row[3] not in {"InnoDB", "ROCKSDB", "TokuDB"}}
    keyed = query(
        connection,
        "SELECT DISTINCT TABLE_SCHEMA, TABLE_NAME FROM information_schema.STATISTICS WHERE INDEX_NAME='PRIMARY'",
    )
    have = {f"{database}.{table}" for database, table in keyed}
    facts.without_key = [name for name in names if name not in have]
    facts.unreadable = [f"{row[0]}.{row[1]}" for row in seen if not _reads(connection, row[0], row[1])]
    facts.columns = _ask_columns(connection, shapes)


def _reads(connection: Any, database: str, table: str) -> bool:
    import pymysql

    try:
        query(connection, f"SELECT * FROM {quoted(database, table)} LIMIT 0")
    except pymysql.err.OperationalError as error:
        if error.args[0] not in _NO_RIGHT:
            raise
        return False
    return True


def _ask_columns(connection: Any, shapes: Shapes) -> list[str]:
    wrong = []
    columns = "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, COLUMN_TYPE FROM information_schema.COLUMNS"
    for database, table, name, declared in query(connection, columns):
        if shapes.wants(database, table):
            try:
                parse(declared, True)
            except UsageError as error:
                wrong.append(f"{database}.{table}.{name}: {error}")
    return wrong


def _ask_cascades(connection: Any, shapes: Shapes) -> list[Cascade]:
    rows = query(
        connection,
        "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, CONSTRAINT_NAME, UNIQUE_CONSTRAINT_SCHEMA, REFERENCED_TABLE_NAME,"
        " DELETE_RULE, UPDATE_RULE FROM information_schema.REFERENTIAL_CONSTRAINTS",
    )
    cascades = []
    for database, table, constraint, other, parent, on_delete, on_update in rows:
        rules = [f"ON {verb} {rule}" for verb, rule in (("DELETE", on_delete), ("UPDATE", on_update)) if _changes(rule)]
        if rules and shapes.wants(database, table):
            cascades.append(Cascade(f"{database}.{table}", constraint, f"{other}.{parent}", " ".join(rules)))
    return cascades


def _changes(rule: str) -> bool:
    return rule.upper() in {"CASCADE", "SET NULL", "SET DEFAULT"}
