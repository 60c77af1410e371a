"""`App`: streams, tables, derived topics and views, declared by small functions. Pure data: nothing runs at import.

    app = App("shop")
    orders = app.stream("orders", value="id long, product string, amount double")

    @app.view("revenue", key="product")
    def revenue(orders):
        return orders.groupBy("product").agg(F.sum("amount").alias("revenue"))

Rules:
- A parameter of a declared function names what it reads, as pytest's fixtures do: a stream, a table, a derived topic or
  a view, with `_` where the name has `-` or `.`. It gets a DataFrame; over history, a batch DataFrame.
- A parameter `questions` is what is put to this output while it runs (`views/asking.py`): it is given to an operator.
  Where something is declared by that name, it is that.
- A view may be SQL instead of a function (`sql_query.py`): then what it reads stands behind its FROM and JOIN.
- The decorated function stays what it was, so that tests call it with DataFrames of their own.
- What is declared knows the file and the line where it stands (`SourceLine`), and every error about it says so.
- What is declared twice is refused at once; what is read and not declared when the graph is made (`graph.py`), since
  it may be declared further down.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, overload

from tidelog.control.marks import LEGAL
from tidelog.control.urls import without_secret
from tidelog.errors import UsageError
from tidelog.pipelines.operators.durations import Duration, milliseconds
from tidelog.pipelines.sql_query import CHANGES, SqlFault, SqlQuery
from tidelog.schema.declaration import FEED_HORIZON_MS, check_name
from tidelog.views.stores.opening import checked

STREAM, TABLE, TOPIC, VIEW = "stream", "table", "topic", "view"
APPEND, UPDATE = MODES = ("append", "update")
QUESTIONS = "questions"
APP_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,49}")
TOPIC_LENGTH_MAX = 249
RECORD_COLUMNS = ("key", "topic", "partition", "offset", "timestamp")
RECORD_TIME = "timestamp"
ON_ERROR = ("fail", "null", "dead_letter")  # as `typed` has them
DECODING = ("format", "message", "references", "registry", "subject", "version", "id", "login_variable", "on_error")
OF_A_REGISTRY = {"registry", "login_variable"}  # what of them a captured table takes

Function = Callable[..., Any]
Declared = TypeVar("Declared", bound=Function)
Made = TypeVar("Made", "Input", "Output")
Names = str | Sequence[str]


class SourceLine(NamedTuple):
    """Where something is declared."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}"


class Time(NamedTuple):
    """What `event_time` is to be told of rows."""

    column: str
    lateness_ms: int
    idle_ms: int | None


@dataclass(frozen=True, slots=True)
class Input:
    """A stream or a table: a topic that somebody else writes."""

    kind: str
    name: str
    topic: str
    value: Any  # DDL, the text of a schema, a StructType; None where rows are the source's own
    place: SourceLine
    decoding: Mapping[str, Any] = field(default_factory=dict)  # what `typed` takes beside the schema
    key: tuple[str, ...] = ()
    time: Time | None = None
    versions: bool = False
    record: tuple[str, ...] = ()  # the source's columns to be had beside the value's
    start_from: str | None = None  # of a table that is a view: STORE#VIEW
    captured: bool = False  # its topic has envelopes of a database's table


@dataclass(frozen=True, slots=True)
class Output:
    """A derived topic or a view, and the function whose rows it has."""

    kind: str
    name: str
    function: Function
    place: SourceLine
    key: tuple[str, ...] = ()
    order: str | None = None
    stores: tuple[str, ...] = ()  # of a view; none: the app's default
    horizon_ms: int = FEED_HORIZON_MS
    partitions: int | None = None  # None: as many as the largest input has
    mode: str | None = None  # None: as the plan asks for
    time: Time | None = None  # for who reads it
    configs: Mapping[str, str] = field(default_factory=dict)  # of a derived topic

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(inspect.signature(self.function).parameters)


class App:
    """`bootstrap`, `checkpoints` and `store` are the weakest of all ways to say them: the command line, the environment
    (TIDELOG_BOOTSTRAP, ...) and `[app]` in tidelog.toml come first.
    """

    def __init__(
        self, name: str, *, bootstrap: str | None = None, checkpoints: str | None = None, store: str | None = None
    ) -> None:
        self.place = _here()
        if not APP_NAME.fullmatch(name):
            raise UsageError(
                f"{self.place}: {name!r} is not a valid app name; use a letter, then letters, digits, '_', '-'"
            )
        self.name = name
        self.bootstrap, self.checkpoints, self.store = bootstrap, checkpoints, store
        self.inputs: dict[str, Input] = {}  # by the name of a parameter
        self.outputs: dict[str, Output] = {}
        self.fingerprints: dict[str, Any] = {}  # the `Code` of outputs, as the graph found it (`graph.py`)

    def stream(
        self,
        name: str,
        *,
        value: Any = None,
        topic: str | None = None,
        event_time: str | None = None,
        watermark_delay: Duration | None = None,
        idle_after: Duration | None = None,
        record: Names = (),
        **decoding: Any,
    ) -> Input:
        """Rows of a topic, as they come. `value` says what their values are: columns as Spark writes them
        ("id long, at timestamp", for values in JSON), the text of a schema in Avro, Protobuf or JSON Schema, or, with
        `registry` and `subject`, what a schema registry has. Without it rows have the source's own columns.

        `event_time` is the column that says when a row happened ("timestamp" is the record's), `watermark_delay` how
        late rows may come, `idle_after` when a silent topic lets time go on. `record` names columns of the source to be
        kept.
        """
        here = _here()
        made = Input(
            STREAM,
            name,
            _topic(topic or name, here),
            value,
            here,
            _decoding(decoding, here, self.stream),
            time=_time(event_time, watermark_delay, idle_after, here),
            record=_record(record, here),
        )
        return self._add(self.inputs, made)

    def table(
        self,
        name: str,
        *,
        key: Names = (),
        value: Any = None,
        topic: str | None = None,
        captured: str | None = None,
        versions: bool = False,
        event_time: str | None = None,
        watermark_delay: Duration | None = None,
        idle_after: Duration | None = None,
        start_from: str | None = None,
        record: Names = (),
        **decoding: Any,
    ) -> Input:
        """A topic whose last record of a key stands for all before, and whose tombstones end keys: a changelog of the
        latest state. With `versions`, its records are versions, each from its event time on, for `enrich`; a column
        `_deleted` is true for one that ends its key, and `record` names columns of the source to be kept.

        With `start_from`, the URL of a store and `#` and a view's name, the table is that view: it begins with the rows
        of the store, and goes on with the view's topic from where the store is.

        With `captured`, the topic of a database's table (`shop.public.customers`), records are Debezium's envelopes, by
        a capture of ours or by a connector. Key and columns are the table's, unless `key` and `value` say less. Where
        its schemas are in a registry, `registry` is its address, and `login_variable` the variable that has the login.
        """
        here = _here()
        if captured is not None:
            plain = topic is None and not versions and start_from is None and decoding.keys() <= OF_A_REGISTRY
            _check_captured(name, here, plain=plain)
        elif value is None and not decoding:
            raise UsageError(f"{here}: table {name!r} does not say what its values are; give value=")
        if versions and event_time is None:
            raise UsageError(
                f"{here}: table {name!r} has versions, each from a time on; name its column by event_time="
            )
        if record and not versions:
            raise UsageError(
                f"{here}: table {name!r} has record={record!r}: that is for versions=True, where a row is one record"
            )
        made = Input(
            TABLE,
            name,
            _topic(captured or topic or _view_of(start_from, name), here),
            value,
            here,
            _decoding(decoding, here, self.table),
            key=_names(key) if captured is not None and not key else _key(key, f"table {name!r}", here),
            time=_time(event_time, watermark_delay, idle_after, here),
            versions=versions,
            record=_record(record, here),
            start_from=_start(start_from, here, plain=topic is None and not versions and not decoding),
            captured=captured is not None,
        )
        return self._add(self.inputs, made)

    def topic(
        self,
        name: str,
        *,
        key: Names = (),
        order: str | None = None,
        partitions: int | None = None,
        mode: str | None = None,
        event_time: str | None = None,
        watermark_delay: Duration | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> Callable[[Declared], Declared]:
        """A derived topic, written exactly once: each row as JSON, under its `key`; a changelog, and rows that replace
        each other, as upserts and tombstones by key. `event_time` and `watermark_delay` are for functions that read it.
        """
        here = _here()
        _check_called(name, TOPIC, here)

        def declare(function: Declared) -> Declared:
            made = Output(
                TOPIC,
                _topic(name, here),
                function,
                here,
                key=_names(key),
                order=order,
                partitions=_positive(partitions, here),
                mode=_mode(mode, here),
                time=_time(event_time, watermark_delay, None, here),
                configs=dict(configs or {}),
            )
            self._add(self.outputs, made)
            return function

        return declare

    @overload
    def view(
        self,
        name: str,
        *,
        key: Names = (),
        sql: str,
        store: str | None = None,
        stores: Sequence[str] = (),
        order: str | None = None,
        horizon: Duration | None = None,
        partitions: int | None = None,
        mode: str | None = None,
    ) -> SqlQuery: ...

    @overload
    def view(
        self,
        name: str,
        *,
        key: Names = (),
        sql: None = None,
        store: str | None = None,
        stores: Sequence[str] = (),
        order: str | None = None,
        horizon: Duration | None = None,
        partitions: int | None = None,
        mode: str | None = None,
    ) -> Callable[[Declared], Declared]: ...

    def view(
        self,
        name: str,
        *,
        key: Names = (),
        sql: str | None = None,
        store: str | None = None,
        stores: Sequence[str] = (),
        order: str | None = None,
        horizon: Duration | None = None,
        partitions: int | None = None,
        mode: str | None = None,
    ) -> Any:
        """A view: its rows by key, always up to date. `store` or `stores` are URLs, by default the app's own SQLite
        file. `order` names the column that says which of two rows of one key and micro-batch is the later one; of equal
        ones it is the one at the later offset.

        With `sql`, a query in Spark's SQL over streams and plain derived topics of the app, it is declared at once, and
        what comes back can be called with DataFrames, as a function can.
        """
        here = _here()
        _check_called(name, VIEW, here)
        if isinstance(stores, str):
            raise UsageError(
                f"{here}: stores of view {name!r} is one text, and a list is wanted; write store={stores!r}"
            )
        horizon_ms = FEED_HORIZON_MS if horizon is None else milliseconds(horizon, what="horizon")

        def declare(function: Declared) -> Declared:
            try:
                check_name(name)
            except UsageError as error:
                raise UsageError(f"{here}: {error}") from None
            made = Output(
                VIEW,
                name,
                function,
                here,
                key=_key(key, f"view {name!r}", here),
                order=order,
                stores=tuple(_url(one, here) for one in (*([store] if store else []), *stores)),
                horizon_ms=horizon_ms,
                partitions=_positive(partitions, here),
                mode=_mode(mode, here),
            )
            self._add(self.outputs, made)
            return function

        return declare if sql is None else declare(_query(sql, name, here))

    def _add(self, declared: dict[str, Made], made: Made) -> Made:
        name = parameter(made.name)
        other: Input | Output | None = self.inputs.get(name) or self.outputs.get(name)
        if other is not None:
            raise UsageError(
                f"{made.place}: {made.kind} {made.name!r} has the name of {other.kind} {other.name!r} at {other.place},"
                f" which parameters know as {name!r}; call one of them otherwise"
            )
        if isinstance(made, Output):
            _check_function(made)
        declared[name] = made
        return made


def parameter(name: str) -> str:
    """What a function calls it."""
    return re.sub(r"[-.]", "_", name)


def _here() -> SourceLine:
    """Of the nearest caller that is not in this file."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename == __file__ and frame.f_back is not None:
        frame = frame.f_back
    return SourceLine(frame.f_code.co_filename, frame.f_lineno)


def _query(sql: str, name: str, here: SourceLine) -> SqlQuery:
    if not isinstance(sql, str):
        raise UsageError(f"{here}: sql of view {name!r} is {sql!r}, and a text is wanted")
    try:
        return SqlQuery(sql, *here)
    except SqlFault as fault:
        raise UsageError(f"{fault.place}: view {name!r}: {fault}") from None


def check_sql(output: Output, reads: Sequence[Input | Output]) -> None:
    """SQL reads rows: what is known to have changes is refused before Spark is there."""
    query = output.function
    if not isinstance(query, SqlQuery):
        return
    for one in reads:
        if one.kind in (TABLE, VIEW):
            place = query.place_of(parameter(one.name))
            raise UsageError(
                f"{place}: view {output.name!r} reads {one.kind} {one.name!r}, which has changes: {CHANGES}"
            )


def _check_called(name: object, kind: str, here: SourceLine) -> None:
    """A decorator that is not called gets the function where a name is wanted, and would declare nothing."""
    if callable(name):
        called = getattr(name, "__name__", "NAME")
        raise UsageError(f'{here}: app.{kind} is given a function, and no name; write @app.{kind}("{called}", key=...)')


def _check_function(made: Output) -> None:
    if not callable(made.function):
        raise UsageError(
            f"{made.place}: {made.kind} {made.name!r} is not a function; decorate one that returns a DataFrame"
        )
    for one in inspect.signature(made.function).parameters.values():
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD, one.POSITIONAL_ONLY) or one.default is not one.empty:
            raise UsageError(
                f"{made.place}: parameter {one.name!r} of {made.kind} {made.name!r} names what it reads; write it as a"
                " plain name"
            )
    if not set(made.parameters) - (set() if isinstance(made.function, SqlQuery) else {QUESTIONS}):
        raise UsageError(f"{made.place}: {made.kind} {made.name!r} reads nothing; name a stream, a table or a view")


def _names(given: Names) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _key(given: Names, what: str, here: SourceLine) -> tuple[str, ...]:
    names = _names(given)
    if not all(names) or not names:
        raise UsageError(f'{here}: {what} has no key; name the columns that identify a row, as key="id"')
    if len(set(names)) != len(names):
        raise UsageError(f"{here}: {what} has the key {names!r}; name the columns that identify a row, each once")
    return names


def _topic(name: str, here: SourceLine) -> str:
    if 0 < len(name) <= TOPIC_LENGTH_MAX and LEGAL.issuperset(name) and name not in (".", ".."):
        return name
    raise UsageError(f"{here}: {name!r} is not a valid topic name; use letters, digits, '.', '_' and '-'")


def _check_captured(name: str, here: SourceLine, *, plain: bool) -> None:
    if not plain:
        raise UsageError(
            f"{here}: table {name!r} is captured: its topic and its format are the capture's, and a change that comes"
            " replaces the row before; topic=, versions=True, start_from= and another format are not for it"
        )


def _view_of(start_from: str | None, name: str) -> str:
    return (start_from or "").partition("#")[2] or name


def _start(given: str | None, here: SourceLine, *, plain: bool) -> str | None:
    if given is not None and not plain:
        raise UsageError(
            f"{here}: start_from says that the table is a view; topic=, versions=True and another format are not for it"
        )
    return None if given is None else _url(given, here, store=given.partition("#")[0])


def _url(given: str, here: SourceLine, store: str | None = None) -> str:
    """`store`: the part of it by which a store is opened."""
    try:
        without_secret(given)
        checked(given if store is None else store)
    except UsageError as error:
        raise UsageError(f"{here}: {error}") from None
    return given


def _decoding(given: Mapping[str, Any], here: SourceLine, declare: Callable[..., Input]) -> Mapping[str, Any]:
    """What `declare` takes for `typed`; the names of what it takes besides are near, too."""
    if unknown := [name for name in given if name not in DECODING]:
        known = sorted({*DECODING, *(getattr(declare, "__kwdefaults__", None) or ())})
        close = get_close_matches(unknown[0], known, n=1)
        advice = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
        raise UsageError(f"{here}: app.{declare.__name__} has no argument {unknown[0]!r}; {advice}")
    on_error = given.get("on_error", ON_ERROR[0])
    if on_error not in ON_ERROR:
        raise UsageError(f"{here}: on_error is {on_error!r}; it is {' or '.join(ON_ERROR)}")
    return given


def _record(given: Names, here: SourceLine) -> tuple[str, ...]:
    names = _names(given)
    if unknown := [name for name in names if name not in RECORD_COLUMNS]:
        raise UsageError(f"{here}: a record has no {unknown[0]!r}; it has {', '.join(RECORD_COLUMNS)}")
    return names


def _time(column: str | None, watermark_delay: Duration | None, idle: Duration | None, here: SourceLine) -> Time | None:
    if column is None and (watermark_delay is not None or idle is not None):
        raise UsageError(f"{here}: watermark_delay and idle_after need an event time; name its column by event_time=")
    if column is None:
        return None
    try:
        late = milliseconds(watermark_delay if watermark_delay is not None else "0 seconds", what="watermark_delay")
        return Time(column, late, None if idle is None else milliseconds(idle, what="idle_after"))
    except UsageError as error:
        raise UsageError(f"{here}: {error}") from None


def _positive(partitions: int | None, here: SourceLine) -> int | None:
    if partitions is not None and partitions < 1:
        raise UsageError(f"{here}: partitions is {partitions}; a topic has at least 1")
    return partitions


def _mode(mode: str | None, here: SourceLine) -> str | None:
    if mode is not None and mode not in MODES:
        raise UsageError(f"{here}: mode is {mode!r}; it is {' or '.join(MODES)}")
    return mode
