"""Events become records of one transaction of the log. It knows topics, shapes and counts, and decides nothing else.

    table record     before the first row of a shape that the log does not know yet
    row              `envelope.py`, to the partition of its key
    too large        an error that names table, key and size; or a dead letter, where a topic for those was chosen
    BEGIN, END       around a transaction's rows, where transaction metadata are asked for

Rules:
- What it knows of the open transaction (counts by table) follows the events, written or passed over (`count`), so that
  after a restart in the middle of one the numbers go on.
- Rows of a partition go out in their order.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from tidelog.capture import envelope, notices, topics
from tidelog.capture.change import (
    READ,
    TRUNCATE,
    UPDATE,
    Begin,
    Commit,
    Event,
    Idle,
    Message,
    RowChange,
    SchemaChange,
    SourceTable,
    Values,
)
from tidelog.capture.converting import Converter
from tidelog.capture.envelope import EnvelopeShape, Headers, Record, Times
from tidelog.capture.outbox import Outbox
from tidelog.capture.source import ChangeSource
from tidelog.capture.topics import BATCH_OVERHEAD, CapturedTopics
from tidelog.client.metadata import TopicPartition
from tidelog.control import dead_letters
from tidelog.control.captures import CAPTURES, REPLACED, UNREAD, CapturedTable, encode_table
from tidelog.control.owner import Outgoing
from tidelog.errors import UsageError

NO_TRANSACTION = Begin("", 0)
MESSAGES = SourceTable("", "", (), ())
WATERMARK = "tidelog.watermark"
Sent = tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]], int]

NO_KEY, NO_KEY_WITH_SCHEMAS = b"null", b'{"schema":null,"payload":null}'
LETTER_MAX = 64 << 20  # a letter above it has no value, only what its headers tell
SHOWN_KEY = 200
NOT_TOLD = (
    "%s was truncated, or is read again, which `--envelope row` cannot tell: rows that are gone stay in topic %s;"
    " capture by the envelope `debezium`, or delete the topic, and begin again by `tidelog capture remove`"
)

log = logging.getLogger(__name__)


class Choices(NamedTuple):
    """What a user chose beyond the envelope."""

    name: str
    transactions: bool = False
    schema_changes: bool = False
    dead_letters: str | None = None
    outbox: Outbox | None = None


class TableTarget(NamedTuple):
    """Where the rows of a table go."""

    shape: EnvelopeShape
    topic: str
    places: Sequence[TopicPartition]
    largest: int


class CaptureWriter:
    def __init__(
        self,
        source: ChangeSource,
        options: envelope.EnvelopeOptions,
        choices: Choices,
        made: CapturedTopics,
        known: dict[str, CapturedTable],
        converter: Converter | None = None,
    ) -> None:
        self._source, self._options, self._choices, self._topics = source, options, choices, made
        self._known = dict(known)
        _check_format(known, options)
        self._converter = converter
        self._schemas = options.schemas or converter is not None  # in what `_notice` takes
        self._targets: dict[SourceTable, TableTarget] = {}
        self._outbox = choices.outbox
        self._begin = NO_TRANSACTION
        self._counts: dict[str, int] = {}
        self._total = 0
        self._where: Any = None  # of the last row: what a change of schema is told with
        self._out: dict[TopicPartition, list[Sent]] = {}
        self._now_ms = 0
        self.rows = self.size = self.letters = 0

    # Events of the stream ---------------------------------------------------------------------------------------------

    def count(self, events: Iterable[Event]) -> None:
        """Events that are stored already."""
        for event in events:
            if isinstance(event, Begin):
                self._begun(event)
            elif isinstance(event, RowChange) and not self._is_routed(event.table):
                moved = event.op == UPDATE and self._is_moved(event)
                self._block(event.table)() if not moved else [self._block(event.table)() for _ in range(2)]

    def write(self, outgoing: Outgoing, events: Sequence[Event], now_ns: int, *, resumed: str | None = None) -> None:
        """`resumed` is the transaction whose BEGIN is stored."""
        self._now_ms, times = now_ns // 1_000_000, Times.at(now_ns).text
        if self._begin.id == "":
            self._begin = Begin("", now_ns // 1000)  # of rows between transactions
        for event in events:
            if type(event) is RowChange:
                self._row(event, times)
            else:
                self._other(event, resumed)
        self._flush(outgoing)

    def _row(self, row: RowChange, times: str) -> None:
        if self._is_routed(row.table):
            self._routed(row)
            return
        target = self._targets.get(row.table) or self.target(row.table, streamed=True)
        read = row.op == READ
        self._where = row.where
        source = self._source.source_block(row, self._begin, "incremental" if read else "false", self._options.prefix)
        outside = read or not self._begin.id  # of the source's transactions
        block = _null if outside or not self._choices.transactions else self._block(row.table)
        made = envelope.records(target.shape, row.op, row.before, row.after, source, block, times)
        if row.op == TRUNCATE:
            if target.shape.flat:
                log.warning(NOT_TOLD, row.table.full_name, target.topic)
            if self._topics.is_compacted(target.topic):
                made = [(self._key_of_truncate(target), value, headers) for _, value, headers in made]
            for at in target.places:
                self._put(at, made)
        else:
            self._place(target, made)

    def _key_of_truncate(self, target: TableTarget) -> bytes:
        if self._converter is not None:
            raise UsageError(
                f"{target.shape.table.full_name} was truncated, and its topic {target.topic} is compacted, where every"
                " record has a key; a truncate has none in a registry's format:"
                f" `tidelog configs alter topic {target.topic} --set cleanup.policy=delete`"
            )
        return NO_KEY_WITH_SCHEMAS if self._options.schemas else NO_KEY

    def has_records(self, table: SourceTable) -> bool:
        """Whether somebody has written to its topic before."""
        return self._topics.has_records(self.target(table).topic)

    def _other(self, event: Event, resumed: str | None) -> None:
        if isinstance(event, Begin):
            self._begun(event)
            if self._choices.transactions and event.id != resumed:
                self._notice(
                    topics.of_transactions(self._options.prefix),
                    notices.begin(event.id, self._ms(event.commit_us), schemas=self._schemas),
                )
        elif isinstance(event, Commit):
            if self._choices.transactions:
                ended = notices.end(self._begin.id, self._counts, self._ms(event.commit_us), schemas=self._schemas)
                self._notice(topics.of_transactions(self._options.prefix), ended)
            self._begin = NO_TRANSACTION
        elif isinstance(event, Message):
            self._message(event)
        elif isinstance(event, SchemaChange):
            self._schema_change(event)
        else:
            assert isinstance(event, Idle), "no other event exists"

    def _begun(self, event: Begin) -> None:
        self._begin, self._counts, self._total = event, {}, 0

    def _is_moved(self, row: RowChange) -> bool:
        target = self._targets.get(row.table) or self.target(row.table, streamed=True)
        if row.before is None or row.after is None or not target.shape.has_key:
            return False
        return target.shape.key(row.before) != target.shape.key(row.after)

    def _block(self, table: SourceTable) -> Callable[[], str]:
        """Counts one event, and gives its `transaction` block."""

        def block() -> str:
            self._total += 1
            order = self._counts[table.full_name] = self._counts.get(table.full_name, 0) + 1
            id = envelope.compact(self._begin.id)
            return f'{{"id":{id},"total_order":{self._total},"data_collection_order":{order}}}'

        return block

    # Rows of a snapshot -----------------------------------------------------------------------------------------------

    def write_snapshot(self, outgoing: Outgoing, rows: Iterable[tuple[SourceTable, Values, str]], now_ns: int) -> None:
        """Rows with Debezium's word for where in the snapshot each stands."""
        self._now_ms, times = now_ns // 1_000_000, Times.at(now_ns).text
        begin = Begin("", now_ns // 1000)
        for table, values, word in rows:
            row = RowChange(table, READ, None, values)
            if self._is_routed(table):
                self._routed(row)
                continue
            target = self._targets.get(table) or self.target(table)
            source = self._source.source_block(row, begin, word, self._options.prefix)
            self._place(target, envelope.records(target.shape, READ, None, values, source, _null, times))
        self._flush(outgoing)

    # Beside rows ------------------------------------------------------------------------------------------------------

    def target(self, table: SourceTable, *, streamed: bool = False) -> TableTarget:
        """Of a table, with its record where the log does not have that yet. `streamed`: a change has told of it, and
        nobody has looked yet whether rows of before are to be read."""
        known = self._targets.get(table)
        if known is not None and (streamed or self._known[table.full_name].id == table.id):
            return known
        topic = topics.of_table(self._options.prefix, table.full_name)
        self._topics.claim(topic, table.full_name)
        encode = None if self._converter is None else partial(self._converter.encode, topic)
        shape = EnvelopeShape(table, self._options, self._source.source_schema, encode)
        target = TableTarget(shape, topic, self._topics.places(topic), self._topics.largest(topic))
        columns = tuple(
            {"name": one.name, "connect": dict(one.connect), "declared": one.declared} for one in shape.columns
        )
        told = CapturedTable(
            self._choices.name,
            table.full_name,
            topic,
            self._source.connector,
            columns,
            shape.key_names,
            self._options.envelope,
            self._options.schemas,
            self._options.format,
            "" if self._converter is None else self._converter.registry.url,
            id_of(table, shape.key_names, self._known.get(table.full_name)) if streamed else table.id,
        )
        self._keep(told)
        self._targets = {one: kept for one, kept in self._targets.items() if one.full_name != table.full_name}
        self._targets[table] = target
        return target

    def _keep(self, told: CapturedTable) -> None:
        if self._known.get(told.table) != told:
            self._put(CAPTURES, [(*encode_table(told), ())])
            self._known[told.table] = told

    @property
    def known(self) -> dict[str, str]:
        """Tables that the log has, each with its id."""
        return {name: one.id for name, one in self._known.items()}

    @property
    def topics(self) -> set[str]:
        """Of tables."""
        return {target.topic for target in self._targets.values()}

    def _message(self, event: Message) -> None:
        self._where = event.where
        if event.prefix == WATERMARK:
            return
        source = self._source.source_block(
            RowChange(MESSAGES, "m", None, None, event.where), self._begin, "false", self._options.prefix
        )
        made = notices.message(
            self._source.connector,
            self._source.source_schema,
            event.prefix,
            event.content,
            source,
            "null",
            self._now_ms,
            schemas=self._schemas,
        )
        self._notice(
            topics.of_messages(self._options.prefix), made, f"a logical message of {event.prefix[:SHOWN_KEY]!r}"
        )

    def _schema_change(self, event: SchemaChange) -> None:
        if event.table is not None:
            self.target(event.table, streamed=True)
        for name, one in self._known.items() if event.replaced else ():
            if any(name == each or (each.endswith(".") and name.startswith(each)) for each in event.replaced):
                self._keep(replace(one, id=REPLACED))
        if self._choices.schema_changes:
            row = RowChange(event.table or MESSAGES, "m", None, None, self._where)
            known = self._where is not None
            source = self._source.source_block(row, self._begin, "false", self._options.prefix) if known else "null"
            database = event.database or self._source.database
            table = None if event.table is None else self._shown(event.table)
            ddl = None if self._hides(event) else event.ddl
            made = notices.schema_change(database, event.schema, ddl, table, source, self._now_ms)
            self._notice(topics.of_schema_changes(self._options.prefix), made, told_with_schemas=False)

    def _hides(self, event: SchemaChange) -> bool:
        """Whether the statement's text may have something of a column that nobody is to see: its name, a default, a
        bound of a partition. It changes a table with such a column, or has the name of one."""
        tables = {*event.replaced, *(() if event.table is None else (event.table.full_name,))}
        text = (event.ddl or "").replace("``", "`").casefold()
        hidden = [name.rpartition(".") for name in self._options.excluded | self._options.masked]
        return any(
            table in tables or re.search(rf"(?<![\w$]){re.escape(column.casefold())}(?![\w$])", text)
            for table, _, column in hidden
        )

    def _shown(self, table: SourceTable) -> SourceTable:
        """Without the columns that are left out."""
        return replace(table, columns=self.target(table, streamed=True).shape.columns)

    def heartbeat(self, outgoing: Outgoing, now_ms: int) -> None:
        self._now_ms = now_ms
        made = notices.heartbeat(self._options.prefix, now_ms, schemas=self._schemas)
        self._notice(topics.of_heartbeats(self._options.prefix), made)
        self._flush(outgoing)

    def _notice(
        self, topic: str, made: notices.Pair, what: str = "a notice", *, told_with_schemas: bool = True
    ) -> None:
        (at, *_) = self._topics.places(topic, single=True)
        if self._converter is not None and told_with_schemas:
            made = self._converter.pair(topic, *made)
        self._put_if_small(what, at, *made)

    def _is_routed(self, table: SourceTable) -> bool:
        return self._outbox is not None and self._outbox.is_for(table)

    def _routed(self, row: RowChange) -> None:
        assert self._outbox is not None, "it is routed"
        found = self._outbox.route(row)
        if found is not None:
            topic, key, value, headers = found
            self._put_if_small(f"a row of {row.table.full_name}", self._topics.place(topic, key), key, value, headers)

    # Out --------------------------------------------------------------------------------------------------------------

    def _place(self, target: TableTarget, made: Sequence[Record]) -> None:
        _, topic, places, largest = target
        for key, value, headers in made:
            size = (0 if value is None else len(value)) + (0 if key is None else len(key))
            if headers:
                size += topics.size_of(headers)
            if value is not None and size + BATCH_OVERHEAD > largest:
                self._too_large(f"a row of {target.shape.table.full_name}", topic, key, value, headers)
                continue
            at = places[0] if len(places) == 1 else self._topics.place(topic, key)
            rows = self._out.get(at)
            if rows is None:
                rows = self._out[at] = []
            rows.append((key, value, headers, self._now_ms))
            self.size += size
            self.rows += 1

    def _put(self, at: TopicPartition, made: Iterable[Record]) -> None:
        rows = self._out.get(at)
        if rows is None:
            rows = self._out[at] = []
        for key, value, headers in made:
            rows.append((key, value, headers, self._now_ms))
            self.size += len(value or b"") + len(key or b"")
            self.rows += 1

    def _put_if_small(
        self, what: str, at: TopicPartition, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> None:
        size = len(key or b"") + len(value or b"") + topics.size_of(headers)
        if value is not None and size + BATCH_OVERHEAD > self._topics.largest(at.topic):
            self._too_large(what, at.topic, key, value, headers)
        else:
            self._put(at, [(key, value, headers)])

    def _too_large(self, what: str, topic: str, key: bytes | None, value: bytes, headers: Headers) -> None:
        shown = "-" if key is None else key[:SHOWN_KEY].decode(errors="replace")
        message = (
            f"{what} with key {shown} is a record of {len(value)} bytes, and topic {topic} takes"
            f" {self._topics.largest(topic)} (max.message.bytes)"
        )
        if self._choices.dead_letters is None:
            raise UsageError(
                f"{message}; raise it by `tidelog configs alter topic {topic} --set max.message.bytes=N`, leave"
                " the large column out by --exclude, or choose a topic for such rows by --dead-letters"
            )
        place = {"topic": topic, "partition": self._topics.place(topic, key).partition}
        error = dead_letters.told_of_error("TASK_PUT", "tidelog.capture", "tidelog.errors.UsageError")
        settings = {"retention.ms": "-1", "max.message.bytes": str(LETTER_MAX + BATCH_OVERHEAD)}
        (at, *_) = self._topics.places(self._choices.dead_letters, single=True, settings=settings)
        told = [*headers, *dead_letters.headers(place, error, message)]
        size = len(value) + len(key or b"") + topics.size_of(told)
        fits = size + BATCH_OVERHEAD <= self._topics.largest(self._choices.dead_letters)
        self._put(at, [(key, value if fits else None, told)])
        self.letters += 1

    def _flush(self, outgoing: Outgoing) -> None:
        out, self._out = self._out, {}
        for at, rows in out.items():
            if at == CAPTURES:
                outgoing.send(at, rows)
        for at, rows in out.items():
            if at != CAPTURES:
                outgoing.send(at, rows)

    def _ms(self, us: int) -> int:
        return us // 1000 if us else self._now_ms


def _check_format(known: Mapping[str, CapturedTable], options: envelope.EnvelopeOptions) -> None:
    """A topic has one format: nobody could read two."""
    for one in known.values():
        if one.format != options.format and one.topic == topics.of_table(options.prefix, one.table):
            raise UsageError(
                f"{one.topic} has records as {one.format}, and this capture is told to write {options.format}: nobody"
                " could read both; go on with that format, or capture with another --prefix"
            )


def id_of(table: SourceTable, key: Sequence[str], before: CapturedTable | None) -> str:
    """Of a table that a change was told of. That of another one stays, so that the next look finds out."""
    if before is None:
        return UNREAD if table.id else ""
    if before.key != tuple(key):
        return REPLACED
    return before.id or table.id


def _null() -> str:
    return "null"
