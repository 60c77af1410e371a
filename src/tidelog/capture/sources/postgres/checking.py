"""What `capture check` says of a PostgreSQL server: one look, then a pure judgement of each thing that it saw."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tidelog.capture.change import CheckFinding
from tidelog.capture.sources.postgres.catalog import Catalog, ListedTable
from tidelog.capture.sources.postgres.publications import identified, needed
from tidelog.capture.sources.postgres.reading import name_of
from tidelog.capture.sources.postgres.session import SqlSession
from tidelog.capture.sources.postgres.slots import PLUGIN, ReplicationSlot, slot_of

ERROR, WARNING, OK = "error", "warning", "ok"
OLDEST = 140_000
STANDBY_DECODING = 160_000
LONG_TRANSACTION_S = 60
LARGE_LOG = 1 << 30  # bytes that a slot may keep without a word

_SERVER = """
SELECT current_setting('server_version_num')::int, current_setting('server_version'), current_setting('wal_level'),
       current_setting('max_replication_slots')::int, (SELECT count(*) FROM pg_replication_slots),
       current_setting('max_wal_senders')::int,
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'walsender'),
       (SELECT setting::bigint FROM pg_settings WHERE name = 'max_slot_wal_keep_size'),
       coalesce((SELECT setting::bigint FROM pg_settings WHERE name = 'idle_replication_slot_timeout'), 0),
       pg_is_in_recovery(), current_user::text,
       (SELECT rolsuper OR rolreplication FROM pg_roles WHERE rolname = current_user),
       coalesce((SELECT max(extract(epoch FROM clock_timestamp() - xact_start))::int FROM pg_stat_activity
                 WHERE datname = current_database() AND backend_xid IS NOT NULL), 0)
"""


class PostgresServer(NamedTuple):
    version: int
    version_text: str
    wal_level: str
    max_slots: int
    slots: int
    max_senders: int
    senders: int
    keep_mb: int  # -1: without a limit
    idle_timeout: int  # 0: none
    standby: bool
    user: str
    may_replicate: bool
    oldest_s: int  # of the transactions that are open and have written


def check(session: SqlSession, catalog: Catalog, slot: str, names: tuple[str, str]) -> list[CheckFinding]:
    server = PostgresServer(*session.query(_SERVER)[0])
    found = slot_of(session, slot)
    findings = [*of_server(server, found), *of_slot(slot, found, session.one("SELECT current_database()::text"))]
    if server.version >= OLDEST:
        tables = catalog.listed()
        statements = needed(session, catalog, names)
        findings += of_tables(tables, identified(session, tables) if tables else set())
        findings += of_names(catalog.unmatched(tables), catalog.unlogged())
        findings += of_publications(statements, tables, may_create=may_create(session))
    return findings


def may_create(session: SqlSession) -> bool:
    return bool(session.one("SELECT has_database_privilege(current_database(), 'CREATE')"))


def of_server(server: PostgresServer, slot: ReplicationSlot | None) -> Iterator[CheckFinding]:
    if server.version < OLDEST:
        yield CheckFinding(
            ERROR, f"the server is PostgreSQL {server.version_text}; 14 is the oldest that can be captured"
        )
        return
    yield CheckFinding(OK, f"the server is PostgreSQL {server.version_text}")
    if server.standby and server.version < STANDBY_DECODING:
        yield CheckFinding(
            ERROR, "the server is a standby, which can be captured from PostgreSQL 16 on; name the primary"
        )
    if server.wal_level != "logical":
        yield CheckFinding(
            ERROR,
            f"wal_level is {server.wal_level}, and changes can be read at logical only",
            "ALTER SYSTEM SET wal_level = 'logical';  -- then restart the server",
        )
    if not server.may_replicate:
        yield CheckFinding(
            ERROR,
            f"the user {server.user} may not read the log of changes",
            f"ALTER ROLE {name_of(server.user)} REPLICATION;",
        )
    yield from _room(server, slot)
    if server.oldest_s > LONG_TRANSACTION_S and slot is None:
        yield CheckFinding(
            WARNING,
            f"a transaction is open for {server.oldest_s} s; the first snapshot waits until it has ended",
            "SELECT pid, xact_start, query FROM pg_stat_activity WHERE backend_xid IS NOT NULL ORDER BY xact_start;",
        )


def _room(server: PostgresServer, slot: ReplicationSlot | None) -> Iterator[CheckFinding]:
    if slot is None and server.slots >= server.max_slots:
        yield CheckFinding(
            ERROR,
            f"all {server.max_slots} replication slots are taken",
            f"ALTER SYSTEM SET max_replication_slots = {server.max_slots + 4};  -- then restart the server",
        )
    if server.senders >= server.max_senders:
        yield CheckFinding(
            ERROR,
            f"all {server.max_senders} senders of changes are in use",
            f"ALTER SYSTEM SET max_wal_senders = {server.max_senders + 4};  -- then restart the server",
        )
    if server.keep_mb < 0:
        yield CheckFinding(
            WARNING,
            "max_slot_wal_keep_size has no limit: while capture is stopped, the server keeps its log until the disk is"
            " full",
            "ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'; SELECT pg_reload_conf();",
        )
    if server.idle_timeout > 0:
        yield CheckFinding(
            WARNING,
            f"idle_replication_slot_timeout is {server.idle_timeout}: a capture that is stopped for longer has to begin"
            " again",
            "ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf();",
        )


def of_slot(name: str, slot: ReplicationSlot | None, database: str) -> Iterator[CheckFinding]:
    if slot is None:
        yield CheckFinding(OK, f"the slot {name} is not there yet; the first snapshot makes it")
    elif slot.plugin != PLUGIN or slot.database != database:
        yield CheckFinding(
            ERROR,
            f"the slot {name} is of the plugin {slot.plugin} and the database {slot.database}, so it is not ours",
            f"SELECT pg_drop_replication_slot('{name}');  -- or choose another name",
        )
    elif slot.is_lost:
        yield CheckFinding(
            WARNING,  # whoever reads on from it is stopped; who takes a new snapshot makes it anew
            f"the slot {name} is lost: the server has removed log that capture has not read",
            "tidelog capture run --snapshot when_needed",
        )
    elif slot.kept > LARGE_LOG:
        reader = "nobody" if slot.active_pid is None else f"the server's process {slot.active_pid}"
        yield CheckFinding(
            WARNING,
            f"the server keeps {slot.kept} bytes of its log for the slot {name}, which {reader} reads: its disk fills",
            "let its capture run; if nobody wants its changes any more, take it away by `tidelog capture remove`",
        )
    elif slot.active_pid is not None:
        yield CheckFinding(OK, f"the slot {name} is being read, by the server's process {slot.active_pid}")
    else:
        yield CheckFinding(OK, f"the slot {name} is there, and nobody reads it")


def of_tables(tables: Sequence[ListedTable], with_identity: set[int]) -> Iterator[CheckFinding]:
    if not tables:
        yield CheckFinding(ERROR, "no table matches; a pattern is schema.table, and `*` stands for any part of it")
    for table in tables:
        name = name_of(table.schema, table.name)
        if not table.readable:
            yield CheckFinding(ERROR, f"{table.full_name} may not be read", f"GRANT SELECT ON {name} TO CURRENT_USER;")
        if table.id not in with_identity:
            yield CheckFinding(
                WARNING,
                f"{table.full_name} has no primary key and no other replica identity: its inserts are captured, its"
                " updates and deletes are not",
                f"ALTER TABLE {name} REPLICA IDENTITY FULL;  -- or give it a primary key",
            )
        if table.partitioned:
            yield CheckFinding(
                WARNING,
                f"{table.full_name} is partitioned: a TRUNCATE of one partition alone is not seen; an ATTACH of one"
                " with rows, a DETACH or a DROP has the whole table read again",
                "DELETE the rows, and do not TRUNCATE",
            )
    if tables:
        yield CheckFinding(OK, f"{len(tables)} table{'s' if len(tables) > 1 else ''} will be captured")


def of_names(missing: Sequence[str], unlogged: Sequence[tuple[str, str]]) -> Iterator[CheckFinding]:
    for schema, name in unlogged:
        yield CheckFinding(
            WARNING,
            f"{schema}.{name} is UNLOGGED: its changes are in no log, and it is not captured",
            f"ALTER TABLE {name_of(schema, name)} SET LOGGED;",
        )
    for said in missing:
        if said not in {f"{schema}.{name}" for schema, name in unlogged}:
            yield CheckFinding(WARNING, f"the table {said} is not there; it is captured as soon as it is made")


def of_publications(
    statements: Sequence[str], tables: Sequence[ListedTable], *, may_create: bool
) -> Iterator[CheckFinding]:
    foreign = sorted({f"{table.full_name} (of {table.owner})" for table in tables if not table.owned})
    if not statements:
        yield CheckFinding(OK, "the publications name these tables")
    elif foreign or (not may_create and any(each.startswith("CREATE") for each in statements)):
        why = f"{', '.join(foreign)} belong to others" if foreign else "the database does not let this user create them"
        yield CheckFinding(
            ERROR,
            f"the publications cannot be made: {why}; let their owner or a superuser run this",
            script(statements),
        )
    else:
        yield CheckFinding(OK, "the publications will be made or changed when capture starts")


def script(statements: Sequence[str]) -> str:
    return "\n".join(f"{statement};" for statement in statements)
