"""PostgreSQL as a source, by triggers: `connect(url, name, tables)`. For a user without the right REPLICATION.

    in the database, by the capture's name:   schema _tidelog_NAME (`functions.py`), triggers of each captured table

    prepare     makes them (`installing.py`)
    snapshot    rows at an exported snapshot; the position is that snapshot, as text
    stream      what later snapshots have and this one has not (`changelog.py`, `seen.py`)
    confirm     deletes changes that are stored in the log
    remove      drops the schema, and the triggers with it

Values, keys and tables are those of the log's reader: the same catalog and the same readers. These differ: `before` is
the whole old row, large values are always there, `lsn` is null, and a transaction's time is that of its last change.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from tidelog import __version__
from tidelog.capture.change import Begin, CheckFinding, Position, RowChange, SourceLag, SourceTable
from tidelog.capture.source import Newcomer
from tidelog.capture.sources.postgres import partitions, reading
from tidelog.capture.sources.postgres.catalog import Catalog, Known, ListedTable
from tidelog.capture.sources.postgres.session import SqlSession
from tidelog.capture.sources.postgres.snapshot import ExportedSnapshot, exported
from tidelog.capture.sources.postgres.source import PostgresSource, plain_name
from tidelog.capture.sources.postgres.triggers import checking, installing
from tidelog.capture.sources.postgres.triggers.changelog import PostgresChangelog
from tidelog.capture.sources.postgres.triggers.functions import PostgresNames
from tidelog.capture.sources.postgres.triggers.installing import KEY
from tidelog.capture.sources.postgres.triggers.lasting import write_down
from tidelog.capture.sources.postgres.triggers.rows import LoggedShape, LoggedTable, shape_of
from tidelog.capture.sources.postgres.triggers.seen import LogIdentity, SeenSnapshot, seen_of
from tidelog.control.captures import REPLACED
from tidelog.errors import SourceLost, TidelogError, UsageError

AGAIN = "take a new snapshot: run capture with `--snapshot when_needed`"

_LAG = """
SELECT pg_total_relation_size(to_regclass(%s)),
       (SELECT extract(epoch FROM clock_timestamp() - min(c.at))::float8 FROM {} c
        WHERE c.xid >= %s::text::xid8 OR c.xid = ANY(%s::text[]::xid8[]))
"""


def connect(url: str, name: str, tables: Sequence[str]) -> TriggerSource:
    return TriggerSource(SqlSession(url), plain_name(name), tables)


class LiveTable(NamedTuple):
    listed: ListedTable
    named: tuple[str, str]  # schema and name that it had when it got its triggers
    keyed: tuple[str, ...]  # the key by which it is told
    key: tuple[str, ...]  # the one that it has


class TriggerSource(PostgresSource):
    def __init__(self, session: SqlSession, name: str, tables: Sequence[str]) -> None:
        super().__init__(session, name, tables)
        self._catalog = Catalog(session, tables, ())
        self._names = PostgresNames(name)
        self._logged: dict[tuple[int, int | None], LoggedShape] = {}
        self._changelog: PostgresChangelog | None = None
        self._heads: dict[tuple[SourceTable, str], tuple[str, str]] = {}
        self._told: set[str] = set()  # names of which the log has rows
        self._rekeyed: dict[int, tuple[str, ...]] = {}  # keys that were told, and are not in the shapes yet

    def check(self) -> Sequence[CheckFinding]:
        return checking.check(self._session, self._catalog, self._names)

    def prepare(self) -> None:
        if not self._catalog.listed():
            raise UsageError("no table matches; a pattern is schema.table, and `*` stands for any part of it")
        installing.install(self._session, self._names, self._catalog, self._told)

    def remove(self) -> Sequence[str]:
        return installing.remove(self._session, self._names)

    # Reading ----------------------------------------------------------------------------------------------------------

    def snapshot(self) -> ExportedSnapshot:  # type: ignore[override]
        identity = self._identity()
        tables = [each.known for each in self._live()]
        return TriggerSnapshot(self._session, self._catalog, self._names, identity, tables)

    def stream(self, position: Position) -> PostgresChangelog:  # type: ignore[override]
        identity = self._identity()
        seen = seen_of(position["seen"]) if "seen" in position else None
        now = seen_of(self._session.one("SELECT pg_current_snapshot()::text"))
        if (
            seen is None
            or (position.get("log"), position.get("system")) != (identity.log, identity.system)
            or seen.xmax > now.xmax
        ):
            raise SourceLost(
                f"{self._session.address} does not have the changes after {dict(position)}: its log of changes is"
                f" {identity.log} of the server {identity.system}, up to transaction {now.xmax}; the database was"
                f" restored, or the capture's triggers were removed: {AGAIN}"
            )
        self._changelog = PostgresChangelog(
            self._session, self._names, identity, position, self._shape, self._bring_in_step
        )
        return self._changelog

    def newcomers(self, known: Mapping[str, str]) -> Sequence[Newcomer]:
        """Those that have another name, key or other partitions by now: their triggers are there, and have told no rows
        by that. Rows of other new tables are logged when they get their triggers."""
        if not installing.is_installed(self._session, self._names):
            return ()
        self._told |= known.keys()
        self._keep_keys()
        live = self._live_tables()
        inside = partitions.partitions_of(self._session, [one.listed.id for one in live if one.listed.partitioned])
        changed, found = [], []
        for one in live:
            listed, told = one.listed, known.get(one.listed.full_name)
            renamed = one.named != (listed.schema, listed.name)
            if renamed and told is not None and partitions.number_of(told) == str(listed.id):
                self._session.query(
                    f"UPDATE {self._names.shapes} SET schema = %s, name = %s WHERE rel = %s",
                    [listed.schema, listed.name, listed.id],
                )
            elif renamed or told == REPLACED or one.keyed != one.key:
                self._rekeyed[listed.id] = one.key
                self._logged = {at: kept for at, kept in self._logged.items() if at[0] != listed.id}
                changed.append(listed.full_name)
            elif (other := self._repartition(listed, known, inside.get(listed.id))) is not None:
                found.append(other)
        now = [table for table in self.tables() if table.full_name in changed] if changed else []
        return [*found, *(Newcomer(table, table.full_name in known and bool(table.key)) for table in now)]

    def _live_tables(self) -> list[LiveTable]:
        """Tables that have triggers."""
        key = KEY.format("s.rel")
        live = self._session.query(f"SELECT rel, schema, name, key, {key} FROM {self._names.shapes} s WHERE live")
        by_id = {int(rel): ((str(schema), str(name)), tuple(then), tuple(now)) for rel, schema, name, then, now in live}
        return [LiveTable(one, *by_id[one.id]) for one in self._catalog.listed() if one.id in by_id]

    def _keep_keys(self) -> None:
        """Of tables that were told of before: that their rows are read by these is stored in the log by now."""
        rekeyed, self._rekeyed = self._rekeyed, {}
        for rel, key in rekeyed.items():
            self._session.query(f"UPDATE {self._names.shapes} SET key = %s WHERE rel = %s", [list(key), rel])

    def _as_read(self, listed: ListedTable) -> SourceTable | None:
        return next((each.table for each in self._live() if each.known.relation.id == listed.id), None)

    def _written(self) -> SeenSnapshot:
        return seen_of(self._session.one("SELECT pg_current_snapshot()::text"))

    def _is_behind_us(self, written: SeenSnapshot) -> bool:
        return self._changelog is not None and self._changelog.seen.has_all_of(written)

    def tables(self) -> Sequence[SourceTable]:
        return [each.table for each in self._live()]

    def watermark(self, text: str) -> None:
        self._session.query(
            f"INSERT INTO {self._names.changes} (op, before, after) VALUES ('w', pg_current_snapshot()::text, %s)",
            [text],
        )

    def heartbeat(self) -> None:
        """An idle database keeps nothing back for us; a number of ours tells when all before it have ended."""
        at_us, xid = self._session.query(
            "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, pg_current_xact_id()::text::bigint"
        )[0]
        if self._changelog is not None:
            self._changelog.heard(at_us, xid)

    def lag(self) -> SourceLag:
        if self._changelog is None:
            return SourceLag(None, None, None)
        seen = self._changelog.seen
        size, seconds = self._session.query(
            _LAG.format(self._names.changes),
            [self._names.changes, str(seen.xmax), [str(one) for one in seen.open]],
        )[0]
        return SourceLag(None, max(0.0, seconds or 0.0), size)

    def close(self) -> None:
        stream, self._changelog = self._changelog, None
        if stream is not None:
            with suppress(TidelogError):  # what is left is deleted at the next start
                stream.close()
        super().close()

    def source_block(self, row: RowChange, begin: Begin, snapshot: str, name: str) -> str:
        head = self._heads.get((row.table, snapshot))
        if head is None:
            head = self._heads[row.table, snapshot] = self._texts(row.table, snapshot, name)
        us = begin.commit_us
        sequence = "null" if row.where is None else f'"[null,\\"{row.where}\\"]"'
        return (
            f'{head[0]}"ts_ms":{us // 1000},"snapshot":"{snapshot}",{head[1]}"sequence":{sequence},"ts_us":{us},'
            f'"ts_ns":{us}000,{self._blocks.get(row.table) or self._table_part(row.table)}'
            f'"txId":{begin.where or "null"},"lsn":null,"xmin":null,"origin":null,"origin_lsn":null}}'
        )

    def _texts(self, table: SourceTable, snapshot: str, name: str) -> tuple[str, str]:
        return (
            f'{{"version":"{__version__}","connector":"postgresql","name":{json.dumps(name)},',
            f'"db":{json.dumps(self.database)},',
        )

    # Within -----------------------------------------------------------------------------------------------------------

    def _identity(self) -> LogIdentity:
        self._database()
        if not installing.is_installed(self._session, self._names):
            raise SourceLost(f"the log of changes {self._names.schema} is gone; {AGAIN}")
        log = self._session.query(f"SELECT log FROM {self._names.state}")
        return LogIdentity(str(log[0][0]) if log else "", self._identified())

    def _bring_in_step(self) -> None:
        if not installing.is_installed(self._session, self._names):
            raise SourceLost(f"the log of changes {self._names.schema} is gone; {AGAIN}")
        installing.install(self._session, self._names, self._catalog, self._told)

    def _shape(self, rel: int, sig: int | None, described: str | None) -> LoggedShape | None:
        known = self._logged.get((rel, sig))
        if known is not None:
            return known
        if described is None:
            which = "live" if sig is None else "sig = %s"
            found = self._session.query(
                f"SELECT described FROM {self._names.shapes} WHERE rel = %s AND {which}",
                [rel] if sig is None else [rel, sig],
            )
            described = found[0][0] if found else None
        if described is None:
            return None
        made = self._logged[rel, sig] = shape_of(self._catalog, described, self._table(rel))
        return made

    def _table(self, rel: int) -> LoggedTable:
        """By its name of now, or the last that it had."""
        schema, name, key = self._session.query(
            f"SELECT schema, name, key FROM {self._names.shapes} WHERE rel = %s ORDER BY live DESC LIMIT 1", [rel]
        )[0]
        found = self._session.query(
            "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.oid = %s",
            [rel],
        )
        if found:
            schema, name = found[0]
        return LoggedTable(rel, schema, name, tuple(key))

    def _live(self) -> list[LoggedShape]:
        live = self._session.query(f"SELECT rel, sig, described FROM {self._names.shapes} WHERE live ORDER BY rel")
        found = [self._shape(int(rel), int(sig), described) for rel, sig, described in live]
        return [each for each in found if each is not None]

    def _ranged(self, table: SourceTable) -> Known:
        for logged in self._logged.values():
            if logged.table is table and reading.has_ranges(logged.known):
                return logged.known
        return super()._ranged(table)


class TriggerSnapshot(ExportedSnapshot):
    """Its position is what its rows are: all that the exported snapshot has."""

    def __init__(
        self,
        session: SqlSession,
        catalog: Catalog,
        names: PostgresNames,
        identity: LogIdentity,
        tables: Sequence[Known],
    ) -> None:
        self._captured = tables
        holder, name = exported(session)
        with session.telling():
            seen: Any = holder.execute("SELECT pg_current_snapshot()::text").fetchall()[0][0]
        write_down(session, names)
        self.position = identity.position(str(seen))
        super().__init__(session, catalog, holder, name)

    def _tables(self) -> Iterator[Known]:
        yield from self._captured
