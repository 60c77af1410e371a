"""What is wrong with a fold, or with what its step gives, is told by fold, column and what to do. Without Spark."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipelines.operators.state.counting import ROW, Counting
from pipelines.operators.state.test_bucket import LAYOUT, Kept, table
from proving import proves
from tidelog.errors import UsageError
from tidelog.pipelines.operators.state.bucket import Header, step_bucket
from tidelog.pipelines.operators.state.checking import check_fold, check_keys, checked_step
from tidelog.pipelines.operators.state.fold import DUE, END_OF_TIME, HASH, Clock, Step
from tidelog.pipelines.operators.state.operator import _whole
from tidelog.pipelines.operators.state.processor import SparkStore


@dataclass(frozen=True)
class Declared(Counting):
    """Counting, but for what a test says."""

    state: Any = Counting().state_schema
    output: Any = Counting().output_schema

    @property
    def state_schema(self) -> Any:
        return self.state

    @property
    def output_schema(self) -> Any:
        return self.output


class Unfrozen:
    name = "loose"
    version = 1
    state_schema = Counting().state_schema
    output_schema = Counting().output_schema

    def step(self, state: pa.Table, rows: pa.Table, clock: Clock) -> Step:
        return Step(state, rows)


@dataclass
class Changeable(Unfrozen):
    limit: int = 1


class Nothing:
    name = "nothing"


def without(schema: pa.Schema, name: str) -> pa.Schema:
    return schema.remove(schema.get_field_index(name))


KEPT, OUT = Counting().state_schema, Counting().output_schema
WRONG: dict[str, tuple[Any, str]] = {
    "a class": (Counting, "Counting is a class, and a fold is one of it; give Counting(...)"),
    "no version": (Nothing(), "Nothing has no version; a fold has name, version, state_schema, output_schema, step"),
    "no name": (Declared(name=""), "Declared has the name ''; give it a text"),
    "no version yet": (Declared(version=0), "fold 'counting' has version 0; versions count up from 1"),
    "no dataclass": (Unfrozen(), "fold 'loose' could change while it runs"),
    "one that is not frozen": (Changeable(), "put @dataclass(frozen=True) above class Changeable"),
    "no hash": (Declared(state=without(KEPT, HASH)), "fold 'counting' lacks '_hash', which a row is found by; add it"),
    "no due": (Declared(state=without(KEPT, DUE)), "the state_schema of fold 'counting' lacks '_due'"),
    "a due of another type": (
        Declared(state=without(KEPT, DUE).append(pa.field(DUE, pa.timestamp("ms")))),
        "the state_schema of fold 'counting' has '_due' as timestamp[ms]; it is an int64",
    ),
    "a list of columns": (Declared(output=["key"]), "the output_schema of fold 'counting' is a list; it is a pyarrow"),
    "a column twice": (Declared(state=KEPT.append(KEPT.field("n"))), "state_schema of fold 'counting' has 'n' twice"),
    "no type of Spark's": (
        Declared(output=OUT.append(pa.field("size", pa.uint64()))),
        "the output_schema of fold 'counting' has 'size' as uint64, which Spark does not have",
    ),
}


@proves("P1")
@pytest.mark.parametrize(("fold", "said"), WRONG.values(), ids=WRONG)
def test_a_fold_that_is_none_is_refused_where_it_is_declared(fold: Any, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        check_fold(fold)


@proves("P1")
def test_keys_and_an_event_time_that_are_no_columns_are_refused_where_they_are_declared() -> None:
    fold = Counting()
    assert check_keys(fold, "key", ["key", "value"]) == ["key"]
    assert check_keys(fold, ("value", "key"), ["key", "value"]) == ["value", "key"]
    with pytest.raises(UsageError, match="fold 'counting' is by 'kye', and its rows have only key, value"):
        check_keys(fold, ["key", "kye"], ["key", "value"])
    with pytest.raises(UsageError, match="fold 'counting' has no key; name its columns, or one that is the same in"):
        check_keys(fold, [], ["key"])
    check_fold(fold, "last")
    with pytest.raises(UsageError, match="event_time is 'at', which fold 'counting' does not put out; it puts out key"):
        check_fold(fold, "at")


def changed(name: str, values: Any) -> Callable[[pa.Table], pa.Table]:
    def change(made: pa.Table) -> pa.Table:
        return made.set_column(made.schema.get_field_index(name), name, values)

    return change


def dropped(name: str) -> Callable[[pa.Table], pa.Table]:
    return lambda made: made.drop_columns([name])


def step_with(**changes: Any) -> Callable[[pa.Table, pa.Table, Clock], Any]:
    """Counting's step, with another state or output."""

    def step(state: pa.Table, rows: pa.Table, clock: Clock) -> Step:
        given = Counting().step(state, rows, clock)
        made = {name: change(getattr(given, name)) if callable(change) else change for name, change in changes.items()}
        return given._replace(**made)

    return step


STRANGE: dict[str, tuple[Callable[..., Any], str]] = {
    "no step": (lambda *_: None, "the step of fold 'counting' gave a NoneType; it gives Step(state, output)"),
    "a pair": (lambda *given: tuple(Counting().step(*given)), "fold 'counting' gave a tuple; it gives Step(state"),
    "a list": (step_with(output=[1]), "fold 'counting' gave a list as output; it gives a pyarrow.Table"),
    "state without a hash": (
        step_with(state=dropped(HASH)),
        "fold 'counting' gave state without the column '_hash'; it has _due int64, key string, n int64, last int64, "
        "and is to have _hash int64, _due int64, key string, n int64, last int64",
    ),
    "output without a column": (step_with(output=dropped("n")), "gave output without the column 'n'; it has key"),
    "a column twice": (
        step_with(output=lambda made: made.append_column("n", made["n"]).drop_columns(["last"])),
        "fold 'counting' gave output twice with the column 'n'",
    ),
    "state of another type": (
        step_with(state=changed("n", pa.array(["many", "more"]))),
        "fold 'counting' gave state with the column 'n' as string, which is not int64 (Failed to parse string",
    ),
    "output that would lose": (
        step_with(output=changed("n", pa.array([1.5, 2.0]))),
        "gave output with the column 'n' as double, which is not int64",
    ),
    "a hash that is null": (
        step_with(state=changed(HASH, pa.nulls(2, pa.int64()))),
        "fold 'counting' gave a state row whose '_hash' is null",
    ),
    "a hash that was not given": (
        step_with(state=changed(HASH, pa.array([7, 7]))),
        "fold 'counting' gave a state row with _hash 7, which no row and no state that it was given has",
    ),
    "what is due": (
        step_with(state=changed(DUE, pa.array([None, 1_000], pa.int64()))),
        "kept a row whose '_due' is 1000 (1970-01-01 00:00:01), and the watermark is 5000 (1970-01-01 00:00:05)",
    ),
    "counts that are none": (step_with(counts={"in": 1.5}), "gave counts {'in': 1.5}; each is a whole number"),
}


@proves("P1")
@pytest.mark.parametrize(("step", "said"), STRANGE.values(), ids=STRANGE)
def test_a_step_that_gives_something_else_is_refused_and_nothing_is_written(step: Any, said: str) -> None:
    kept, rows = Kept(), table([("1", 0, 0), ("2", 0, 0)])
    with pytest.raises(UsageError, match=re.escape(said)):
        step_bucket(Counting(), kept, LAYOUT, rows, Clock(5_000, 0), step)
    assert (kept.known, kept.pages, kept.timer) == (None, {}, None)


@dataclass(frozen=True)
class Dropping(Counting):
    def step(self, state: pa.Table, rows: pa.Table, clock: Clock) -> Step:
        return step_with(output=dropped("n"))(state, rows, clock)


@proves("P1", "B1")
def test_a_batch_is_told_the_same() -> None:
    with pytest.raises(UsageError, match="fold 'counting' gave output without the column 'n'"):
        _whole(Dropping(), ["key"])(table([("1", 0, 0)]))


@proves("P1")
def test_what_can_be_cast_is_and_what_nobody_asked_for_is_left_out() -> None:
    fold, rows = Counting(), table([("1", 0, 0), ("2", 0, 0)])
    more = step_with(
        state=lambda made: changed("n", made["n"].cast(pa.int8()))(made).append_column("more", made["n"]),
        output=lambda made: made.select(["n", "key", "last", "forgotten"]),
        counts={"in": np.int64(2)},
    )
    step = checked_step(fold, fold.state_schema.empty_table(), rows, Clock(None, 0), more)
    assert (step.state.schema, step.output.schema) == (fold.state_schema, fold.output_schema)
    kept = Kept()
    step_bucket(fold, kept, LAYOUT, rows, Clock(None, 0), more)
    assert kept.known is not None
    assert Header.decode(kept.known[0]).counts == {"in": 2}


@proves("P1")
def test_at_the_end_of_time_nothing_is_looked_at_again() -> None:
    left = step_with(state=changed(DUE, pa.array([1_000])))
    checked_step(Counting(), KEPT.empty_table(), table([("1", 0, 0)]), Clock(END_OF_TIME, 0), left)


@dataclass(frozen=True)
class Misspelt(Counting):
    def step(self, state: pa.Table, rows: pa.Table, clock: Clock) -> Step:
        return Step(state, rows.select(["valeu"]))


@proves("P1")
def test_an_error_in_a_step_is_its_own_and_says_what_columns_there_were() -> None:
    with pytest.raises(KeyError, match="valeu") as raised:
        checked_step(Misspelt(), KEPT.empty_table(), table([]), Clock(None, 0))
    (note,) = raised.value.__notes__
    assert note.startswith("fold 'counting' was given rows with key string, value int64, at int64, _hash int64; state")


@dataclass(frozen=True)
class Forgetful(Counting):
    version: int = 2

    def upgrade(self, state: pa.Table, version: int) -> pa.Table:
        return state.drop_columns(["last"])


@proves("P1", "F4")
def test_an_upgrade_that_lacks_a_column_is_refused() -> None:
    kept = Kept()
    kept.step(Counting(), [("1", 0, 0)])
    with pytest.raises(UsageError, match="fold 'counting' gave state without the column 'last'"):
        kept.step(Forgetful(), [("1", 0, 0)])


class Handle:
    """What the store asks of Spark's where nothing is kept."""

    def getValueState(self, *_: Any) -> None: ...

    def getMapState(self, *_: Any) -> None: ...


@proves("P1", "P7")
def test_a_fold_that_would_never_be_woken_is_told_that_event_time_is_missing() -> None:
    store = SparkStore(Handle(), untimed="unpaid")  # type: ignore[arg-type]
    store.set_timer(None, None)
    with pytest.raises(UsageError, match=r"fold 'unpaid' kept a row with a '_due'.*no event time; declare it before"):
        store.set_timer(None, 1_000)


@dataclass(frozen=True)
class Limited(Counting):
    k: int = 3  # a name that may change in a fold of ours
    size: int = 100
    within: timedelta = timedelta(hours=1)
    alarm: int = field(default=1, compare=False)


@proves("P1", "F4")
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("k", 4, "was made with k 3, and the query now has k 4"),
        ("size", 200, "was made with size 100, and the query now has size 200"),
        ("within", timedelta(hours=2), "was made with within '1:00:00', and the query now has within '2:00:00'"),
    ],
)
def test_any_parameter_of_a_fold_of_ones_own_is_kept_beside_its_state(name: str, value: Any, said: str) -> None:
    kept = Kept()
    kept.step(Limited(), [("1", 0, 0)])
    with pytest.raises(UsageError, match=said):
        kept.step(replace(Limited(), **{name: value}), [("1", 0, 0)])
    kept.step(Limited(alarm=2), [("1", 0, 0)])


@proves("P1", "F4")
def test_state_by_other_keys_is_refused() -> None:
    kept = Kept()
    for keys in ((), ("key",), ("key",)):
        step_bucket(Counting(), kept, LAYOUT, ROW.empty_table(), Clock(None, 0), keys=keys)
    with pytest.raises(UsageError, match=re.escape("key columns ['key'], and the query now has key columns ['value'")):
        step_bucket(Counting(), kept, LAYOUT, ROW.empty_table(), Clock(None, 0), keys=("value", "key"))
