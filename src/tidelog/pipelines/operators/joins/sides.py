"""Two DataFrames as one, as a fold over two inputs takes them, and the names of columns on the way.

    keys    k_<name>   the columns that both are joined by, named as on the left; of whole numbers, the wider type
    left    l_<name>   the left's own columns; null in rows of the right
    right   r_<name>   the right's own columns; null in rows of the left

`SIDE` says which input a row is of. Names that both have are refused, but for those that they are joined by: which of
the two would be meant by it later, nobody could see. Keys of different types are refused, too: cast to one of the two,
1.7 would meet 1, and a day all that happened in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.errors import UsageError
from tidelog.pipelines.operators.changelog import OP, SEQ, OrderBy, arrow_schema
from tidelog.pipelines.operators.joins.places import PARTITION, RECORDED
from tidelog.pipelines.operators.state.fold import SIDE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LEFT, RIGHT = 0, 1
GONE = "_gone"  # boolean: a row of a table that ends its key
ORDER = "_order"  # bigint or null: which of two rows is the later one, where the order of arrival does not say it
PLACED = "_place"  # struct<recorded, partition, offset>: a column of rows that come with the place of their record
NUMBERS = ("byte", "short", "integer", "long")  # whole ones, by their width


class Columns(NamedTuple):
    """The columns of a fold over two inputs, by the names that they have within it."""

    keys: pa.Schema
    left: pa.Schema
    right: pa.Schema

    @property
    def all(self) -> list[pa.Field]:
        return [*self.keys, *self.left, *self.right]


class Sides(NamedTuple):
    """What joins what: `pairs` are the names of the key columns, left and right."""

    pairs: tuple[tuple[str, str], ...]
    left: tuple[str, ...]
    right: tuple[str, ...]

    @property
    def keys(self) -> list[str]:
        return [f"k_{name}" for name, _ in self.pairs]

    @property
    def columns(self) -> dict[str, str]:
        """The names after the join, with those within the fold, in order."""
        shared = {name: f"k_{name}" for name, other in self.pairs if name == other}
        return shared | {name: f"l_{name}" for name in self.left} | {name: f"r_{name}" for name in self.right}


def unplaced(frame: DataFrame) -> DataFrame:
    """Without the places that versions of an app's table have for `enrich`: to other operators they are no column."""
    return frame.drop(PLACED) if PLACED in frame.columns else frame


def sides_of(left: DataFrame, right: DataFrame, pairs: Sequence[tuple[str, str]]) -> Sides:
    """Refuses a key column that is not there, and names that both sides have."""
    for frame, names in ((left, [name for name, _ in pairs]), (right, [name for _, name in pairs])):
        if missing := [name for name in names if name not in frame.columns]:
            raise UsageError(f"column {missing[0]!r} to join by does not exist; columns are {', '.join(frame.columns)}")
    shared = {name for name, other in pairs if name == other}
    left_rest = tuple(name for name in left.columns if name not in shared | {OP, SEQ})
    right_rest = tuple(name for name in right.columns if name not in shared | {OP, SEQ})
    if clash := sorted(set(left_rest) & set(right_rest)):
        raise UsageError(
            f"both sides have a column {clash[0]!r}; rename one of them first: withColumnRenamed({clash[0]!r}, ...)"
        )
    return Sides(tuple(pairs), left_rest, right_rest)


def columns_of(sides: Sides, left: DataFrame, right: DataFrame) -> Columns:
    of_left, of_right = arrow_schema(left), arrow_schema(right)
    wider = [wider_side(left, right, pair) for pair in sides.pairs]
    kinds = [(of_left, of_right)[side].field(pair[side]).type for side, pair in zip(wider, sides.pairs, strict=True)]
    keys = pa.schema(list(zip(sides.keys, kinds, strict=True)))
    lefts = pa.schema([(f"l_{name}", of_left.field(name).type) for name in sides.left])
    rights = pa.schema([(f"r_{name}", of_right.field(name).type) for name in sides.right])
    return Columns(keys, lefts, rights)


def wider_side(left: DataFrame, right: DataFrame, pair: tuple[str, str]) -> int:
    """Whose type a key has: the left's, unless the right's numbers are wider. Refuses types of which one loses."""
    one, other = (frame.schema[name].dataType for frame, name in zip((left, right), pair, strict=True))
    names = [one.typeName(), other.typeName()]
    if all(name in NUMBERS for name in names):
        return RIGHT if NUMBERS.index(names[RIGHT]) > NUMBERS.index(names[LEFT]) else LEFT
    if one.simpleString() != other.simpleString():
        raise UsageError(
            f"{pair[0]!r} is of type {one.simpleString()} on the left, and {pair[1]!r} of type {other.simpleString()} "
            "on the right; what is not the same could meet: cast one to the type of the other"
        )
    return LEFT


def as_users_know(rows: pa.Table) -> pa.Table:
    """The columns of keys and sides alone, by their own names."""
    own = rows.select([name for name in rows.schema.names if name[:2] in ("k_", "l_", "r_")])
    return own.rename_columns([name[2:] for name in own.schema.names])


def of_table(columns: Columns, state: pa.Table) -> pa.Table:
    """What the right side, a table, has in the state of one key."""
    there = pc.and_(pc.equal(state[SIDE], pa.scalar(RIGHT, pa.int8())), pc.invert(pc.fill_null(state[GONE], False)))
    return as_users_know(state.filter(there).select([*columns.keys.names, *columns.right.names]))


def added(state: pa.Table, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """State and, behind it, new rows, with these columns; a timestamp in the session's zone is in UTC there."""
    return pa.concat_tables([state.select(schema.names), rows.select(schema.names).cast(schema)]).combine_chunks()


class Order(NamedTuple):
    """What says which of two rows is the later one, as a fold takes it.

    `columns` are those of its rows: ORDER, and of a place RECORDED and PARTITION. `name` is the column that ORDER is
    made of, and `unit` what its numbers are: "numbers", "microseconds" or "days". `across` names the columns of a
    place's time and partition. `dropped` are those that are not part of the table.
    """

    columns: Mapping[str, Column]
    name: str | None = None
    unit: str | None = None
    across: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


def order_of(frame: DataFrame, order: OrderBy) -> Order:
    """Refuses what is no whole number and no time: cut to one, it would say that two rows are the same that are not."""
    from pyspark.sql import functions as F

    if order is None and PLACED in frame.columns:  # it has one, and nobody had to say so
        parts = {RECORDED: "recorded", PARTITION: "partition", ORDER: "offset"}
        columns = {name: F.col(f"{PLACED}.{part}") for name, part in parts.items()}
        return Order(columns, across=(f"{PLACED}.recorded", f"{PLACED}.partition"), dropped=(PLACED,))
    beside = (PLACED,) if PLACED in frame.columns else ()
    if order is None:
        return Order({ORDER: F.lit(None).cast("bigint")}, dropped=beside)
    if isinstance(order, str):
        number, unit = _number(frame, order)
        return Order({ORDER: number}, order, unit, dropped=(order, *beside))
    if len(order) != 3:
        raise UsageError(
            f"order is {tuple(order)!r}; it is a column, or the place of a record: its time, partition and offset, as "
            'in ("timestamp", "partition", "offset")'
        )
    (time, _), (partition, _), (offset, unit) = (_number(frame, name) for name in order)
    across = (order[0], order[1])
    return Order({ORDER: offset, RECORDED: time, PARTITION: partition}, order[2], unit, across, (*order, *beside))


def _number(frame: DataFrame, name: str) -> tuple[Column, str]:
    from pyspark.sql import functions as F

    place = F.col(name)
    kind = frame.select(place).schema[0].dataType
    if kind.typeName() in NUMBERS:
        return place.cast("bigint"), "numbers"
    if kind.typeName() == "timestamp":
        return F.unix_micros(place), "microseconds"
    if kind.typeName() == "date":
        return F.unix_date(place).cast("bigint"), "days"
    raise UsageError(
        f"order is {name!r}, which is of type {kind.simpleString()}; it is a whole number, a timestamp or a date: cast "
        "it to one"
    )


def as_one(sides: Sides, left: DataFrame, right: DataFrame, more: Mapping[str, tuple[Column, Column]]) -> DataFrame:
    """Both inputs as one DataFrame; `more` are further columns, with what each is on the left and on the right."""
    from pyspark.sql import functions as F

    def column(of: DataFrame, name: str) -> Column:
        return F.col(f"`{name}`").cast(of.schema[name].dataType)

    def nothing(of: DataFrame, name: str) -> Column:
        return F.lit(None).cast(of.schema[name].dataType)

    def key(of: DataFrame, number: int, pair: tuple[str, str]) -> Column:
        wider = wider_side(left, right, pair)
        return column(of, pair[number]).cast((left, right)[wider].schema[pair[wider]].dataType)

    def side(number: int) -> Iterable[Column]:
        yield F.lit(number).cast("tinyint").alias(SIDE)
        yield from (both[number].alias(name) for name, both in more.items())
        yield from (key((left, right)[number], number, pair).alias(f"k_{pair[0]}") for pair in sides.pairs)
        of_left, of_right = (column, nothing) if number == LEFT else (nothing, column)
        yield from (of_left(left, name).alias(f"l_{name}") for name in sides.left)
        yield from (of_right(right, name).alias(f"r_{name}") for name in sides.right)

    return left.select(*side(LEFT)).unionByName(right.select(*side(RIGHT)))
