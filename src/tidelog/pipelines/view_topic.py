"""What a micro-batch's rows become on a topic: envelopes by key for a view, rows, upserts and tombstones for a derived
topic. All of it is Spark's own expressions, in the JVM: no row passes through Python before the sink encodes it.

    a result is      told by                         a view's topic gets, per key and micro-batch
    changelog        columns _op and _seq            first before, last after; nothing where they are equal
    update           a native aggregate in the plan  before null, op u: Spark does not tell what was before
    rows             anything else                   the same; of two rows of one key the last by `order`, and of equal
                                                     ones the last by offset; where there is no `order`, the one that
                                                     was read later, and it is refused where nobody can tell that
                                                     (`collisions.py`)

Rules:
- One envelope a key and micro-batch, key = JSON of the key's columns; after a delete a tombstone, in this order.
- All rows of a key meet in one task (they are grouped by it), in the order of `_seq` or `order`; there is no order
  between tasks, and none is needed: what a topic's partition gets of a key is at most those two records.
- A row whose key is null is no row of a view. One whose `order` is null comes before all others of its key.
- A column `_deleted`, where it is true, ends the key; the column itself is not part of the view.
- A changelog that has two rows of one key at once has another key: refused.
- So is a view's date or time beyond the years 1 to 9999: on the topic it would stop every applier and feed for good.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tidelog.control.derived import GENERATION_HEADER
from tidelog.errors import UsageError
from tidelog.pipelines.app import APPEND, UPDATE, VIEW, Output
from tidelog.pipelines.envelopes import HEAD, NULL, THEN_AFTER, THEN_OP, TWO_ROWS, UNKNOWN_OP, Source, not_a_key
from tidelog.pipelines.operators.changelog import ADDITIONS, DELETED, OP, RETRACTIONS, SEQ
from tidelog.pipelines.operators.state.questions import ANSWER, BESIDE, QUESTION
from tidelog.schema.column_types import JSON, KINDS, OF_SPARK, STRING
from tidelog.schema.declaration import Declaration, declare
from tidelog.views.changes import CREATE, DELETE
from tidelog.views.changes import UPDATE as CHANGED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

CHANGELOG, AGGREGATE, ROWS = "changelog", "aggregate", "rows"
AS_READ = "rows as read"  # plain rows of which the one that was read later counts (`collisions.py`)
STATEFUL = ("Join", "Deduplicate", "TransformWithState", "FlatMapGroups")  # how names of such operators begin
AGGREGATES = ("Aggregate", "Distinct")
WATERMARK = "EventTimeWatermark"

VIEW_TYPES = {"void": STRING, "variant": JSON} | {word: KINDS[kind].view for word, kind in OF_SPARK.items()}
MICROSECONDS = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"
AS_JSON = {
    "timeZone": "UTC",
    "timestampFormat": MICROSECONDS,
    "timestampNTZFormat": MICROSECONDS,
    "ignoreNullFields": "false",
}
YEARS = {  # the first moment that a view can tell, and the first that it cannot
    "date": ("date'0001-01-01'", "date'+10000-01-01'"),
    "timestamp": ("timestamp_ltz'0001-01-01 00:00:00Z'", "timestamp_ltz'+10000-01-01 00:00:00Z'"),
    "timestamp_ntz": ("timestamp_ntz'0001-01-01 00:00:00'", "timestamp_ntz'+10000-01-01 00:00:00'"),
}
FIRST, LAST, COUNT, OPENED, SUM = "_tidelog_first", "_tidelog_last", "_tidelog_count", "_tidelog_opened", "_tidelog_sum"
BEFORE, AFTER, ROW = "_tidelog_before", "_tidelog_after", "_tidelog_row"
KEY = "key"


# Before a query starts ------------------------------------------------------------------------------------------------


def kind_of(frame: DataFrame) -> str:
    if OP in frame.columns or SEQ in frame.columns:
        if missing := [name for name in (OP, SEQ) if name not in frame.columns]:
            raise UsageError(f"a changelog has {OP} and {SEQ}, and this has no {missing[0]}; select both, or neither")
        return CHANGELOG
    return AGGREGATE if frame.isStreaming and _is_aggregate(frame._jdf.queryExecution().analyzed()) else ROWS


def mode_of(output: Output, frame: DataFrame) -> str:
    """Spark's output mode."""
    return output.mode or (UPDATE if kind_of(frame) == AGGREGATE else APPEND)


def is_keyed(output: Output, frame: DataFrame) -> bool:
    """Whether rows of a derived topic replace each other by key."""
    return bool(output.key) and (kind_of(frame) != ROWS or DELETED in frame.columns or output.order is not None)


def check_result(output: Output, frame: DataFrame) -> None:
    """Refuses what cannot be written, before anything runs."""
    where = f"{output.place}: {output.kind} {output.name!r}"
    if missing := [name for name in (*output.key, *filter(None, [output.order])) if name not in frame.columns]:
        raise UsageError(f"{where} has no column {missing[0]!r}; columns are {', '.join(frame.columns)}")
    if output.kind != VIEW and not output.key and kind_of(frame) != ROWS:
        raise UsageError(f"{where} has rows that replace each other; name its key by key=")


def declaration_of(output: Output, schema: StructType) -> Declaration:
    columns = {}
    for field in schema.fields:
        if field.name in (OP, SEQ, DELETED, *BESIDE):
            continue
        kind = VIEW_TYPES.get(field.dataType.typeName())
        if not kind:
            raise UsageError(
                f"{output.place}: column {field.name!r} of view {output.name!r} is {field.dataType.simpleString()},"
                f" which no view can have; cast it"
            )
        columns[field.name] = kind
    try:
        return declare(columns, output.key, output.horizon_ms)
    except UsageError as error:
        raise UsageError(f"{output.place}: view {output.name!r}: {error}") from None


def _is_aggregate(plan: Any) -> bool:
    """Whether the result is a native aggregate's: no other operator with state stands behind it."""
    for node in _from_the_top(plan):
        name = str(node.nodeName())
        if name in AGGREGATES:
            return bool(node.isStreaming())
        if name.startswith(STATEFUL) and node.isStreaming():
            return False
    return False


def is_grouped_by(frame: DataFrame, key: Sequence[str]) -> bool:
    """Whether `key` are the columns that a native aggregate groups by, under any name, so that each has one row."""
    plan: Any = frame._jdf.queryExecution().analyzed()
    wanted = {frame.columns.index(name) for name in key}
    ids: set[str | None] = {id_of(plan.output().apply(place)) for place in wanted}
    while str(plan.nodeName()) not in AGGREGATES:
        if str(plan.nodeName()) == "Project":
            ids = {origin_of(one) for one in items_of(plan.projectList()) if id_of(one) in ids}
            if None in ids:
                return False
        if plan.children().size() != 1:
            return False
        plan = plan.children().apply(0)
    if str(plan.nodeName()) != "Aggregate":
        return False
    keyed = [_bare(one) for one in items_of(plan.aggregateExpressions()) if id_of(one) in ids]
    grouped = [_bare(one) for one in items_of(plan.groupingExpressions())]
    found = [[place for place, one in enumerate(grouped) if one.semanticEquals(other)] for other in keyed]
    covered = {place for each in found for place in each}
    return len(keyed) == len(ids) and all(found) and covered == set(range(len(grouped)))


def _bare(named: Any) -> Any:
    """What is computed, without the name that it is given."""
    return named.child() if str(named.getClass().getSimpleName()) == "Alias" else named


def origin_of(named: Any) -> str | None:
    """Of a column: which it is, where it only has another name; None where it is computed."""
    inner = _bare(named)
    return id_of(inner) if str(inner.getClass().getSimpleName()) == "AttributeReference" else None


def id_of(named: Any) -> str:
    return str(named.exprId().toString())


def items_of(sequence: Any) -> list[Any]:
    return [sequence.apply(place) for place in range(sequence.size())]


def keeps_state(frame: DataFrame) -> bool:
    """Whether a query of this stream has state in its checkpoint, whose form rests on the plan."""
    nodes = _from_the_top(frame._jdf.queryExecution().analyzed())
    return any(is_stateful(node) for node in nodes)


def is_stateful(node: Any) -> bool:
    """Whether this operator of a plan keeps state."""
    return str(node.nodeName()).startswith((*AGGREGATES, *STATEFUL)) and bool(node.isStreaming())


def holds_back(frame: DataFrame) -> bool:
    """Whether a query of this stream may keep rows until its watermark has come to them."""
    nodes = _from_the_top(frame._jdf.queryExecution().analyzed())
    return keeps_state(frame) and any(str(node.nodeName()) == WATERMARK for node in nodes)


def held_by(frame: DataFrame, mode: str) -> tuple[str, ...]:
    """How names of Spark's own operators begin, in what it tells of them, that put out rows when the watermark has come
    to them: aggregates in append mode, and joins that wait until no match can come.
    """
    if mode != APPEND or not holds_back(frame):
        return ()
    joins = [node for node in _from_the_top(frame._jdf.queryExecution().analyzed()) if str(node.nodeName()) == "Join"]
    outer = any("Outer" in str(node.joinType()) for node in joins if node.isStreaming())
    return ("stateStoreSave", "sessionWindowStateStoreSave", *(("symmetricHashJoin",) if outer else ()))


def _from_the_top(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for place in range(children.size()):
        yield from _from_the_top(children.apply(place))


# In a micro-batch -----------------------------------------------------------------------------------------------------


def envelopes(rows: DataFrame, kind: str, declared: Declaration, order: str | None, source: Source) -> DataFrame:
    """Columns key and value, in the order in which a task is to write them."""
    from pyspark.sql import functions as F

    names = [column.name for column in declared.columns]
    net = _net(within_years(rows, declared), kind, declared.key, names, order)
    key, before, after = F.struct(*_columns(declared.key)), F.col(BEFORE), F.col(AFTER)
    texts = net.select(*(as_json(one).alias(name) for one, name in ((key, KEY), (before, BEFORE), (after, AFTER))))
    return enveloped(texts, F.col(KEY), kind, source.tail(int(time.time() * 1000)))


def enveloped(net: DataFrame, key: Column, kind: str, tail: str) -> DataFrame:
    """One record or two for each change, whose `before` and `after` are JSON. An envelope is put together as text: the
    time and the number of the micro-batch, as numbers, would stand in the source of what Spark compiles, and each
    micro-batch would compile it anew. Texts are handed to it.
    """
    from pyspark.sql import functions as F

    before, after = F.col(BEFORE), F.col(AFTER)
    if kind == CHANGELOG:
        net = net.where(~before.eqNullSafe(after))
        op = F.when(after.isNull(), DELETE).when(before.isNull(), CREATE).otherwise(CHANGED)
    else:
        op = F.when(after.isNull(), DELETE).otherwise(CHANGED)
    null = F.lit(NULL)
    parts = (F.lit(HEAD), F.coalesce(before, null), F.lit(THEN_AFTER), F.coalesce(after, null), F.lit(THEN_OP), op)
    envelope = F.concat(*parts, F.lit(tail))
    values = F.when(after.isNull(), F.array(envelope, F.lit(None).cast("string"))).otherwise(F.array(envelope))
    return net.select(key.alias(KEY), F.explode(values).alias("value"))


def upserts(rows: DataFrame, kind: str, key: Sequence[str], order: str | None) -> DataFrame:
    """Of a derived topic: the row by key, or a tombstone."""
    from pyspark.sql import functions as F

    names = [name for name in rows.columns if name not in (OP, SEQ, DELETED)]
    net = _net(rows, kind, key, names, order)
    if kind == CHANGELOG:
        net = net.where(~as_json(F.col(BEFORE)).eqNullSafe(as_json(F.col(AFTER))))
    return net.select(_text_key(net, key).alias("key"), as_json(F.col(AFTER)).alias("value"))


def plain(rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """Of a derived topic: each row as it is."""
    from pyspark.sql import functions as F

    value = as_json(F.struct(*(as_told(rows, name) for name in rows.columns)))
    return rows.select(*([_text_key(rows, key).alias("key")] if key else []), value.alias("value"))


def of_generation(records: DataFrame, number: int) -> DataFrame:
    """Of a derived topic: each with a header that says of which generation it is."""
    from pyspark.sql import functions as F

    value = F.lit(str(number)).cast("binary")
    header = F.struct(F.lit(GENERATION_HEADER).alias("key"), value.alias("value"))
    return records.withColumn("headers", F.array(header))


def replies(rows: DataFrame, topic: str) -> DataFrame:
    """Answers to questions, under the id of each; columns key, value and topic."""
    from pyspark.sql import functions as F

    answers = rows.where(f"{QUESTION} is not null")
    return answers.select(F.col(QUESTION).alias("key"), F.col(ANSWER).alias("value"), F.lit(topic).alias("topic"))


def results(rows: DataFrame) -> DataFrame:
    """What is no answer."""
    return rows.where(f"{QUESTION} is null").drop(*BESIDE)


def _net(rows: DataFrame, kind: str, key: Sequence[str], names: Sequence[str], order: str | None) -> DataFrame:
    """One row a key: the key's columns, `before` and `after`, as structs of what is to be said, or null."""
    from pyspark.sql import functions as F

    keyed = rows.where(" and ".join(f"`{name}` is not null" for name in key))
    if kind == CHANGELOG:
        return _net_changelog(keyed, key, names)
    gone = F.coalesce(F.col(DELETED).cast("boolean"), F.lit(False)) if DELETED in rows.columns else F.lit(False)
    row = F.when(~gone, F.struct(*(as_told(rows, name) for name in names)))
    # In a struct: `max_by` passes over rows whose order is null, and a key without any other would seem to be deleted.
    # Of equal ones the last that was read is the later: rows come by partition and offset, unless they were shuffled.
    read = F.monotonically_increasing_id()
    later = F.struct(read) if order is None else F.struct(F.col(f"`{order}`"), read)
    said = keyed.select(*(as_told(rows, name) for name in key), row.alias(LAST), later.alias(SEQ))
    # A struct around it: a row that is null itself, a deletion, would be passed over.
    net = said.groupBy(*_columns(key)).agg(F.max_by(F.struct(LAST), SEQ).alias(LAST), F.count("*").alias(COUNT))
    after = F.col(f"{LAST}.{LAST}")
    if order is None and kind != AS_READ:
        after = F.when(F.col(COUNT) > 1, _refusal(TWO_ROWS, key)).otherwise(after)
    net = net.select(*_columns(key), after.alias(AFTER))
    return net.withColumn(BEFORE, F.lit(None).cast(net.schema[AFTER].dataType))


def _net_changelog(rows: DataFrame, key: Sequence[str], names: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as F

    op = F.col(OP)
    row = F.struct(op.alias(OP), F.struct(*(as_told(rows, name) for name in names)).alias(AFTER))
    sign = F.when(op.isin(*ADDITIONS), 1).when(op.isin(*RETRACTIONS), -1)
    sign = sign.otherwise(_refusal(UNKNOWN_OP, key))
    said = rows.select(*(as_told(rows, name) for name in key), row.alias(ROW), F.col(SEQ), sign.alias(SUM))
    net = said.groupBy(*_columns(key)).agg(
        F.min_by(ROW, SEQ).alias(FIRST),
        F.max_by(ROW, SEQ).alias(LAST),
        F.sum(SUM).alias(SUM),
        F.count_if((F.col(SUM) < 0) & (F.col(SEQ) < 0)).alias(OPENED),
    )
    was = F.when(F.col(f"{FIRST}.{OP}").isin(*RETRACTIONS), F.col(f"{FIRST}.{AFTER}"))
    now = F.when(F.col(f"{LAST}.{OP}").isin(*ADDITIONS), F.col(f"{LAST}.{AFTER}"))
    more = F.when(now.isNull(), 0).otherwise(1) - F.when(was.isNull(), 0).otherwise(1)
    refused = _refusal(not_a_key(key), key)
    after = F.when((F.col(SUM) != more) | (F.col(OPENED) > 1), refused).otherwise(now)
    return net.select(*_columns(key), was.alias(BEFORE), after.alias(AFTER))


def within_years(rows: DataFrame, declared: Declaration) -> DataFrame:
    from pyspark.sql import functions as F

    checked = {}
    for name, _ in declared.columns:
        bounds = YEARS.get(rows.schema[name].dataType.typeName())
        if bounds is not None:
            column, (first, beyond) = F.col(f"`{name}`"), map(F.expr, bounds)
            told = f"column {name!r} is not of the years 1 to 9999 in the row with the key"
            outside = (column < first) | (column >= beyond)
            checked[name] = F.when(outside, _refusal(told, declared.key)).otherwise(column)
    return rows.withColumns(checked) if checked else rows


def _columns(names: Sequence[str]) -> list[Column]:
    from pyspark.sql import functions as F

    return [F.col(f"`{name}`") for name in names]


def _refusal(message: str, key: Sequence[str]) -> Column:
    """Fails the micro-batch when it is evaluated, naming the row."""
    from pyspark.sql import functions as F

    return F.raise_error(F.concat(F.lit(f"{message} "), as_json(F.struct(*_columns(key)))))


def as_told(rows: DataFrame, name: str) -> Column:
    """A column as JSON is to have it: `to_json` does the rest."""
    from pyspark.sql import functions as F

    column, kind = F.col(f"`{name}`"), rows.schema[name].dataType
    wanted = _told_as(kind)
    return (column if wanted == kind else column.cast(wanted)).alias(name)


def _told_as(kind: DataType) -> DataType:
    """Decimals are texts, also within others: a number of JSON is a double to most who read it."""
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(one.name, _told_as(one.dataType), one.nullable) for one in kind.fields])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_told_as(kind.elementType), kind.containsNull)
    if isinstance(kind, T.MapType):
        return T.MapType(kind.keyType, _told_as(kind.valueType), kind.valueContainsNull)
    told = {"decimal": T.StringType(), "float": T.DoubleType(), "void": T.StringType()}
    return told.get(kind.typeName(), kind)


def as_json(struct: Column) -> Column:
    from pyspark.sql import functions as F

    return F.to_json(struct, AS_JSON)


def _text_key(rows: DataFrame, key: Sequence[str]) -> Column:
    """One column is its own text, several are JSON."""
    from pyspark.sql import functions as F

    if len(key) > 1:
        return as_json(F.struct(*(as_told(rows, name) for name in key)))
    column, kind = F.col(f"`{key[0]}`"), rows.schema[key[0]].dataType.typeName()
    if kind in ("timestamp", "timestamp_ntz"):
        return F.get_json_object(as_json(F.struct(column.alias("key"))), "$.key")
    return column if kind == "binary" else column.cast("string")
