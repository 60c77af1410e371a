"""`tidelog.sql(...)`: a question in SQL over topics and views, answered by DuckDB. Read this first.

    read      DuckDB parses the text; `statement.py` says which tables and columns it names
    bound     each name is a topic or a view (`names.py`); a topic's span is fixed (`span.py`) and its columns are
              found (`shape.py`); DuckDB gets a table of the columns that are named (`c_stream.py`)
    asked     DuckDB pulls batches as it needs them: a LIMIT stops the reading, an aggregate keeps no rows

Rules:
- A question has a DuckDB of its own, in memory, that can reach no file, no network and no extension, and whose settings
  are locked, unless `external_access` is asked for. It cannot write a topic or a store.
- Names of topics are quoted wherever they become SQL.
- Only committed records are read, unless `committed` is false.
- All times are UTC.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tidelog.client.cluster import UNKNOWN_TOPIC
from tidelog.client.consumer import check_readable
from tidelog.client.metadata import TopicPartition
from tidelog.client.refusal import refused
from tidelog.errors import UsageError
from tidelog.schema.column_types import quoted
from tidelog.sql.c_stream import ArrowBatch, ArrowTable
from tidelog.sql.interrupting import as_keyboard_interrupt, interruptible
from tidelog.sql.names import TOPICS, VIEWS, Target, candidates, nearest, target_of
from tidelog.sql.span import BEGINNING, END, Bound, Limits, Options, find_span
from tidelog.sql.statement import (
    FILES,
    LATEST,
    LIKE_A_FILE,
    Node,
    Statement,
    TableName,
    hint,
    is_steady,
    limits_of,
    read_statement,
)
from tidelog.wire.error_code import ErrorCode

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

    from tidelog.client.cluster import Cluster
    from tidelog.client.security import Security
    from tidelog.control.catalog import View
    from tidelog.sql.reading import Connect
    from tidelog.sql.topic import TopicTable
    from tidelog.views.stores.allowing import Allowed

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
CATALOG = "__tidelog.views"
ROWS_AT_ONCE = 1000

Answer = TypeVar("Answer")
Scan = Callable[["TopicTable", tuple[str, ...]], Callable[[], Iterator[ArrowBatch]]]
OF_LATEST = ("key", "value", "partition", "offset", "timestamp")


class Asking(NamedTuple):
    """How a question is asked, whatever it says."""

    start: Bound = BEGINNING
    end: Bound = END
    latest: bool = False
    external_access: bool = False
    options: Options = Options()
    allowed: Allowed | None = None  # stores of views that may be opened; None: as the environment and tidelog.toml say


def sql(
    query: str,
    *,
    bootstrap: str | None = None,
    security: Security | None = None,
    start: int | str | datetime | None = None,
    end: int | str | datetime | None = None,
    latest: bool = False,
    committed: bool = True,
    raw: bool = False,
    strict: bool = False,
    external_access: bool = False,
    stores: Sequence[str] | None = None,
) -> DuckDBPyRelation:
    """A relation of DuckDB's: `.fetchall()`, `.df()`, `.arrow()`, `.show()`, `.filter(...)` and so on. Each of these
    asks anew, over the same offsets.

    `start` and `end` are an offset, a datetime, "earliest" or "latest", for all topics of the question. `latest` reads
    each topic as the latest record of each key. `raw` gives Kafka's columns alone, in bytes. `stores` are URLs of
    stores whose views may be read, with the variables in them; files need none (`allowed.stores`).
    """
    from tidelog.client.cluster import Cluster
    from tidelog.views.stores.allowing import allowed_stores

    address = bootstrap or os.environ.get("TIDELOG_BOOTSTRAP") or DEFAULT_BOOTSTRAP

    def connect() -> Cluster:
        return Cluster(address, client_id="tidelog-sql", security=security)

    asking = Asking(
        BEGINNING if start is None else _bound(start),
        END if end is None else _bound(end),
        latest,
        external_access,
        Options(committed, raw, strict),
        lambda: allowed_stores(code=stores),
    )
    return Question(query, connect, asking).relation()


def _bound(said: int | str | datetime) -> Bound:
    if isinstance(said, datetime):
        at = said if said.tzinfo is not None else said.replace(tzinfo=UTC)
        return Bound("time", int(at.timestamp() * 1000))
    if isinstance(said, int):
        return Bound("offset", said)
    if said not in ("earliest", "latest"):
        raise UsageError(f"{said!r} is not a position in a topic; give an offset, a datetime, 'earliest' or 'latest'")
    return Bound(said)


class Question:
    """One statement, bound to what it reads. `close` it, or leave that to Python."""

    def __init__(self, query: str, connect: Connect, asking: Asking, scan: Scan | None = None) -> None:
        """`scan` gives what a topic's table has, in place of the topic's records."""
        self.query = query
        self.connect = connect
        self.asking = asking
        self.engine = new_engine(asking.external_access)
        self.tables: list[ArrowTable] = []
        self.topics: list[tuple[TopicTable, tuple[str, ...]]] = []  # with the columns that are read
        self.empty: dict[str, None] = {}
        self._scan = scan
        try:
            with as_keyboard_interrupt():
                self.statement = parse(self.engine, query)
                self._latest_macro()
                with connect() as cluster:
                    self._bind(cluster, self.statement.columns)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.engine.close()

    # Asking

    def relation(self) -> DuckDBPyRelation:
        return self._asked(self.engine.sql)

    def rows(self) -> tuple[list[str], Iterator[Sequence[Any]]]:
        """Names of columns, and rows as they come."""
        answer = self._asked(lambda query: interruptible(self.engine, lambda: self.engine.execute(query)))
        return [str(column[0]) for column in answer.description or ()], self._rows()

    def _asked(self, ask: Callable[[str], Answer]) -> Answer:
        import duckdb

        try:
            return ask(self.query)
        except duckdb.BinderException:
            with self.connect() as cluster:
                self._bind(cluster, None)  # so that the error lists the columns that there are
        except Exception as error:
            raise self._said(error) from error
        try:
            return ask(self.query)
        except Exception as error:
            raise self._said(error) from error

    def _rows(self) -> Iterator[Sequence[Any]]:
        while True:
            try:
                some = interruptible(self.engine, lambda: self.engine.fetchmany(ROWS_AT_ONCE))
            except Exception as error:
                raise self._said(error) from error
            yield from some
            if not some:
                return

    def _said(self, error: Exception) -> BaseException:
        """Our own fault, where DuckDB has but its text; else what DuckDB found, which is mostly the user's."""
        fault = next((table.fault for table in self.tables if table.fault is not None), None)
        if fault is not None:
            return fault
        import duckdb

        if not isinstance(error, duckdb.Error):
            return error
        text = hint(str(error), self.query)
        if isinstance(error, duckdb.BinderException) and self.empty:
            text += f"; {', '.join(self.empty)} has no records yet from which fields could be known"
        return UsageError(text)

    # Binding

    def _bind(self, cluster: Cluster, columns: frozenset[str] | None) -> None:
        tables = [*self.statement.tables, *(TableName("", name + LATEST) for name in self.statement.called)]
        topics, hidden = self._topics_there(cluster, tables)
        views = read_views(cluster) if CATALOG in topics else {}
        for table in tables:
            target = target_of(table, topics, views, hidden)
            if target is None and table.name.removesuffix(LATEST) not in self.statement.local:
                topics = set(cluster.ask_metadata(None).topics)
                target = target_of(table, topics, views)
            if target is not None:
                if target.kind == TOPICS and {target.name, CATALOG} <= hidden:
                    what = f"topic {CATALOG!r}, which says whether {target.name} is a view,"
                    raise refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, what)
                self._bind_one(cluster, table, target, views, columns)
            elif (table.schema or table.name not in self.statement.local) and not self._knows(table):
                from tidelog.control.starting import check_not_coming

                check_not_coming(cluster, candidates(table)[0])
                files = f"; {FILES}" if LIKE_A_FILE.search(table.name) else ""
                raise UsageError(f"no topic or view {table}; {nearest(table, topics, views)}{files}")

    def _topics_there(self, cluster: Cluster, tables: Sequence[TableName]) -> tuple[set[str], set[str]]:
        """And those of which the broker tells this user nothing, not even whether they are there."""
        names = {name for table in tables for name in candidates(table) if _may_be_a_topic(name)}
        found = cluster.ask_metadata([*names, CATALOG]).topics
        catalog = {CATALOG} if found[CATALOG].error_code else set()
        hidden = {name for name, topic in found.items() if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        # One that has no leader now is there: reading it says what is wrong.
        there = {name for name, topic in found.items() if topic.error_code not in UNKNOWN_TOPIC} - hidden - catalog
        return there, hidden

    def _knows(self, table: TableName) -> bool:
        """Whether DuckDB itself has such a table, or could look for a file of that name."""
        if self.asking.external_access:
            return True
        known = "select 1 from duckdb_views() where lower(view_name) = lower(?)"
        return bool(self.engine.execute(known, [table.name]).fetchall())

    def _bind_one(
        self,
        cluster: Cluster,
        table: TableName,
        target: Target,
        views: dict[str, View],
        columns: frozenset[str] | None,
    ) -> None:
        if target.kind == VIEWS:
            from tidelog.sql.view import view_table
            from tidelog.views.stores.allowing import allowed_stores

            current = views[target.name].current
            assert current is not None
            check_readable(cluster, TopicPartition(current.topic, 0))  # who may not read it may not read the store
            allowed = self.asking.allowed or allowed_stores
            self._show(table, self._register(view_table(views[target.name], columns, allowed)), ("*",))
            return
        latest = target.latest or self.asking.latest
        limits = Limits() if latest else limits_of(self.statement, table, self._evaluate)
        topic = self.open(cluster, target.name, limits)
        wanted = tuple(name for name in topic.names if columns is None or name.lower() in columns) or ("offset",)
        read = tuple(name for name in topic.names if name in wanted or (latest and name in OF_LATEST))
        source = self._register(self.topic_table(topic, read))
        self._show(table, source, wanted, latest=latest)

    def open(self, cluster: Cluster, name: str, limits: Limits) -> TopicTable:
        """A WHERE says which rows are read, and not which columns there are: these are of all that was asked for."""
        from tidelog.sql.topic import open_topic

        asked, options = self.asking, self.asking.options
        past = find_span(cluster, name, start=asked.start, end=asked.end, committed=options.committed)
        span = past
        if limits != Limits():
            span = find_span(
                cluster, name, start=asked.start, end=asked.end, limits=limits, committed=options.committed
            )
        if past.is_empty:
            past = find_span(cluster, name, committed=options.committed)
        if past.is_empty:
            self.empty[name] = None
        return open_topic(cluster, span, options, past=past)

    def topic_table(self, topic: TopicTable, names: tuple[str, ...]) -> ArrowTable:
        self.topics.append((topic, names))
        connect = self.connect  # and not self: DuckDB would hold who holds it
        scan = self._scan(topic, names) if self._scan is not None else lambda: topic.batches(connect, names)
        return ArrowTable(topic.fields(names), scan)

    def _register(self, table: ArrowTable) -> str:
        name = f"_tidelog_{len(self.tables)}"
        self.tables.append(table)
        self.engine.register(name, table)
        return name

    def _show(self, table: TableName, source: str, names: Sequence[str], *, latest: bool = False) -> None:
        """The table under the name that the question has for it."""
        if "." in table.schema:
            raise UsageError(f'{table} has dots that SQL takes for its own; write the whole name in quotes: "{table}"')
        path = quoted(table.name)
        if table.schema:
            self.engine.execute(f"create schema if not exists {quoted(table.schema)}")
            path = f"{quoted(table.schema)}.{path}"
        columns = ", ".join(name if name == "*" else quoted(name) for name in names)
        filtered = latest_of(source) if latest else ""
        self.engine.execute(f"create or replace view {path} as select {columns} from {source}{filtered}")

    def _latest_macro(self) -> None:
        if self.statement.called:
            path = "'\"' || replace(topic, '\"', '\"\"') || '$latest\"'"
            self.engine.execute(f"create macro latest(topic) as table from query_table({path})")

    def _evaluate(self, expression: Node, column: str) -> int | None:
        """An expression without columns, as DuckDB has it."""
        if not is_steady(expression):
            return None
        template = json.loads(self.engine.execute("select json_serialize_sql('select 1')").fetchall()[0][0])
        template["statements"][0]["node"]["select_list"] = [expression]
        try:
            text = self.engine.execute("select json_deserialize_sql(?)", [json.dumps(template)]).fetchall()[0][0]
            asked = "select epoch_ms(cast((%s) as timestamp))" if column == "timestamp" else "select (%s)"
            value = self.engine.execute(asked % text.rstrip("; ")).fetchall()[0][0]
        except Exception:  # what cannot be evaluated narrows nothing; DuckDB will say what is wrong with it
            return None
        return value if isinstance(value, int) and not isinstance(value, bool) else None


def latest_of(source: str) -> str:
    """Of records with a key the last of each, unless that is a tombstone.

    Of each partition it is the last by offset, with the largest time that the key has there; and of these, where a key
    has moved between partitions, the largest by time and partition (as pipelines have it, `joins/places.py`).
    """
    time = """coalesce(max("timestamp"), make_timestamp_ms(0))"""
    ends = f'{{time: {time}, "partition": "partition", "offset": max("offset")}} as place'
    by_partition = f'select key, {ends} from {source} where key is not null group by key, "partition"'
    last = f"select max(place) as place from ({by_partition}) group by key"
    newest = f'select place."partition", place."offset" from ({last})'
    return f' where value is not null and ("partition", "offset") in ({newest})'


def new_engine(external_access: bool = False) -> DuckDBPyConnection:
    try:
        import duckdb
    except ImportError as error:
        raise UsageError(f"SQL needs DuckDB ({error}); pip install 'tidelog[sql]'") from None
    made = duckdb.connect(":memory:")
    made.execute("set TimeZone = 'UTC'")
    made.execute("set python_enable_replacements = false")
    if not external_access:
        made.execute("set autoinstall_known_extensions = false")
        made.execute("set autoload_known_extensions = false")
        made.execute("set enable_external_access = false")
        made.execute("set lock_configuration = true")
    return made


def parse(engine: DuckDBPyConnection, query: str) -> Statement:
    parsed = _parsed(engine, query)
    try:
        return read_statement(parsed)
    except UsageError as error:
        raise UsageError(hint(str(error), query, _mistaken(engine, query, parsed))) from None


def _parsed(engine: DuckDBPyConnection, query: str) -> dict[str, Any]:
    answered: dict[str, Any] = json.loads(engine.execute("select json_serialize_sql(?)", [query]).fetchall()[0][0])
    return answered


def _mistaken(engine: DuckDBPyConnection, query: str, parsed: dict[str, Any]) -> str | None:
    """A word of SQL that is a column here and has no quotes."""

    def fails(question: str) -> int | None:
        again = _parsed(engine, question)
        return int(again.get("position") or 0) if again.get("error") else None

    if not str(parsed.get("position", "")).isdigit():
        return None
    words = "select keyword_name from duckdb_keywords() where keyword_category in ('reserved', 'type_function')"
    reserved = (row[0] for row in engine.execute(words).fetchall())
    from tidelog.sql.words import mistaken_word

    return mistaken_word(query, int(parsed["position"]), reserved, fails)


def read_views(cluster: Cluster) -> dict[str, View]:
    """Those that have a generation to show."""
    from tidelog.control.catalog import View, read_catalog

    found = read_catalog(cluster).values()
    return {one.name: one for one in found if isinstance(one, View) and one.current is not None}


def list_tables(cluster: Cluster) -> list[tuple[str, str]]:
    """Kind and name of all there is; what is the broker's or Tidelog's own comes last."""
    topics = cluster.ask_metadata(None).topics
    views = read_views(cluster) if CATALOG in topics else {}
    named = [("view", name) for name in sorted(views)]
    listed = sorted(topics, key=lambda name: (name.startswith("_"), name))
    return named + [("topic", name) for name in listed]


def _may_be_a_topic(name: str) -> bool:
    return 0 < len(name) <= 249 and all(c.isascii() and (c.isalnum() or c in "._-") for c in name)
