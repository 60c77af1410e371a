"""What `capture check --method triggers` says of a PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tidelog.capture.change import CheckFinding
from tidelog.capture.sources.postgres.catalog import Catalog, ListedTable
from tidelog.capture.sources.postgres.checking import ERROR, LONG_TRANSACTION_S, OK, OLDEST, WARNING
from tidelog.capture.sources.postgres.reading import name_of
from tidelog.capture.sources.postgres.session import SqlSession
from tidelog.capture.sources.postgres.triggers import installing
from tidelog.capture.sources.postgres.triggers.functions import PostgresNames

LARGE_LOG = 1 << 30

_SERVER = """
SELECT current_setting('server_version_num')::int, current_setting('server_version'), pg_is_in_recovery(),
       current_user::text, has_database_privilege(current_database(), 'CREATE'), current_database()::text,
       (SELECT pg_has_role(nspowner, 'USAGE') FROM pg_namespace WHERE nspname = %s),
       coalesce((SELECT max(extract(epoch FROM clock_timestamp() - xact_start))::int FROM pg_stat_activity
                 WHERE datname = current_database() AND backend_xid IS NOT NULL), 0)
"""
_TABLES = """
SELECT c.oid, has_table_privilege(c.oid, 'TRIGGER'),
       EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)
FROM pg_class c WHERE c.oid = ANY(%s)
"""


class TriggerServer(NamedTuple):
    version: int
    version_text: str
    standby: bool
    user: str
    may_create: bool
    database: str
    owns_schema: bool | None  # None: the schema is not there
    oldest_s: int


def check(session: SqlSession, catalog: Catalog, names: PostgresNames) -> list[CheckFinding]:
    server = TriggerServer(*session.query(_SERVER, [names.schema])[0])
    findings = list(of_server(server, names))
    if server.version < OLDEST:
        return findings
    tables = catalog.listed()
    facts = {rel: (may, keyed) for rel, may, keyed in session.query(_TABLES, [[one.id for one in tables]])}
    findings += of_tables(tables, facts)
    if installing.is_installed(session, names):
        size = session.one("SELECT pg_total_relation_size(to_regclass(%s))", [names.changes])
        findings += of_changelog(names, installing.steps_of(session, names, catalog), int(size))
    return findings


def of_server(server: TriggerServer, names: PostgresNames) -> Iterator[CheckFinding]:
    if server.version < OLDEST:
        yield CheckFinding(
            ERROR, f"the server is PostgreSQL {server.version_text}; 14 is the oldest that can be captured"
        )
        return
    yield CheckFinding(OK, f"the server is PostgreSQL {server.version_text}")
    if server.standby:
        yield CheckFinding(ERROR, "the server is a standby, in which no trigger can be made; name the primary")
    if server.owns_schema is False or (server.owns_schema is None and not server.may_create):
        yield CheckFinding(
            ERROR,
            f"the user {server.user} may not make the schema {names.schema}, in which changes are logged",
            f"CREATE SCHEMA {name_of(names.schema)} AUTHORIZATION {name_of(server.user)};"
            f"  -- or GRANT CREATE ON DATABASE {name_of(server.database)} TO {name_of(server.user)};",
        )
    if server.oldest_s > LONG_TRANSACTION_S:
        yield CheckFinding(
            WARNING,
            f"a transaction is open for {server.oldest_s} s; triggers are made when it has ended, and until then"
            " the room of logged changes is not used again",
            "SELECT pid, xact_start, query FROM pg_stat_activity WHERE backend_xid IS NOT NULL ORDER BY xact_start;",
        )


def of_tables(tables: Sequence[ListedTable], facts: dict[int, tuple[bool, bool]]) -> Iterator[CheckFinding]:
    if not tables:
        yield CheckFinding(ERROR, "no table matches; a pattern is schema.table, and `*` stands for any part of it")
    for table in tables:
        may, keyed = facts.get(table.id, (False, True))
        name = name_of(table.schema, table.name)
        if not table.readable:
            yield CheckFinding(ERROR, f"{table.full_name} may not be read", f"GRANT SELECT ON {name} TO CURRENT_USER;")
        if not may:
            yield CheckFinding(
                ERROR, f"{table.full_name} may not have a trigger of ours", f"GRANT TRIGGER ON {name} TO CURRENT_USER;"
            )
        if not keyed:
            yield CheckFinding(
                WARNING,
                f"{table.full_name} has no primary key: its records have no key, and cannot be read again in parts",
                f"ALTER TABLE {name} ADD PRIMARY KEY (...);",
            )
        if table.partitioned:
            yield CheckFinding(
                WARNING,
                f"{table.full_name} is partitioned: a TRUNCATE of one partition alone is not seen; an ATTACH of one"
                " with rows, a DETACH or a DROP has the whole table read again",
                "DELETE the rows, and do not TRUNCATE",
            )
    if tables:
        yield CheckFinding(OK, f"{len(tables)} table{'s' if len(tables) > 1 else ''} will be captured by triggers")


def of_changelog(names: PostgresNames, steps: installing.Steps, size: int) -> Iterator[CheckFinding]:
    for table in steps.unseen:
        yield CheckFinding(
            WARNING,
            f"the triggers of {table.full_name} are gone or off: its changes are not seen; when capture"
            " starts, all its rows are captured again",
            f'ALTER TABLE {name_of(table.schema, table.name)} ENABLE TRIGGER "{names.row_trigger}";',
        )
    if size > LARGE_LOG:
        yield CheckFinding(
            WARNING,
            f"{names.schema}.changes has {size >> 20} MB: nobody reads it, or reading is slower than writing",
            "tidelog capture run, or tidelog capture remove",
        )
