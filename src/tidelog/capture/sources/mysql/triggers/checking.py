"""`capture check --method triggers` of a MySQL or MariaDB source: facts are asked for, then judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidelog.capture.change import CheckFinding
from tidelog.capture.sources.mysql import checking
from tidelog.capture.sources.mysql.session import MysqlSettings, query, quoted
from tidelog.capture.sources.mysql.shapes import Shapes
from tidelog.capture.sources.mysql.triggers.statements import MysqlNames

_VARIABLES = ("log_bin", "log_bin_trust_function_creators", "wsrep_on", "max_allowed_packet")


def check(
    connection: Any, wanted: MysqlSettings, shapes: Shapes, patterns: Sequence[str], names: MysqlNames, mariadb: bool
) -> list[CheckFinding]:
    listed = ", ".join(f"'{name}'" for name in _VARIABLES)
    variables = dict(query(connection, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({listed})"))
    ((version, user),) = query(connection, "SELECT VERSION(), CURRENT_USER()")
    name, _, host = user.rpartition("@")
    facts = checking.MysqlFacts(
        version, mariadb, variables, f"'{name}'@'{host}'", accept_cascades=wanted.accept_cascades
    )
    facts.grants = [grant for (grant,) in query(connection, "SHOW GRANTS")]
    checking._ask_tables(connection, shapes, patterns, facts)
    facts.cascades = checking._ask_cascades(connection, shapes)
    if not mariadb:
        what = f"{version} is not MariaDB: which transactions are open, and TRUNCATE, are told otherwise there"
        return [CheckFinding("error", what, "capture it by the binlog: leave --method out")]
    found = [*of_server(variables, facts.user, facts.grants, names), *of_tables(facts), *of_rights(facts, names)]
    if not any(finding.severity == "error" for finding in found):
        what = f"{facts.version} can be captured by triggers: {len(facts.tables)} tables"
        found.insert(0, CheckFinding("ok", what))
    return found


def of_server(variables: Mapping[str, str], user: str, grants: Sequence[str], names: MysqlNames) -> list[CheckFinding]:
    found = []
    if variables.get("wsrep_on") == "ON":
        what = "the server is a node of a Galera cluster, where numbers of changes do not follow the order of writes"
        found.append(CheckFinding("error", what, "capture it by the binlog: leave --method out"))
    trusts = variables.get("log_bin_trust_function_creators") == "ON" or variables.get("log_bin") != "ON"
    if not trusts and not checking._granted(grants, "SUPER"):
        what = f"the server has a binlog, so {user} may not make triggers"
        found.append(CheckFinding("error", what, "SET GLOBAL log_bin_trust_function_creators = ON;"))
    if not checking._granted(grants, "PROCESS"):
        what = f"{user} may not see which transactions are open, nor that a table was truncated"
        found.append(CheckFinding("error", what, f"GRANT PROCESS ON *.* TO {user};"))
    return found


def of_tables(facts: checking.MysqlFacts) -> list[CheckFinding]:
    engines, facts.engines = facts.engines, {}
    found = [finding for finding in checking._tables(facts) if "its events have no key" not in finding.what]
    for name in facts.without_key:
        what = f"{name} has no primary key: its records have no key, and it cannot be read again piece by piece"
        found.append(CheckFinding("warning", what, f"ALTER TABLE {name} ADD PRIMARY KEY (...);"))
    for name, engine in engines.items():
        what = f"{name} is a table of {engine}, without transactions: a change and its logging may part"
        found.append(CheckFinding("error", what, f"ALTER TABLE {name} ENGINE = InnoDB;"))
    cascades = checking._cascades(facts)
    return found + [
        finding._replace(what=finding.what.replace("write these changes to its binlog", "fire triggers for that"))
        for finding in cascades
    ]


def of_rights(facts: checking.MysqlFacts, names: MysqlNames) -> list[CheckFinding]:
    """By the words of the grants: what they do not tell, making the triggers will."""
    texts = [grant.upper() for grant in facts.grants]
    found = []
    ours = names.database.replace("_", "\\_").upper()
    everywhere = [text for text in texts if " ON *.* TO " in text]
    if not any(
        "ALL PRIVILEGES" in text or ("CREATE" in text and "INSERT" in text and "DELETE" in text)
        for text in [*everywhere, *(t for t in texts if ours in t or names.database.upper() in t)]
    ):
        pattern = names.database.replace("_", "\\_")
        what = f"{facts.user} may not make the database {names.database}, in which changes are logged"
        found.append(CheckFinding("error", what, f"GRANT ALL ON `{pattern}`.* TO {facts.user};"))
    for name in facts.tables:
        database = name.split(".", 1)[0].upper()
        mine = [*everywhere, *(text for text in texts if f"`{database}`." in text.replace("\\_", "_"))]
        if not any("ALL PRIVILEGES" in text or "TRIGGER" in text for text in mine):
            what = f"{facts.user} may not have triggers on {name}"
            table = quoted(*name.split(".", 1))
            found.append(CheckFinding("error", what, f"GRANT SELECT, TRIGGER ON {table} TO {facts.user};"))
    return found
