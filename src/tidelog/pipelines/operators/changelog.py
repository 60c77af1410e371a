"""A changelog: rows that say how a table changes. What it is, what it adds up to, how it is made.

    _op    text     +I a new row   -U a row as it was, before a change   +U as it is after it   -D a row that is gone
    _seq   bigint   the order within a key and a micro-batch; all retractions of a micro-batch are below 0, and all
                    additions at or above it, whichever task made them

Rules:
- A table is a multiset of rows. +I and +U add one, -U and -D take one away (a *retraction*), and a retraction names
  exactly a row that was added before, in all its columns.
- A retraction comes before its replacement. So whoever sorts the rows of a micro-batch by `_seq` sees, by whatever key,
  the old row go before the new one comes; also where they were made in different tasks, as they are when the key that
  a join is spread by has changed.
- Within a micro-batch only what changed in all is told: a row that came and went is in it not at all.
- Over a batch DataFrame a changelog is the table itself, as +I.
- A row whose key is null is no row of a table by key: it is left out.
- *Upserts* are the other form, which topics have: a row by key stands for all that was before, and one that is marked
  as deleted ends it. `as_changelog` makes a changelog of them, which takes state; `as_upserts` is the way back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.errors import UsageError
from tidelog.pipelines.operators.durations import Duration, milliseconds

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tidelog.pipelines.operators.joins.matching import Numbers

OP = "_op"
SEQ = "_seq"
DELETED = "_deleted"

INSERT, BEFORE, AFTER, DELETE = "+I", "-U", "+U", "-D"
PLACE = ("timestamp", "partition", "offset")  # of a record, by the names that the source has: an order
OrderBy = str | Sequence[str] | None  # a column, or the place of a record

ADDITIONS = (INSERT, AFTER)
RETRACTIONS = (BEFORE, DELETE)

HEAD = [pa.field(OP, pa.string()), pa.field(SEQ, pa.int64())]
COUNT = "_count"
ENDS = "_tidelog_ends"  # of a row among others: whether it ends its key


def of_changes(gone: pa.Table, come: pa.Table, gone_ops: pa.Array, come_ops: pa.Array) -> pa.Table:
    """The changelog of one step: rows that go, then rows that come, numbered as the rules have it."""
    rows = pa.concat_tables([gone, come])
    ops = pa.concat_arrays([gone_ops, come_ops])
    seq = pa.array(np.arange(-len(gone), len(come)), pa.int64())
    return pa.table([ops, seq, *rows.columns], schema=pa.schema([*HEAD, *rows.schema]))


def signs(changelog: pa.Table) -> Numbers:
    """+1 for each row that is added, -1 for each that is taken away; an unknown `_op` is refused."""
    ops = changelog[OP]
    added = pc.is_in(ops, value_set=pa.array(ADDITIONS))
    known = pc.or_(added, pc.is_in(ops, value_set=pa.array(RETRACTIONS)))
    if not pc.all(known, min_count=0).as_py():
        found = ops.filter(pc.invert(known))[0].as_py()
        raise UsageError(f"{OP} is {found!r}; a changelog has {', '.join((*ADDITIONS, *RETRACTIONS))}")
    return np.where(added.to_numpy(), 1, -1).astype(np.int64)


def key_names(by: str | Sequence[str]) -> tuple[str, ...]:
    """A key of one column may be given as its name."""
    return (by,) if isinstance(by, str) else tuple(by)


class Table:
    """A table that a changelog is applied to, micro-batch by micro-batch, and which refuses what is no changelog.

    With `by`, rows are told apart by these columns, and there is at most one of each at any time. A list becomes
    a tuple, so that rows can be compared. Changes are Rows, as `run.step()` of the test driver gives them, dicts, or
    tuples of `columns`.
    """

    def __init__(self, by: str | Sequence[str] = (), *, columns: Sequence[str] = ()) -> None:
        self.by = key_names(by)
        self._columns = tuple(columns)
        self.rows: Counter[tuple[tuple[str, Any], ...]] = Counter()
        self._keys: Counter[tuple[Any, ...]] = Counter()

    def apply(self, changes: Iterable[Any]) -> None:
        """One micro-batch of changes, in whatever order they came."""
        for change in sorted(map(self._by_name, changes), key=lambda change: int(change[SEQ])):
            row = tuple((name, _frozen(value)) for name, value in change.items() if name not in (OP, SEQ))
            self._change(row, change[OP], tuple(change[name] for name in self.by))

    def _by_name(self, change: Any) -> Mapping[str, Any]:
        if isinstance(change, Mapping):
            return change
        if hasattr(change, "__fields__"):  # a Row with names
            return dict(change.asDict(recursive=True))
        if not isinstance(change, tuple) or len(change) != len(self._columns):
            raise UsageError(
                f"{change!r} is not a change: it does not have names, and the table's columns are"
                f" {', '.join(self._columns) or 'not known'}; give a Row, a dict, or a tuple of Table(columns=[...])"
            )
        return dict(zip(self._columns, change, strict=True))

    def _change(self, row: tuple[tuple[str, Any], ...], op: str, key: tuple[Any, ...]) -> None:
        if op not in (*ADDITIONS, *RETRACTIONS):
            raise UsageError(f"{OP} is {op!r}; a changelog has {', '.join((*ADDITIONS, *RETRACTIONS))}")
        if op in RETRACTIONS and not self.rows[row]:
            raise UsageError(f"{op} takes away {dict(row)}, which is not in the table")
        if op in ADDITIONS and self.by and self._keys[key]:
            raise UsageError(f"{op} adds {dict(row)}, but the table has a row of that key, which was not taken away")
        step = 1 if op in ADDITIONS else -1
        self.rows[row] += step
        self._keys[key] += step
        if not self.rows[row]:
            del self.rows[row]

    def to_list(self) -> list[dict[str, Any]]:
        return [dict(row) for row in self.rows.elements()]


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((name, _frozen(one)) for name, one in value.items())
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def upserts_of(changes: pa.Table, by: Sequence[str]) -> pa.Table:
    """One row for each key of a micro-batch's changelog: what it is now, or what it was, marked as deleted."""
    from tidelog.pipelines.operators.joins.matching import NO_KEY, key_codes

    rows = changes.combine_chunks()
    rows = rows.take(pa.array(np.argsort(rows[SEQ].to_numpy(), kind="stable")))
    codes = key_codes([rows], by)[0]
    with_key = np.flatnonzero(codes != NO_KEY)
    last = np.zeros(int(codes.max(initial=NO_KEY)) + 1, np.int64)
    last[codes[with_key]] = with_key
    found = rows.take(pa.array(last))
    return found.drop_columns([OP, SEQ]).append_column(DELETED, pa.array(signs(found) < 0))


def latest_by_key(
    by: str | Sequence[str], *, order: str | Sequence[str], deleted: str | None = None
) -> Callable[[DataFrame], DataFrame]:
    """Takes plain rows of a batch and gives plain rows: of each key, the row with the largest `order`.

    `order` is a column, or the place of a record (`PLACE`), as for `as_changelog`. `deleted` is an expression that is
    true for a row that ends its key: `"value is null"`. On a stream the answer would change, so there it is
    `as_changelog`.
    """
    key = key_names(by)

    def latest(frame: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        if frame.isStreaming:
            raise UsageError("the latest row by key of a stream changes; use as_changelog(by=..., order=...) for it")
        keyed = frame.where(" and ".join(f"`{name}` is not null" for name in key))
        rest = [F.col(name) for name in frame.columns if name not in key]
        gone = F.expr(deleted) if deleted else F.lit(False)
        row = F.struct(*rest, gone.alias(ENDS))
        # Within a struct: a row whose order is null would not be looked at, and is the first of its key.
        if isinstance(order, str):
            last = keyed.groupBy(*key).agg(F.max_by(row, F.struct(order)).alias("last"))
        else:
            last = _last_by_place(keyed, key, row, order)
        found = last.where(f"not coalesce(last.{ENDS}, false)")
        return found.select(*(name if name in key else F.col(f"last.{name}") for name in frame.columns))

    return latest


def _last_by_place(keyed: DataFrame, by: Sequence[str], row: Column, order: Sequence[str]) -> DataFrame:
    """Of each partition the last row by offset, with the largest time of the key there; and of these the largest."""
    from pyspark.sql import functions as F

    from tidelog.pipelines.operators.joins.sides import ORDER, order_of

    place = order_of(keyed, order)
    placed = keyed.select(*by, row.alias("row"), *(column.alias(name) for name, column in place.columns.items()))
    time, partition = (name for name in place.columns if name != ORDER)
    most = [F.max_by("row", F.struct(ORDER)).alias("row"), F.max(time).alias(time)]
    ends = placed.groupBy(*by, partition).agg(*most)
    return ends.groupBy(*by).agg(F.max_by("row", F.struct(time, partition)).alias("last"))


def as_changelog(
    by: str | Sequence[str],
    *,
    order: OrderBy = None,
    deleted: str | None = None,
    deletes_kept: Duration = "1 day",
    questions: DataFrame | None = None,
    captured: bool = False,
) -> Callable[[DataFrame], DataFrame]:
    """Takes upserts by key, as a topic has them, and gives a changelog of the table that they are.

    `order` says which of two rows of a key is the later one: a column (a whole number, a timestamp or a date), of which
    the largest counts, or the place of its record (`PLACE`: time, partition and offset). Of places the largest counts,
    where a record's time is at least that of the key's record before it in its partition. Without `order`, it is the
    row that came later, which a batch does not know. The columns of `order` are not part of the table.

    `deleted` is an expression that is true for a row that ends its key (`"value is null"`). With an `order`, it is
    remembered for `deletes_kept`, by the clock: a row from before it that comes later than that would be taken.
    `questions` are answered with a key's row. `captured`: rows have the columns by which a captured table of an app
    tells of truncates and of values that were not sent (`joins/upserts.py`).
    """

    kept, key = milliseconds(deletes_kept, what="deletes_kept"), key_names(by)

    def changelog(frame: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        from tidelog.pipelines.operators.joins.sides import GONE, order_of
        from tidelog.pipelines.operators.joins.upserts import TRUNCATED, UNSENT, Upserts
        from tidelog.pipelines.operators.keyed import asking_of
        from tidelog.pipelines.operators.state.operator import run_fold

        place = order_of(frame, order)
        beside = (TRUNCATED, UNSENT) if captured else ()
        columns = [name for name in frame.columns if name not in (*place.dropped, *beside)]
        gone = F.coalesce(F.expr(deleted), F.lit(False)) if deleted else F.lit(False)
        says = (column.alias(name) for name, column in place.columns.items())
        rows = frame.select(*columns, gone.alias(GONE), *says, *beside)
        asking = asking_of("as_changelog", questions, key)
        schema = arrow_schema(frame.select(*columns))
        fold = Upserts(schema, key, place.name, place.unit, place.across, kept, captured)
        return run_fold(rows, key, fold, asking=asking, for_all=TRUNCATED if captured else None)

    return changelog


def as_upserts(by: str | Sequence[str]) -> Callable[[DataFrame], DataFrame]:
    """Takes a changelog and gives upserts: in each micro-batch at most one row a key, with `_deleted`.

    This is what a derived topic gets: the row as the value, or null where it is deleted.
    """
    key = key_names(by)

    def upserts(frame: DataFrame) -> DataFrame:
        from tidelog.pipelines.operators.joins.upserts import Netting
        from tidelog.pipelines.operators.state.operator import run_fold

        must_be_changelog(frame, "as_upserts")
        return run_fold(frame, key, Netting(arrow_schema(frame), key))

    return upserts


def must_be_changelog(frame: DataFrame, where: str) -> None:
    if missing := [name for name in (OP, SEQ) if name not in frame.columns]:
        raise UsageError(
            f"{where} takes a changelog, and this has no {' and no '.join(missing)} among {', '.join(frame.columns)}; "
            "make one of a table topic's rows by as_changelog(by=..., order=PLACE)"
        )


def arrow_schema(frame: DataFrame) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(frame.schema, timezone="UTC")
