"""One order by key, without Spark: whatever way partitions are read and cut, stream, batch and plain Python agree."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.operators.joins.driving import FEWER, KEYED, Driver, Row, arrow, in_a_batch, left, right
from pipelines.operators.joins.histories import KEYS, History, Record, last_of, readings, seeded_histories, table_of
from pipelines.operators.joins.kept_states import kept_state
from proving import proves
from tidelog.errors import StateMismatch
from tidelog.pipelines.operators.changelog import OP, Table
from tidelog.pipelines.operators.joins.as_of import TIME, AsOf
from tidelog.pipelines.operators.joins.deletions import GONE_SINCE
from tidelog.pipelines.operators.joins.latest import Latest
from tidelog.pipelines.operators.joins.newest import Newest
from tidelog.pipelines.operators.joins.places import PARTITION, RECORDED, SEED
from tidelog.pipelines.operators.joins.sides import GONE, ORDER
from tidelog.pipelines.operators.joins.upserts import Upserts
from tidelog.pipelines.operators.state.buckets import Layout
from tidelog.pipelines.operators.state.fold import HASH, SIDE, Clock
from tidelog.pipelines.operators.state.questions import ANSWER, QUESTION, WRONG, answers_of, question_schema

COLUMNS = pa.schema([("k", pa.string()), ("v", pa.int64())])
PLACES = [pa.field(name, pa.int64()) for name in (ORDER, RECORDED, PARTITION)]
ROW = pa.schema([*COLUMNS, pa.field(GONE, pa.bool_()), *PLACES])
TAGGED = pa.schema([*COLUMNS, ("tags", pa.list_(pa.string()))])  # as state from before has them
TAGGED_ROW = pa.schema([*TAGGED, pa.field(GONE, pa.bool_()), *PLACES])
BOTH = pa.schema([(SIDE, pa.int8()), (TIME, pa.timestamp("us", "UTC")), (GONE, pa.bool_()), *PLACES, *KEYED.all])
ACROSS = ("timestamp", "partition")
TABLES = ("_tidelog_recorded", "_tidelog_partition")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LONG = 10**9
DAY = 24 * 60 * 60 * 1000


def fold(**more: Any) -> Upserts:
    return Upserts(COLUMNS, ("k",), "offset", "numbers", ACROSS, **more)


def place(one: Record) -> Row:
    return {ORDER: one.offset, RECORDED: one.time, PARTITION: one.partition, GONE: one.value is None}


def row_of(one: Record) -> Row:
    return {"k": one.key, "v": one.value, "tags": [], **place(one)}


def driver(**more: Any) -> Driver:
    return Driver(lambda: fold(**more), ROW, ["k"])


def told(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [(row[OP], row["k"], row["v"]) for row in rows]


def shown(table: Table) -> dict[str, int]:
    return {row["k"]: row["v"] for row in table.to_list()}


# Tables ---------------------------------------------------------------------------------------------------------------


@proves("P9", "B1")
@FEWER
@given(seeded_histories(), st.randoms(use_true_random=False))
def test_however_partitions_are_read_and_cut_the_table_is_that_of_plain_python(
    history: History, chance: random.Random
) -> None:
    whole = [one for partition in history for one in partition]
    batch = in_a_batch(fold(), [row_of(one) for one in chance.sample(whole, len(whole))], ROW, ["k"])
    assert {row["k"]: row["v"] for row in batch} == table_of(whole)
    for reading in readings(history, chance):
        operator, table, read = driver(), Table(by=["k"]), list[Record]()
        for micro_batch in reading:
            read += micro_batch
            table.apply(operator.step([row_of(one) for one in micro_batch]))
            assert shown(table) == table_of(read)
        assert {row["k"] for row in operator.state()} == last_of(whole).keys(), "a key's last place, and no more"
        assert len(operator.state()) == len(last_of(whole))


@proves("P9", "B1")
@FEWER
@given(st.lists(st.tuples(st.sampled_from(KEYS), st.booleans()), max_size=12), st.randoms(use_true_random=False))
def test_by_a_column_of_the_rows_the_largest_counts_however_they_come_and_are_cut(
    rows: list[tuple[str, bool]], chance: random.Random
) -> None:
    """Also where it is a deletion, and what it has deleted comes later."""
    made = [{"k": key, "v": n, GONE: gone, ORDER: n} for n, (key, gone) in enumerate(rows)]
    last = {row["k"]: row for row in made}
    oracle = {key: row["v"] for key, row in last.items() if not row[GONE]}
    for _ in range(4):
        come, table = chance.sample(made, len(made)), Table(by=["k"])
        operator = Driver(lambda: Upserts(COLUMNS, ("k",), "v", "numbers"), ROW, ["k"])
        while come:
            count = chance.randint(1, 4)
            table.apply(operator.step(come[:count]))
            del come[:count]
        assert shown(table) == oracle
        assert {row["k"]: row["v"] for row in in_a_batch(operator.make(), made, ROW, ["k"])} == oracle


@proves("P9", "B1")
def test_a_row_from_before_the_deletion_of_its_key_is_none_in_whichever_micro_batch_it_comes() -> None:
    one, gone, two = ({"k": "a", "v": v, GONE: v is None, ORDER: at} for v, at in ((1, 1), (None, 3), (2, 2)))
    for cut in ([[one, gone, two]], [[one, gone], [two]], [[one], [gone], [two]], [[gone], [one, two]]):
        operator = Driver(lambda: Upserts(COLUMNS, ("k",), "version", "numbers"), ROW, ["k"])
        table = Table(by=["k"])
        for micro_batch in cut:
            table.apply(operator.step(micro_batch))
        assert table.to_list() == []


@proves("P9")
def test_a_deletion_is_remembered_by_the_clock_and_holds_no_values() -> None:
    operator = driver()
    operator.step([row_of(Record("a", 1, 7, 100, 5))])
    assert told(operator.step([row_of(Record("a", 1, 8, 101, None))])) == [("-D", "a", 5)]
    (kept,) = operator.state()
    assert (kept["v"], kept[RECORDED], kept[PARTITION], kept[ORDER], kept[GONE_SINCE]) == (None, 101, 1, 8, 0)
    operator.now = DAY - 1
    assert operator.step([row_of(Record("a", 0, 3, 99, 1))]) == [], "of another partition, from before"
    operator.now = DAY + 1
    assert operator.step([row_of(Record("a", 0, 4, 99, 2))]) == [], "what is put out does not rest on the clock"
    assert operator.state() == [], "and then it is forgotten"
    assert told(operator.step([row_of(Record("a", 0, 5, 99, 3))])) == [("+I", "a", 3)]


@proves("P9", "P1")
def test_deletions_of_keys_that_never_come_again_are_forgotten_with_the_pages_that_others_read() -> None:
    operator = driver(deletes_kept=1000)
    operator.step([row_of(Record(f"gone {n}", 0, n, n, None)) for n in range(50)])
    assert len(operator.state()) == 50
    operator.now = 1000
    operator.step([row_of(Record(f"new {n}", 0, 50 + n, 50, n)) for n in range(10)])
    assert sorted(row["k"] for row in operator.state()) == sorted(f"new {n}" for n in range(10))


@proves("P9")
def test_what_a_deleted_key_has_is_no_answer() -> None:
    operator = driver()
    operator.step([row_of(Record("a", 0, 0, 0, 1)), row_of(Record("b", 0, 1, 0, None))])
    asked = [{QUESTION: key, WRONG: None, "k": key} for key in "abc"]
    schema = question_schema(pa.schema([("k", pa.string())]))
    told = {}
    for bucket in operator.buckets:
        layout, clock = Layout(2, 1), Clock(None, 0)
        answers = answers_of(fold(), bucket, layout, arrow(asked, schema, ["k"]), ["k"], clock)
        told |= {row[QUESTION]: row for row in answers.to_pylist() if "answered" in row[ANSWER]}
        assert all("unknown" in row[ANSWER] for row in answers.to_pylist() if row[QUESTION] != "a")
    assert json.loads(told["a"][ANSWER]) == {"status": "answered", "rows": [{"k": "a", "v": 1}]}


@proves("P9")
def test_keys_that_move_between_partitions_are_counted_and_those_of_a_seed_are_not() -> None:
    operator = driver()
    seeds = [{**row_of(Record(key, SEED, n - 2**62, -(2**62), n))} for n, key in enumerate("abc")]
    operator.step(seeds)
    assert told(operator.step([row_of(Record("a", 2, 0, -50, 7))])) == [("-U", "a", 0), ("+U", "a", 7)]
    assert operator.counts() == {}
    operator.step([row_of(Record("a", 1, 0, 9, 8)), row_of(Record("b", 1, 1, 9, 8)), row_of(Record("b", 0, 1, 9, 8))])
    assert operator.counts() == {"moved": 2}


# Rows of outputs with an order ----------------------------------------------------------------------------------------

ORDERS = {
    "numbers": (pa.int64(), lambda n: n),
    "texts": (pa.string(), lambda n: f"{n:04}"),
    "doubles": (pa.float64(), lambda n: float("nan") if n == 11 else n / 3),
    "decimals": (pa.decimal128(9, 2), lambda n: Decimal(n) / 4),
    "times": (pa.timestamp("us", "UTC"), lambda n: EPOCH + timedelta(seconds=n)),
    "days": (pa.date32(), lambda n: (EPOCH + timedelta(days=n)).date()),
}


@proves("P9", "B1")
@FEWER
@given(
    st.sampled_from(sorted(ORDERS)),
    st.lists(st.tuples(st.sampled_from([*KEYS, None]), st.booleans()), max_size=12),
    st.randoms(use_true_random=False),
)
def test_of_an_outputs_rows_the_last_by_its_order_stays_however_they_come_and_are_cut(
    kind: str, rows: list[tuple[str | None, bool]], chance: random.Random
) -> None:
    """The topic is upserts: what comes last of a key is what it has."""
    type_, value = ORDERS[kind]
    schema = pa.schema([("k", pa.string()), ("at", type_), ("n", pa.int64()), ("_deleted", pa.bool_())])
    made = [{"k": key, "at": value(n), "n": n, "_deleted": gone} for n, (key, gone) in enumerate(rows)]
    oracle = {row["k"]: row["n"] for row in made if row["k"] is not None}
    for _ in range(4):
        come, topic = chance.sample(made, len(made)), dict[str, int]()
        operator = Driver(lambda: Newest(schema, ("k",), "at", "_deleted"), schema, ["k"])
        while come:
            count = chance.randint(1, 4)
            gone_on = operator.step(come[:count])
            assert len({row["k"] for row in gone_on}) == len(gone_on)
            topic |= {row["k"]: row["n"] for row in gone_on}
            del come[:count]
        assert topic == oracle
        assert {row["k"]: row["n"] for row in in_a_batch(operator.make(), made, schema, ["k"])} == oracle


@proves("P9")
def test_of_equal_orders_the_row_that_came_last_goes_on_and_one_without_is_before_all() -> None:
    schema = pa.schema([("k", pa.string()), ("at", pa.int64()), ("n", pa.int64())])
    operator = Driver(lambda: Newest(schema, ("k",), "at"), schema, ["k"])

    def step(*rows: tuple[int | None, int]) -> list[int]:
        return [row["n"] for row in operator.step([{"k": "a", "at": at, "n": n} for at, n in rows])]

    assert [step((None, 1)), step((None, 2)), step((5, 3), (5, 4)), step((5, 5)), step((None, 6), (4, 7))] == [
        [1],
        [2],
        [4],
        [5],
        [],
    ]
    assert operator.counts() == {"in": 7, "replaced": 3}


# Versions -------------------------------------------------------------------------------------------------------------


def version(one: Record, since: int) -> Row:
    return right(k=one.key, r=one.value, **{TIME: EPOCH + timedelta(milliseconds=since)}, **place(one))


def since_of(one: Record) -> int:
    """Some versions have the same event time, also in several partitions."""
    return (one.offset + one.partition) % 3


def as_of() -> AsOf:
    return AsOf(KEYED, LONG, order="offset", order_in="numbers", across=ACROSS)


@proves("P10", "B1")
@FEWER
@given(seeded_histories(), st.randoms(use_true_random=False))
def test_of_versions_with_the_same_time_the_last_counts_however_partitions_are_read(
    history: History, chance: random.Random
) -> None:
    whole = [one for partition in history for one in partition]
    asked = [(key, at) for key in KEYS for at in range(3)]
    rows = [left(k=key, l=n, **{TIME: EPOCH + timedelta(milliseconds=at)}) for n, (key, at) in enumerate(asked)]
    oracle = {n: _found(whole, key, at) for n, (key, at) in enumerate(asked)}
    versions = [version(one, since_of(one)) for one in chance.sample(whole, len(whole))]
    batch = in_a_batch(as_of(), [*rows, *versions], BOTH, ["k"])
    assert {row["l"]: row["r"] for row in batch} == oracle
    for reading in readings(history, chance):
        operator = Driver(as_of, BOTH, ["k"])
        operator.step(rows)
        for micro_batch in reading:
            assert operator.step([version(one, since_of(one)) for one in micro_batch]) == []
        assert {row["l"]: row["r"] for row in operator.step([], 10)} == oracle


def _found(records: list[Record], key: str, at: int) -> int | None:
    known = [one for one in records if one.key == key and since_of(one) <= at]
    newest = max((since_of(one) for one in known), default=None)
    last = last_of(one for one in known if since_of(one) == newest).get(key)
    return None if last is None else last.value


@proves("P10", "B1")
@FEWER
@given(seeded_histories(), st.randoms(use_true_random=False))
def test_what_the_table_has_now_is_its_last_row_however_partitions_are_read(
    history: History, chance: random.Random
) -> None:
    for reading in readings(history, chance):
        operator = Driver(lambda: Latest(KEYED, None, across=ACROSS), BOTH, ["k"])
        read: list[Record] = []
        for micro_batch in reading:
            read += micro_batch
            met = operator.step([version(one, 0) for one in micro_batch] + [left(k=key, l=0) for key in KEYS])
            assert {row["k"]: row["r"] for row in met if row["r"] is not None} == table_of(read)


# State from before ----------------------------------------------------------------------------------------------------


def gone_on_with(name: str, make: Any, row: pa.Schema = TAGGED_ROW) -> Driver:
    return Driver(make, row, ["k"], buckets=kept_state(name))


@proves("P9", "F4")
def test_rows_of_a_table_from_before_there_were_places_are_replaced_by_the_next_record_of_their_key() -> None:
    operator = gone_on_with(
        "as_changelog by offset", lambda: Upserts(TAGGED, ("k",), "_tidelog_offset", "numbers", TABLES)
    )
    assert told(operator.step([row_of(Record("b", 3, 0, -5, 6))])) == [("-U", "b", 4), ("+U", "b", 6)]
    assert operator.counts() == {"without_place": 1}
    assert operator.step([row_of(Record("b", 1, 99, -6, 7))]) == [], "from here on there are places"
    assert told(operator.step([row_of(Record("c", 1, 100, 0, 8))])) == [("+I", "c", 8)]
    assert told(operator.step([row_of(Record("a", 0, 11, 0, None))])) == [("-D", "a", 1)]


@proves("P9", "F4")
@pytest.mark.parametrize(
    ("name", "order", "unit", "second"),
    [("as_changelog by a number", "v", "numbers", 1), ("as_changelog by a time", "at", "microseconds", 1_000_000)],
)
def test_state_by_a_column_is_gone_on_with_and_remembers_deletions_from_then_on(
    name: str, order: str, unit: str, second: int
) -> None:
    operator = gone_on_with(name, lambda: Upserts(TAGGED, ("k",), order, unit))

    def step(key: str, v: int | None, at: int) -> list[tuple[Any, ...]]:
        return told(operator.step([{"k": key, "v": v, "tags": [], GONE: v is None, ORDER: at * second}]))

    assert step("b", 5, 13) == [], "14 is kept"
    assert step("b", None, 15) == [("-D", "b", 4)]
    assert step("b", 6, 14) == []
    assert step("a", 7, 11) == [("-U", "a", 1), ("+U", "a", 7)]


@proves("P9", "F4")
def test_state_by_arrival_is_gone_on_with_as_it_was_and_also_where_rows_have_places_now() -> None:
    operator = gone_on_with("as_changelog by arrival", lambda: Upserts(TAGGED, ("k",)))
    assert told(operator.step([{"k": "b", "v": 5, "tags": [], GONE: False}])) == [("-U", "b", 4), ("+U", "b", 5)]
    operator = gone_on_with("as_changelog by arrival", lambda: Upserts(TAGGED, ("k",), across=ACROSS))
    assert told(operator.step([row_of(Record("b", 0, 0, 0, 5))])) == [("-U", "b", 4), ("+U", "b", 5)]


@proves("P10", "F4")
@pytest.mark.parametrize(("name", "order"), [("enrich by arrival", None), ("enrich by offset", "offset")])
def test_versions_from_before_there_were_places_are_before_all_that_have_one(name: str, order: str | None) -> None:
    unit = None if order is None else "numbers"
    operator = gone_on_with(name, lambda: AsOf(KEYED, LONG, True, (), order, unit, ACROSS), BOTH)
    operator.step([version(Record("a", 2, 0, 5, 7), 10), version(Record("a", 1, 9, 4, 8), 10)])
    assert {row["l"]: row["r"] for row in operator.step([], 20)} == {100: 7, 101: 2}


@proves("P10", "F4")
@pytest.mark.parametrize("more", [{}, {"order": "offset", "order_in": "numbers"}, {"across": ACROSS}])
def test_what_a_table_has_from_before_it_had_an_order_is_replaced_by_what_comes_next(more: dict[str, Any]) -> None:
    operator = gone_on_with("enrich with the latest", lambda: Latest(KEYED, None, **more), BOTH)
    met = operator.step([version(Record("a", 2, 3, -5, 9), 0), *(left(k=key, l=0) for key in KEYS)])
    assert {row["k"]: row["r"] for row in met} == {"a": 9, "b": 2, "c": None}
    met = operator.step([version(Record("a", 1, 2, -6, 8), 0), left(k="a", l=0)])
    assert [row["r"] for row in met] == [9 if more else 8]


@proves("P9", "F4")
def test_a_table_that_is_put_in_order_by_other_columns_is_refused() -> None:
    operator = gone_on_with("as_changelog by a number", lambda: Upserts(TAGGED, ("k",), "offset", "numbers", ACROSS))
    with pytest.raises(StateMismatch, match="order 'v', and the query now has order 'offset'"):
        operator.step([row_of(Record("a", 0, 0, 0, 1))])
    operator = driver()
    operator.step([row_of(Record("a", 0, 0, 0, 1))])
    operator.make = lambda: Upserts(COLUMNS, ("k",), "offset", "numbers")
    with pytest.raises(StateMismatch, match=r"across \['timestamp', 'partition'\], and the query now has across \[\]"):
        operator.step([row_of(Record("a", 0, 1, 0, 1))])
    assert HASH in operator.state()[0]
