"""What a changelog adds up to, how it is made of upserts and turned into them: against a dictionary, at every step."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.operators.joins.driving import FEWER, Driver, Row, in_a_batch
from proving import proves
from tidelog.errors import StateMismatch, UsageError
from tidelog.pipelines.operators.changelog import DELETED, HEAD, OP, SEQ, Table, upserts_of
from tidelog.pipelines.operators.joins.sides import GONE, ORDER
from tidelog.pipelines.operators.joins.upserts import Netting, Upserts

COLUMNS = pa.schema([("k", pa.string()), ("v", pa.int64()), ("tags", pa.list_(pa.string()))])
ROW = pa.schema([*COLUMNS, pa.field(GONE, pa.bool_()), pa.field(ORDER, pa.int64())])
CHANGELOG = pa.schema([*HEAD, ("k", pa.string()), ("v", pa.int64())])

UPSERTS = st.tuples(st.sampled_from(["a", "b", "c", None]), st.one_of(st.integers(0, 2), st.none()))
STEPS = st.lists(st.lists(UPSERTS, max_size=8), max_size=8)


def upsert(k: str | None, v: int | None, order: int | None = None) -> Row:
    """None: the key is deleted."""
    return {"k": k, "v": v, "tags": [f"tag {v}"], GONE: v is None, ORDER: order}


def driver() -> Driver:
    return Driver(lambda: Upserts(COLUMNS, ("k",)), ROW, ["k"])


def applied(table: dict[str, int], rows: list[tuple[str | None, int | None]]) -> None:
    for key, value in rows:
        if value is None:
            table.pop(key or "", None)
        elif key is not None:
            table[key] = value


def changes(*rows: tuple[str, int, str, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip((OP, SEQ, "k", "v"), row, strict=True)) for row in rows], CHANGELOG)


@proves("P9")
@FEWER
@given(STEPS)
def test_the_changelog_of_upserts_adds_up_to_the_latest_by_key_after_every_step(steps: list[list[Any]]) -> None:
    operator, table, oracle = driver(), Table(by=["k"]), dict[str, int]()
    for rows in steps:
        before = dict(oracle)
        applied(oracle, rows)
        output = operator.step([upsert(*row) for row in rows])
        table.apply(output)
        assert {row["k"]: row["v"] for row in table.to_list()} == oracle
        changed = {key for key in before.keys() | oracle.keys() if before.get(key) != oracle.get(key)}
        assert {row["k"] for row in output} == changed
        assert len(output) == sum((key in before) + (key in oracle) for key in changed)


@proves("P9", "B1")
@given(st.lists(UPSERTS, max_size=20), st.randoms(use_true_random=False))
def test_a_batch_in_whatever_order_is_put_in_order_by_the_offset(rows: list[Any], chance: Any) -> None:
    oracle: dict[str, int] = {}
    applied(oracle, rows)
    come = [upsert(*row, order) for order, row in enumerate(rows)]
    chance.shuffle(come)
    output = in_a_batch(Upserts(COLUMNS, ("k",)), come, ROW, ["k"])
    assert {row["k"]: row["v"] for row in output} == oracle
    assert {row[OP] for row in output} <= {"+I"}


@proves("P9")
def test_each_kind_of_change_has_its_op() -> None:
    operator = driver()
    assert told(operator.step([upsert("a", 1)])) == [("+I", 0, "a", 1)]
    assert told(operator.step([upsert("a", 2)])) == [("-U", -1, "a", 1), ("+U", 0, "a", 2)]
    assert told(operator.step([upsert("a", 2)])) == []
    assert told(operator.step([upsert("a", None), upsert("b", None)])) == [("-D", -1, "a", 2)]
    assert operator.state() == []


def told(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [(row[OP], row[SEQ], row["k"], row["v"]) for row in rows]


@proves("P9")
def test_a_row_below_the_order_of_the_one_that_is_kept_changes_nothing() -> None:
    operator = driver()
    operator.step([upsert("a", 5, order=5), upsert("a", 3, order=3)])
    assert operator.step([upsert("a", 4, order=4)]) == []
    assert told(operator.step([upsert("a", 6, order=6)])) == [("-U", -1, "a", 5), ("+U", 0, "a", 6)]


@proves("P9")
def test_of_rows_with_the_same_order_the_last_counts_and_one_without_is_before_all_that_have_one() -> None:
    operator = driver()
    come = [upsert("a", 1, order=7), upsert("a", 2, order=7), upsert("a", 3), upsert("b", 4), upsert("b", 5)]
    come += [upsert(None, 6, order=9), upsert("c", 7, order=-(2**63)), upsert("c", 8)]
    assert sorted(told(operator.step(come))) == [("+I", 0, "a", 2), ("+I", 0, "b", 5), ("+I", 1, "c", 8)]


@proves("P9", "F4")
def test_orders_that_are_times_go_on_from_state_that_had_them_in_seconds() -> None:
    operator = driver()
    operator.step([upsert("a", 1, order=100), upsert("b", 1, order=100)])
    for bucket in operator.buckets:
        assert bucket.known is not None
        bucket.known = (json.dumps(json.loads(bucket.known[0]) | {"declared": {}}), bucket.known[1])
    operator.make = lambda: Upserts(COLUMNS, ("k",), "at", "microseconds")
    assert operator.step([upsert("a", 2, order=99_900_000)]) == [], "of the second before"
    assert told(operator.step([upsert("a", 3, order=100_900_000)])) == [("-U", -1, "a", 1), ("+U", 0, "a", 3)]
    assert operator.step([upsert("a", 4, order=100_100_000)]) == []
    assert told(operator.step([upsert("b", 2, order=100_000_001)])) == [("-U", -1, "b", 1), ("+U", 0, "b", 2)]


@proves("P9", "F4")
def test_state_that_was_put_in_order_by_another_column_is_refused() -> None:
    operator = driver()
    operator.make = lambda: Upserts(COLUMNS, ("k",), "offset", "numbers")
    operator.step([upsert("a", 1, order=100)])
    operator.make = lambda: Upserts(COLUMNS, ("k",), "at", "microseconds")
    with pytest.raises(StateMismatch, match="order 'offset', order_in 'numbers', and the query now has order 'at'"):
        operator.step([upsert("a", 2, order=101)])


@proves("P9")
def test_a_row_that_is_only_equal_is_not_kept_and_what_was_put_out_can_be_taken_back() -> None:
    """-0.0 is equal to 0.0, so nothing is told; then what goes is 0.0, or a join would not find it."""
    columns = pa.schema([("k", pa.string()), ("v", pa.float64())])
    row = pa.schema([*columns, pa.field(GONE, pa.bool_()), pa.field(ORDER, pa.int64())])
    operator = Driver(lambda: Upserts(columns, ("k",)), row, ["k"])

    def step(v: float, order: int) -> list[tuple[str, str]]:
        return [(row[OP], str(row["v"])) for row in operator.step([{"k": "a", "v": v, GONE: False, ORDER: order}])]

    assert step(0.0, 1) == [("+I", "0.0")]
    assert step(-0.0, 5) == []
    assert step(2.0, 4) == [], "the order is that of the last row, also where it told nothing"
    assert step(1.0, 6) == [("-U", "0.0"), ("+U", "1.0")]


@proves("P9")
@FEWER
@given(STEPS)
def test_upserts_of_a_changelog_lead_where_the_changelog_leads(steps: list[list[Any]]) -> None:
    operator, oracle, table = driver(), dict[str, int](), dict[str, int]()
    for rows in steps:
        applied(oracle, rows)
        output = operator.step([upsert(*row) for row in rows])
        net = upserts_of(changes(*reversed(told(output))), ["k"]).to_pylist()
        assert len({row["k"] for row in net}) == len(net)
        applied(table, [(row["k"], None if row[DELETED] else row["v"]) for row in net])
        assert table == oracle


@proves("P9")
def test_a_key_that_moved_between_tasks_is_one_upsert() -> None:
    """An old row and its replacement from two tasks: whatever comes first, the key is not deleted."""
    fold = Driver(lambda: Netting(CHANGELOG, ("k",)), CHANGELOG, ["k"])
    rows = changes(("+I", 3, "a", 2), ("-D", -1, "a", 1), ("-D", -7, "b", 5)).to_pylist()
    assert sorted(fold.step(rows), key=str) == [
        {"k": "a", "v": 2, DELETED: False},
        {"k": "b", "v": 5, DELETED: True},
    ]
    assert fold.state() == []


@proves("P9")
def test_a_table_is_a_multiset() -> None:
    table = Table()
    table.apply(changes(("+I", 0, "a", 1), ("+U", 1, "a", 1)).to_pylist())
    assert table.to_list() == 2 * [{"k": "a", "v": 1}]
    table.apply(changes(("-D", 0, "a", 1)).to_pylist())
    assert table.to_list() == [{"k": "a", "v": 1}]


@proves("P9")
def test_what_is_no_changelog_is_refused() -> None:
    with pytest.raises(UsageError, match="_op is '\\+X'; a changelog has"):
        upserts_of(changes(("+X", 0, "a", 1)), ["k"])
    with pytest.raises(UsageError, match="which is not in the table"):
        Table().apply(changes(("+I", 0, "a", 1), ("-U", 1, "a", 2)).to_pylist())
    with pytest.raises(UsageError, match="a row of that key, which was not taken away"):
        Table(by=["k"]).apply(changes(("+I", 0, "a", 1), ("+U", 1, "a", 2)).to_pylist())
    with pytest.raises(UsageError, match="a changelog has"):
        Table().apply([{OP: "?", SEQ: 0, "k": "a"}])


@proves("P9")
def test_a_table_takes_a_micro_batch_in_the_order_of_its_seq() -> None:
    table = Table(by=["k"])
    table.apply(changes(("+I", 0, "a", 1)).to_pylist())
    table.apply(changes(("+U", 0, "a", 2), ("-U", -1, "a", 1)).to_pylist())
    assert table.rows == Counter({(("k", "a"), ("v", 2)): 1})


@proves("P9")
def test_a_table_takes_rows_dicts_and_tuples_alike() -> None:
    from pyspark.sql import Row as SparkRow

    given = [
        SparkRow(_op="+I", _seq=0, k="a", v=SparkRow(n=1)),
        {OP: "+I", SEQ: 0, "k": "a", "v": {"n": 1}},
        ("+I", 0, "a", {"n": 1}),
    ]
    for change in given:
        table = Table(by=["k"], columns=[OP, SEQ, "k", "v"])
        table.apply([change])
        assert table.to_list() == [{"k": "a", "v": (("n", 1),)}]
    with pytest.raises(
        UsageError, match=r"it does not have names, .* columns are not known; give a Row, a dict, or a tuple of"
    ):
        Table().apply([("+I", 0, "a", 1)])
