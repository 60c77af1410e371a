"""Questions to a bucket, without Spark: they change nothing, and each is answered once, from the state that is left."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.operators.state.counting import Counting
from pipelines.operators.state.test_bucket import LAYOUT, Kept, table
from proving import proves
from tidelog.errors import UsageError
from tidelog.pipelines.operators.state.bucket import is_due
from tidelog.pipelines.operators.state.fold import HASH, Clock
from tidelog.pipelines.operators.state.questions import (
    ANSWER,
    ASKED,
    ID_BYTES,
    QUESTION,
    QUESTION_BYTES,
    ROWS_MAX,
    WRONG,
    answers_of,
    as_json,
    key_in,
    keys_of,
    question_schema,
    with_answers,
)

KEYS = pa.schema([("key", pa.string())])
NUMBERS = st.integers(0, 11)
STEPS = st.lists(
    st.tuples(
        st.lists(st.tuples(NUMBERS.map(str), st.integers(0, 5), st.integers(0, 50)), max_size=8),
        st.lists(NUMBERS.map(str), max_size=6),
        st.integers(0, 80),
    ),
    max_size=8,
)


def put(kept: Kept, fold: Counting, keys: Sequence[str], clock: Clock) -> list[tuple[str, dict[str, Any]]]:
    """Questions with numbers as ids; what is answered to each."""
    hashed = table([(key, 0, 0) for key in keys])
    columns = [pa.array([str(n) for n in range(len(keys))], pa.string()), pa.nulls(len(keys), pa.string())]
    schema = question_schema(KEYS).append(pa.field(HASH, pa.int64()))
    asked = pa.Table.from_arrays([*columns, hashed["key"], hashed[HASH]], schema=schema)
    answers = answers_of(fold, kept, LAYOUT, asked, ["key"], clock)
    return [(row[QUESTION], json.loads(row[ANSWER])) for row in answers.to_pylist()]


@given(STEPS)
@proves("P6")
def test_questions_change_nothing_and_each_is_answered_once_from_the_state_that_is_left(steps: Any) -> None:
    fold, asked, alone = Counting(forget_after=10), Kept(), Kept()
    watermark = 0
    for rows, questions, later in steps:
        watermark = max(watermark, later)
        clock = Clock(watermark, 0)
        made = asked.step(fold, rows, watermark)
        before = (asked.known, dict(asked.pages), asked.timer)
        answers = put(asked, fold, questions, clock)
        assert (asked.known, dict(asked.pages), asked.timer) == before
        assert made == alone.step(fold, rows, watermark)
        assert (asked.known, asked.pages, asked.timer) == (alone.known, alone.pages, alone.timer)
        assert [name for name, _ in answers] == [str(n) for n in range(len(questions))]
        for key, (_, answer) in zip(questions, answers, strict=True):
            assert answer == expected(alone, fold, key)


def expected(kept: Kept, fold: Counting, key: str) -> dict[str, Any]:
    """By a look at all pages."""
    pages = [pa.ipc.read_record_batch(pa.py_buffer(data), fold.state_schema) for data in kept.pages.values()]
    rows = [row for page in pages for row in page.to_pylist() if row["key"] == key]
    own = [{name: row[name] for name in ("key", "n", "last")} for row in rows]
    return {"status": "answered", "rows": own} if own else {"status": "unknown"}


@proves("P6")
def test_a_bucket_that_nothing_was_put_into_knows_no_key() -> None:
    kept = Kept()
    assert put(kept, Counting(), ["1"], Clock(None, 0)) == [("0", {"status": "unknown"})]
    assert kept.known is None and not is_due(kept, Clock(5, 0))


@proves("P6")
def test_a_bucket_with_questions_alone_is_woken_when_spark_would_wake_it() -> None:
    kept = Kept()
    kept.step(Counting(forget_after=10), [("1", 1, 5)], 0)
    assert not is_due(kept, Clock(14, 0)) and not is_due(kept, Clock(None, 0)) and is_due(kept, Clock(15, 0))


@proves("P6")
def test_state_of_an_older_version_answers_as_the_newer_one_has_it() -> None:
    class Newer(Counting):
        def upgrade(self, state: pa.Table, version: int) -> pa.Table:
            return state.set_column(state.schema.get_field_index("n"), "n", pa.array([100] * len(state), pa.int64()))

    kept = Kept()
    kept.step(Counting(), [("1", 7, 0)])
    before = (kept.known, dict(kept.pages))
    (answer,) = put(kept, Newer(version=2), ["1"], Clock(None, 0))
    assert answer[1]["rows"] == [{"key": "1", "n": 100, "last": 7}]
    assert (kept.known, kept.pages) == before


@proves("P6")
def test_a_fold_that_fails_to_answer_and_an_answer_that_is_too_long_are_refusals() -> None:
    class Failing(Counting):
        def answer(self, state: pa.Table, clock: Clock) -> pa.Table:
            raise ZeroDivisionError("oh")

    class Long(Counting):
        def answer(self, state: pa.Table, clock: Clock) -> pa.Table:
            return pa.table({"x": ["y" * 1000] * 1000})

    class Many(Counting):
        def answer(self, state: pa.Table, clock: Clock) -> pa.Table:
            return pa.table({"x": list(range(ROWS_MAX + 3))})

    kept = Kept()
    kept.step(Counting(), [("1", 7, 0)])
    told = [put(kept, one(), ["1"], Clock(None, 0))[0][1] for one in (Failing, Long, Many)]
    assert told[0] == {"status": "refused", "error": "ZeroDivisionError: oh"}
    assert told[1]["status"] == "refused" and "bytes" in told[1]["error"]
    assert (len(told[2]["rows"]), told[2]["more"]) == (ROWS_MAX, 3)


@proves("P6")
def test_what_a_micro_batch_answers_is_bounded_and_the_rest_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.pipelines.operators.state.questions.STEP_BYTES", 100)
    kept = Kept()
    kept.step(Counting(), [("1", 7, 0)])
    told = [answer["status"] for _, answer in put(kept, Counting(), ["1"] * 5, Clock(None, 0))]
    assert told == ["answered", "answered", "refused", "refused", "refused"]


@proves("P6")
def test_a_key_is_an_object_a_list_or_for_one_column_a_value() -> None:
    assert key_in('{"b": 1, "a": "x"}', ["a", "b"]) == key_in('["x", 1]', ["a", "b"]) == ["x", 1]
    assert key_in('"tea"', ["a"]) == key_in('["tea"]', ["a"]) == key_in('{"a": "tea"}', ["a"]) == ["tea"]
    assert key_in("null", ["a"]) == [None] and key_in("{}", []) == []
    for wrong in (None, "", "tea", "{", '{"b": 1}', "[1, 2]", '{"a": 1, "b": 2}', "[" * 5000, '"' + "x" * 9000 + '"'):
        with pytest.raises(UsageError):
            key_in(wrong, ["a"])


@given(st.one_of(st.text(max_size=40), st.none(), st.recursive(st.integers() | st.text(), st.lists).map(json.dumps)))
@proves("P6")
def test_whatever_a_question_says_it_becomes_a_key_or_a_refusal(text: str | None) -> None:
    kinds = [pa.string(), pa.int64(), pa.int8(), pa.float64(), pa.timestamp("us", "UTC"), pa.date32(), pa.bool_()]
    for kind in (*kinds, pa.decimal128(10, 2), pa.binary()):
        asked = pa.RecordBatch.from_pylist(
            [{QUESTION: "q", ASKED: text}], pa.schema([(QUESTION, pa.string()), (ASKED, pa.string())])
        )
        (row,) = keys_of(asked, pa.schema([("k", kind)]), ["k"]).to_pylist()
        assert row[QUESTION] == "q" and (row[WRONG] is None or row["k"] is None)


@proves("P6")
def test_bytes_that_are_no_text_end_nothing() -> None:
    ids = [b"a", b"b", b"c", b"\xff", b"d"]
    asked = [b"\xff", b'{"\\ud800": 1}', b'"\\ud800"', b'"x"', b'{"key": 1e999}']
    read = keys_of(pa.RecordBatch.from_pydict({QUESTION: ids, ASKED: asked}), KEYS, ["key"]).to_pylist()
    assert [row[QUESTION] for row in read] == ["a", "b", "c", "d"] and all(row[WRONG] for row in read)
    far = pa.RecordBatch.from_pydict({QUESTION: [b"a"] * 3, ASKED: [b'"1e999999999"', b'"NaN"', b'"sNaN"']})
    assert all(row[WRONG] for row in keys_of(far, pa.schema([("k", pa.decimal128(10, 2))]), ["k"]).to_pylist())


@proves("P6")
def test_keys_have_the_types_of_their_columns() -> None:
    def read(kind: pa.DataType, said: Any) -> Any:
        asked = pa.RecordBatch.from_pydict({QUESTION: ["q"], ASKED: [json.dumps(said)]})
        (row,) = keys_of(asked, pa.schema([("k", kind)]), ["k"]).to_pylist()
        return row[WRONG] or row["k"]

    assert read(pa.timestamp("us", "UTC"), "2026-01-31T12:00:00Z") == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert read(pa.decimal128(10, 2), "1.5") == Decimal("1.50")
    assert read(pa.binary(), "aGk=") == b"hi"
    assert read(pa.float64(), 3) == 3.0
    assert read(pa.string(), 7) == "7"
    assert read(pa.int8(), 300) == "the key has a int where it is a int8"
    assert read(pa.int64(), True) == "the key has a bool where it is a int64"
    assert read(pa.string(), {"a": 1}) == "the key has a; it is k"


@proves("P6")
def test_a_question_without_an_id_or_with_an_endless_one_is_passed_over() -> None:
    ids = [None, "", "x" * (ID_BYTES + 1), "good"]
    asked = pa.RecordBatch.from_pydict({QUESTION: ids, ASKED: ['"k"'] * 4})
    assert [row[QUESTION] for row in keys_of(asked, KEYS, ["key"]).to_pylist()] == ["good"]
    long = pa.RecordBatch.from_pydict({QUESTION: ["q"], ASKED: [json.dumps("x" * QUESTION_BYTES)]})
    assert "at most" in keys_of(long, KEYS, ["key"]).to_pylist()[0][WRONG]


@proves("P6")
def test_answers_stand_beside_results_and_are_never_late() -> None:
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("n", pa.int64())])
    results = pa.table([[datetime(2026, 1, 1, tzinfo=UTC)], [1]], schema=schema)
    answers = pa.table({QUESTION: ["q"], ANSWER: ["{}"]})
    made = with_answers(results, answers, schema, "at", Clock(1000, 0)).to_pylist()
    assert made[0] == {"at": datetime(2026, 1, 1, tzinfo=UTC), "n": 1, QUESTION: None, ANSWER: None}
    assert made[1] == {"at": datetime.fromtimestamp(1.001, UTC), "n": None, QUESTION: "q", ANSWER: "{}"}


@proves("P6")
def test_values_are_said_as_views_say_them() -> None:
    at = datetime(2026, 1, 31, 12, tzinfo=UTC)
    said = as_json({"a": [at, at.date(), b"hi", float("nan"), Decimal("1.50"), {"x": None}]})
    assert said == {"a": ["2026-01-31T12:00:00.000000Z", "2026-01-31", "aGk=", "NaN", "1.50", {"x": None}]}
