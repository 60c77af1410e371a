"""State goes on with the parameters that it was made with: others are refused by name, before anything is written."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelog
from pipelines.operators.joins.driving import KEYED
from pipelines.operators.state.counting import Counting
from pipelines.operators.state.test_bucket import LAYOUT, Kept
from proving import proves
from tidelog.errors import StateMismatch
from tidelog.pipelines.operators import aggregates as agg
from tidelog.pipelines.operators.changes import Changes
from tidelog.pipelines.operators.dedup import Once
from tidelog.pipelines.operators.joins.as_of import AsOf
from tidelog.pipelines.operators.joins.tables import TableJoin
from tidelog.pipelines.operators.state.bucket import step_bucket
from tidelog.pipelines.operators.state.fold import HASH, Clock, Fold, Step
from tidelog.pipelines.operators.windows.grid import Grid
from tidelog.pipelines.operators.windows.grid_fold import GridFold
from tidelog.pipelines.operators.windows.session_fold import SessionFold
from tidelog.pipelines.operators.windows.spec import Spec
from tidelog.pipelines.operators.windows.throttled import Throttled

MINUTE = 60_000_000
TESTS = Path(__file__).resolve().parents[3]
PLACES = (TESTS, Path(tidelog.__file__).parents[1])
ROWS = pa.schema([("user", pa.string()), ("at", pa.timestamp("us", tz="UTC")), ("x", pa.int64()), ("y", pa.int64())])


def spec(**more: Any) -> Spec:
    return Spec(ROWS, "at", ("user",), (("n", more.pop("n", agg.sum("x"))),), **more)


SPEC = spec()


def windows(size: int = 1, every: int | None = None, offset: int = 0, **more: Any) -> GridFold:
    return GridFold(spec(**more), Grid(size * MINUTE, (every or size) * MINUTE, offset * MINUTE))


def step(fold: Fold, kept: Kept) -> None:
    nothing = pa.schema([(HASH, pa.int64())]).empty_table()
    output = fold.output_schema.empty_table()
    step_bucket(fold, kept, LAYOUT, nothing, Clock(None, 0), lambda state, *_: Step(state, output))


def went_on(made: Fold, now: Fold) -> Kept:
    """State of the one that the other goes on with."""
    kept = Kept()
    step(made, kept)
    before = kept.known
    try:
        step(now, kept)
    except StateMismatch:
        assert kept.known == before, "nothing is written"
        raise
    return kept


@dataclass(frozen=True)
class Rule:
    limit: float
    name: str = "rule"
    alarm: int = field(default=1, compare=False)


class Other(Rule):
    pass


@dataclass(frozen=True)
class Ruled(Counting):
    """A fold of a user's, with all that its parameters may be."""

    low: Rule | None = Rule(1)
    high: Rule = Rule(9)
    more: tuple[Any, ...] = (Rule(2), (Rule(3),))
    aggregates: tuple[Any, ...] = ("sum", "count")
    spec: Spec = SPEC
    share: tuple[float, ...] = (float("nan"), 1)
    kind: type = Rule


REFUSED: dict[str, tuple[Fold, Fold, str]] = {
    "size": (windows(1), windows(5), "size 0:01:00, and the query now has every 0:05:00, size 0:05:00"),
    "every": (windows(6, 2), windows(6, 3), "was made with every 0:02:00, and the query now has every 0:03:00"),
    "offset": (windows(5), windows(5, offset=1), "offset 0:00:00, and the query now has offset 0:01:00"),
    "allowed": (windows(allowed=MINUTE), windows(allowed=2 * MINUTE), "allowed_lateness 0:01:00"),
    "early": (windows(allowed=MINUTE), windows(allowed=MINUTE, early=True), "early False, and the query now has early"),
    "gap": (SessionFold(spec(), MINUTE), SessionFold(spec(), 2 * MINUTE), "was made with gap 0:01:00"),
    "column": (windows(n=agg.sum("x")), windows(n=agg.sum("y")), "n sum(column='x'), and the query now has"),
    "kind": (windows(n=agg.max("x")), windows(n=agg.min("x")), "aggregate n extreme(column='x', largest=True)"),
    "how": (TableJoin(KEYED, "inner"), TableJoin(KEYED, "left"), "with how 'inner', and the query now has how 'left'"),
    "within": (
        Once(ROWS, "at", ("user",), 5),
        Once(ROWS, "at", ("user",), 6),
        "within (or forget_after) 0:00:00.000005",
    ),
    "at_least": (
        Changes(ROWS, "at", ("user",), None, ("x",), 0.5),
        Changes(ROWS, "at", ("user",), None, ("x",), 0.7),
        "was made with at_least 0.5, and the query now has at_least 0.7",
    ),
    "within another": (
        Throttled(windows(early=True), spec(early=True), 10),
        Throttled(windows(5, early=True), spec(early=True), 10),
        "the state of 'windows on a grid, held back' was made with every 0:01:00",
    ),
    "the first of two": (Ruled(), Ruled(low=Rule(2)), "with low.limit 1, and the query now has low.limit 2;"),
    "the second of two": (Ruled(), Ruled(high=Rule(8)), "with high.limit 9, and the query now has high.limit 8;"),
    "a name within": (Ruled(), Ruled(low=Rule(1, "r")), "low.name 'rule', and the query now has low.name 'r';"),
    "a class within": (Ruled(), Ruled(low=Other(1)), "with low 'Rule', and the query now has low 'Other';"),
    "none within": (Ruled(low=None), Ruled(), "with low None, and the query now has low 'Rule';"),
    "one in a tuple": (Ruled(), Ruled(more=(Rule(2), (Rule(4),))), "with more [['Rule', {'limit': 2, 'name': 'rule'}]"),
    "fewer in a tuple": (
        Ruled(),
        Ruled(more=(Rule(2),)),
        "the query now has more [['Rule', {'limit': 2, 'name': 'rule'",
    ),
    "called as ours": (Ruled(), Ruled(aggregates=("sum",)), "with aggregates ['sum', 'count'], and the query now has"),
    "of ours within": (Ruled(), Ruled(spec=spec(n=agg.sum("y"))), "with spec.aggregates [['n', ['Sum', {'column': 'x'"),
    "a number for none": (Ruled(), Ruled(share=(0.5, 1)), "with share [nan, 1], and the query now has share [0.5, 1];"),
}


@proves("P1", "F4")
@pytest.mark.parametrize(("made", "now", "said"), REFUSED.values(), ids=REFUSED)
def test_state_that_was_made_with_another_parameter_is_refused_by_its_name(made: Fold, now: Fold, said: str) -> None:
    with pytest.raises(StateMismatch, match=re.escape(said)) as refused:
        went_on(made, now)
    assert "take a new checkpoint (for a view: tidelog rebuild)" in str(refused.value)


FREE: dict[str, tuple[Fold, Fold]] = {
    "nothing": (windows(n=agg.collect_list("x", limit=3)), windows(n=agg.collect_list("x", limit=3))),
    "where late rows go": (windows(allowed=MINUTE), windows(allowed=MINUTE, diverts=True)),
    "another column of the input": (
        windows(),
        replace(windows(), spec=replace(spec(), rows=ROWS.append(pa.field("z", pa.int8())))),
    ),
    "how often early results come": (
        Throttled(windows(early=True), spec(early=True), 10),
        Throttled(windows(early=True), spec(early=True), 20),
    ),
    "how long deletions are remembered": (AsOf(KEYED, 5), AsOf(KEYED, 6)),
    "the same number": (
        Changes(ROWS, "at", ("user",), None, ("x",), 1),
        Changes(ROWS, "at", ("user",), None, ("x",), 1.0),
    ),
    "nothing, and some of it is no number": (Ruled(), Ruled()),
    "what no comparison looks at": (Ruled(), Ruled(low=Rule(1, alarm=2), more=(Rule(2, alarm=2), (Rule(3),)))),
    "what may change in ours": (Ruled(), Ruled(spec=spec(diverts=True))),
}


@proves("P1", "F4")
@pytest.mark.parametrize(("made", "now"), FREE.values(), ids=FREE)
def test_what_no_state_rests_on_may_change(made: Fold, now: Fold) -> None:
    went_on(made, now)


@proves("P1", "F4")
def test_state_from_before_parameters_were_kept_takes_the_present_ones() -> None:
    kept = went_on(windows(), windows())
    assert kept.known is not None
    header = json.loads(kept.known[0])
    del header["declared"]
    kept.known = (json.dumps(header), kept.known[1])
    for _ in range(2):
        step(windows(5), kept)
    with pytest.raises(StateMismatch, match="was made with every 0:05:00"):
        step(windows(1), kept)


@proves("P1", "F4")
def test_state_from_before_names_within_a_field_had_its_name_goes_on() -> None:
    kept = went_on(Ruled(), Ruled())
    assert kept.known is not None
    header = json.loads(kept.known[0])
    header["declared"] = {"forget_after": None, "limit": 9, "aggregate n": ["Sum", {"column": "x"}], "by": ["user"]}
    kept.known = (json.dumps(header), kept.known[1])
    step(Ruled(low=Rule(5)), kept)
    with pytest.raises(StateMismatch, match=r"was made with low\.limit 5, and the query now has low\.limit 1;"):
        step(Ruled(), kept)


@proves("P1", "F4")
@pytest.mark.slow
def test_parameters_are_the_same_text_in_every_process() -> None:
    script = (
        "import json\n"
        "from pipelines.operators.state.test_parameters import FREE, REFUSED\n"
        "from tidelog.pipelines.operators.state.parameters import parameters_of\n"
        "folds = [fold for some in (*REFUSED.values(), *FREE.values()) for fold in some[:2]]\n"
        "print(json.dumps([parameters_of(fold) for fold in folds]))"
    )
    found = set()
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(map(str, PLACES))}
        ended = subprocess.run([sys.executable, "-c", script], env=env, cwd=TESTS, capture_output=True, check=False)
        assert ended.returncode == 0, ended.stderr.decode()
        found.add(ended.stdout)
    (text,) = found
    assert b" at 0x" not in text and b'"size": 60000000' in text
