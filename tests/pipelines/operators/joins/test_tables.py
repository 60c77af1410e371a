"""A table with a table, without Spark: after every step the changelog adds up to what SQL says of both tables."""

from __future__ import annotations

import sqlite3
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.operators.joins.driving import FEWER, KEYED, Driver, Row, in_a_batch, left, right
from proving import proves
from tidelog.errors import UsageError
from tidelog.pipelines.operators.changelog import COUNT, OP, RETRACTIONS, SEQ, Table
from tidelog.pipelines.operators.joins.sides import Columns
from tidelog.pipelines.operators.joins.tables import KINDS, TableJoin
from tidelog.pipelines.operators.state.fold import SIDE

ROW = pa.schema([(SIDE, pa.int8()), (COUNT, pa.int64()), *KEYED.all])

SQL = {
    "inner": "select a.k, a.v, b.v from a join b on a.k = b.k",
    "left": "select a.k, a.v, b.v from a left join b on a.k = b.k",
    "right": "select b.k, a.v, b.v from a right join b on a.k = b.k",
    "full": "select coalesce(a.k, b.k), a.v, b.v from a full join b on a.k = b.k",
    "semi": "select a.k, a.v from a where exists (select 1 from b where a.k = b.k)",
    "anti": "select a.k, a.v from a where not exists (select 1 from b where a.k = b.k)",
}


def of_left(k: str | None, number: int, count: int = 1) -> Row:
    return left(k=k, l=number, **{COUNT: count})


def of_right(k: str | None, number: int, count: int = 1) -> Row:
    return right(k=k, r=number, **{COUNT: count})


def driver(how: str) -> Driver:
    return Driver(lambda: TableJoin(KEYED, how), ROW, ["k"])


def joined(how: str, lefts: Counter[Any], rights: Counter[Any]) -> Counter[Any]:
    with sqlite3.connect(":memory:") as sql:
        sql.execute("create table a (k text, v int)")
        sql.execute("create table b (k text, v int)")
        sql.executemany("insert into a values (?, ?)", lefts.elements())
        sql.executemany("insert into b values (?, ?)", rights.elements())
        found = Counter(sql.execute(SQL[how]).fetchall())
    sql.close()
    return found


def rows_of(table: Table) -> Counter[Any]:
    return Counter({tuple(value for _, value in row): count for row, count in table.rows.items()})


class Tables:
    """Both tables as they are, and what they may become: only what is there can be taken away."""

    def __init__(self) -> None:
        self.rows: tuple[Counter[Any], Counter[Any]] = (Counter(), Counter())

    def change(self, side: int, key: str | None, number: int, take_away: bool) -> Row:
        rows, row = self.rows[side], (key, number)
        count = -1 if take_away and rows[row] > 0 else 1
        rows[row] += count
        return (of_left, of_right)[side](key, number, count)


CHANGES = st.tuples(st.integers(0, 1), st.sampled_from(["a", "b", None]), st.integers(0, 2), st.booleans())
STEPS = st.lists(st.lists(CHANGES, max_size=8), max_size=8)


@proves("P9")
@pytest.mark.parametrize("how", KINDS)
@FEWER
@given(steps=STEPS)
def test_after_every_step_the_changelog_adds_up_to_the_join(how: str, steps: list[list[Any]]) -> None:
    """`Table` refuses a retraction of what is not there, so each one names exactly a row that was put out before."""
    operator, tables, table = driver(how), Tables(), Table()
    for changes in steps:
        before = rows_of(table)
        output = operator.step([tables.change(*change) for change in changes])
        table.apply(output)
        assert rows_of(table) == joined(how, *tables.rows)
        assert len(output) == (rows_of(table) - before).total() + (before - rows_of(table)).total()
        kept = sum(count for rows in tables.rows for row, count in rows.items() if row[0] is not None)
        assert sum(row[COUNT] for row in operator.state()) == kept


@proves("P9", "B1")
@pytest.mark.parametrize("how", KINDS)
@FEWER
@given(changes=st.lists(CHANGES, max_size=20))
def test_the_batch_answer_is_the_join(how: str, changes: list[Any]) -> None:
    tables, table = Tables(), Table()
    rows = [tables.change(*change) for change in changes]
    table.apply(in_a_batch(TableJoin(KEYED, how), rows, ROW, ["k"]))
    assert rows_of(table) == joined(how, *tables.rows)


@proves("P9")
@pytest.mark.parametrize("how", KINDS)
@FEWER
@given(changes=st.lists(CHANGES, max_size=12), chance=st.randoms(use_true_random=False))
def test_the_order_within_a_step_does_not_matter(how: str, changes: list[Any], chance: Any) -> None:
    tables = Tables()
    rows = [tables.change(*change) for change in changes]
    answers = []
    for _ in range(2):
        table = Table()
        table.apply(driver(how).step(rows))
        answers.append(rows_of(table))
        chance.shuffle(rows)
    assert answers[0] == answers[1]


def told(output: list[Row]) -> list[tuple[Any, ...]]:
    return [(row[OP], row["k"], row["l"], row["r"]) for row in sorted(output, key=lambda row: row[SEQ])]


@proves("P9")
def test_an_outer_row_goes_when_the_first_match_comes_and_comes_back_when_the_last_one_goes() -> None:
    operator = driver("left")
    assert told(operator.step([of_left("a", 1)])) == [("+I", "a", 1, None)]
    assert told(operator.step([of_right("a", 7)])) == [("-D", "a", 1, None), ("+I", "a", 1, 7)]
    assert told(operator.step([of_right("a", 8)])) == [("+I", "a", 1, 8)]
    assert told(operator.step([of_right("a", 7, -1)])) == [("-D", "a", 1, 7)]
    assert told(operator.step([of_right("a", 8, -1)])) == [("-D", "a", 1, 8), ("+I", "a", 1, None)]
    assert told(operator.step([of_left("a", 1, -1)])) == [("-D", "a", 1, None)]
    assert operator.state() == []


@proves("P9")
def test_both_sides_change_at_once_and_only_what_changed_in_all_is_told() -> None:
    operator = driver("full")
    operator.step([of_left("a", 1), of_right("a", 7)])
    assert told(operator.step([of_left("a", 1, -1), of_left("a", 2), of_right("a", 7, -1), of_right("a", 8)])) == [
        ("-D", "a", 1, 7),
        ("+I", "a", 2, 8),
    ]
    assert operator.step([of_left("a", 2, -1), of_left("a", 2), of_right("b", 1), of_right("b", 1, -1)]) == []


@proves("P9")
def test_a_row_that_is_there_twice_is_joined_twice() -> None:
    operator = driver("inner")
    assert len(operator.step([of_left("a", 1), of_left("a", 1), of_right("a", 7)])) == 2
    assert told(operator.step([of_left("a", 1, -1)])) == [("-D", "a", 1, 7)]
    assert [(row[SIDE], row[COUNT]) for row in operator.state()] == [(0, 1), (1, 1)]


@proves("P9")
def test_null_keys_meet_nothing_but_their_outer_rows_are_there_and_need_no_state() -> None:
    operator = driver("full")
    output = operator.step([of_left(None, 1), of_right(None, 7)])
    assert told(output) == [("+I", None, 1, None), ("+I", None, None, 7)]
    assert operator.state() == []
    assert told(operator.step([of_left(None, 1, -1)])) == [("-D", None, 1, None)]


@proves("P9")
def test_a_retraction_of_what_is_not_there_is_refused() -> None:
    operator = driver("inner")
    operator.step([of_left("a", 1)])
    with pytest.raises(UsageError, match=r"a delete of a row that does not exist: .*'l': 2.*as_changelog"):
        operator.step([of_left("a", 2, -1)])


ORDERS = Columns(pa.schema([("k", pa.string())]), pa.schema([("id", pa.int64()), ("fk", pa.string())]), KEYED.right)
ORDER_ROW = pa.schema([(SIDE, pa.int8()), (COUNT, pa.int64()), *ORDERS.all])
FOREIGN = st.one_of(st.sampled_from(["a", "b", "c"]), st.none())


@proves("P9")
@pytest.mark.parametrize("how", ["inner", "left"])
@FEWER
@given(
    steps=st.lists(
        st.lists(st.one_of(st.tuples(st.just(0), st.integers(0, 3), FOREIGN, st.booleans()), CHANGES), max_size=6),
        max_size=8,
    )
)
def test_a_foreign_key_that_changes_moves_its_row_and_its_old_one_goes_first(how: str, steps: list[Any]) -> None:
    """`Table` by primary key refuses a row that comes before its old one went, though both come from different buckets.

    This is the trap of a foreign key that becomes null: the old result has to go.
    """
    operator, table = Driver(lambda: TableJoin(ORDERS, how), ORDER_ROW, ["k"]), Table(by=["id"])
    orders: dict[int, str | None] = {}
    people: dict[str, int] = {}
    for number, changes in enumerate(steps):
        rows = []
        for side, key, value, gone in changes:
            if side == 0 and isinstance(key, int):
                rows += [left(k=orders[key], id=key, fk=orders[key], **{COUNT: -1})] if key in orders else []
                orders.pop(key, None)
                if not gone:
                    orders[key] = value
                    rows.append(left(k=value, id=key, fk=value, **{COUNT: 1}))
            elif side == 1 and key is not None:
                rows += [of_right(key, people[key], -1)] if key in people else []
                people.pop(key, None)
                if not gone:
                    people[key] = number
                    rows.append(of_right(key, number))
        output = [{name: row[name] for name in (OP, SEQ, "id", "fk", "r")} for row in operator.step(rows)]
        table.apply(reversed(output))
        expected = {(key, fk, people.get(fk or "")) for key, fk in orders.items() if how == "left" or fk in people}
        assert set(rows_of(table)) == expected


@proves("P9")
def test_retractions_of_all_buckets_come_before_additions_of_any() -> None:
    operator = Driver(lambda: TableJoin(ORDERS, "inner"), ORDER_ROW, ["k"])
    operator.step([of_right("a", 1), of_right("b", 2), left(k="a", id=1, fk="a", **{COUNT: 1})])
    moved = [left(k="a", id=1, fk="a", **{COUNT: -1}), left(k="b", id=1, fk="b", **{COUNT: 1})]
    output = operator.step(moved)
    assert {(row[OP] in RETRACTIONS) == (row[SEQ] < 0) for row in output} == {True}
    assert [(row[OP], row["fk"]) for row in sorted(output, key=lambda row: row[SEQ])] == [("-D", "a"), ("+I", "b")]


@proves("P9")
@FEWER
@given(st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 9)), max_size=4), max_size=6))
def test_the_sum_of_all_balances_is_zero_after_every_step(steps: list[list[tuple[int, int, int]]]) -> None:
    """Transfers change two accounts at once; no step shows one without the other."""
    operator, table = driver("inner"), Table()
    balances = dict.fromkeys(range(4), 0)
    operator.step([of_right(str(account), account) for account in balances])
    table.apply(operator.step([of_left(str(account), 0) for account in balances]))
    for transfers in steps:
        rows = []
        for source, target, amount in transfers:
            for account, change in ((source, -amount), (target, amount)):
                rows.append(of_left(str(account), balances[account], -1))
                balances[account] += change
                rows.append(of_left(str(account), balances[account]))
        table.apply(operator.step(rows))
        assert sum(row["l"] for row in table.to_list()) == 0
        assert {row["r"]: row["l"] for row in table.to_list()} == balances
