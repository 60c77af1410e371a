"""Questions put to a fold while it runs: read, and answered from the state of their key. Pure, but for what Spark runs.

    question   _question   text, or its bytes: what its answer will be found by
               _asked      the same: the key as JSON: {"user": "ada"}, ["ada"] in the operator's order, or "ada" for
                           one column

    answer     _question   as it was
               _answer     {"status": "answered", "rows": [...]}       what the fold keeps of that key
                           {"status": "unknown"}                       it keeps nothing of it
                           {"status": "refused", "error": "..."}       it is no question that this operator has

Rules:
- A question is no row: the fold never sees it, and a question changes nothing that the fold puts out or keeps.
- It is answered in the micro-batch that read it, once, from the state that this micro-batch leaves behind.
- Questions travel as packed rows do, with a `part` below 0: packed rows, and state, are those of a fold that nobody
  asks.
- Whatever stands in a question, it is answered: nothing in it may end the query.
- Answers stand beside results, in rows whose other columns are null.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.errors import UsageError
from tidelog.pipelines.operators.state.bucket import BucketStore, held_of
from tidelog.pipelines.operators.state.buckets import Layout
from tidelog.pipelines.operators.state.fold import HASH, Clock, Fold, Forgetting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUESTION, ASKED, ANSWER = "_question", "_asked", "_answer"
WRONG = "_wrong"  # text or null: why a question cannot be answered
BESIDE = (QUESTION, ANSWER)  # what is beside the columns of results

QUESTION_BYTES = 8 << 10  # of a key as JSON
ID_BYTES = 256
ROWS_MAX = 1_000  # in an answer; `more` says how many are left out
ANSWER_BYTES = 512 << 10
STEP_BYTES = 32 << 20  # of all answers of a bucket in a micro-batch


@runtime_checkable
class Answering(Protocol):
    """What a fold has besides, where its state is not what users know."""

    def answer(self, state: pa.Table, clock: Clock) -> pa.Table:
        """Of all state rows of one key: what is said to who asks."""
        ...


class Asking(NamedTuple):
    """`questions` are rows with QUESTION and ASKED. `names` is what the columns `keys` are called in a question."""

    questions: DataFrame
    names: tuple[str, ...]


# Reading --------------------------------------------------------------------------------------------------------------


def key_in(text: str | None, names: Sequence[str]) -> list[Any]:
    """The values of a key, in the order of `names`; `UsageError` where it is none."""
    if text is None or len(text) > QUESTION_BYTES:
        raise UsageError(f"a question is a key as JSON, of {QUESTION_BYTES} bytes at most")
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError("the key is not JSON") from None
    if not names:
        return []
    if isinstance(said, dict):
        if set(said) != set(names):
            raise UsageError(f"the key has {_few(said)}; it is {', '.join(names)}")
        said = [said[name] for name in names]
    elif not isinstance(said, list):
        said = [said]
    if len(said) != len(names):
        raise UsageError(f"the key has {len(said)} values; it is {', '.join(names)}")
    return list(said)


def _few(said: Iterable[str]) -> str:
    return ", ".join(sorted(str(name)[:40] for name in said)[:10]) or "nothing"


def keys_of(asked: pa.RecordBatch, keys: pa.Schema, names: Sequence[str]) -> pa.RecordBatch:
    """QUESTION, WRONG and the columns of the key. What cannot be told from others, or found again, is left out."""
    rows = []
    for said, text in zip(asked[QUESTION].to_pylist(), asked[ASKED].to_pylist(), strict=True):
        question = _decoded(said)
        if question is None or not 0 < len(question) <= ID_BYTES:
            continue
        values, wrong = _typed(_decoded(text), keys, names)
        rows.append({QUESTION: question, WRONG: wrong, **dict(zip(keys.names, values, strict=True))})
    return pa.RecordBatch.from_pylist(rows, question_schema(keys))


def _decoded(said: str | bytes | None) -> str | None:
    """None where it is no text."""
    try:
        return said.decode() if isinstance(said, bytes) else said
    except UnicodeDecodeError:
        return None


def question_schema(keys: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(QUESTION, pa.string()), pa.field(WRONG, pa.string()), *keys])


def _typed(text: str | None, keys: pa.Schema, names: Sequence[str]) -> tuple[list[Any], str | None]:
    try:
        said = key_in(text, names)
        if not names:
            return [0] * len(keys), None  # of rows that are by no column
        return [_value(one, field) for one, field in zip(said, keys, strict=True)], None
    except UsageError as error:
        return [None] * len(keys), str(error).encode("utf-8", "replace").decode()  # half a surrogate pair is no text


def _value(said: Any, field: pa.Field) -> Any:
    """As the column has it: times and dates in ISO 8601, decimals as text, bytes in base64, as views have them."""
    kind = field.type
    if said is None:
        return None
    try:
        if pa.types.is_timestamp(kind):
            made: Any = datetime.fromisoformat(said)
        elif pa.types.is_date(kind):
            made = date.fromisoformat(said)
        elif pa.types.is_decimal(kind):
            made = Decimal(str(said))
        elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            made = base64.b64decode(said, validate=True)
        elif pa.types.is_floating(kind) and isinstance(said, int | float) and not isinstance(said, bool):
            made = float(said)
        elif pa.types.is_string(kind) and isinstance(said, int) and not isinstance(said, bool):
            made = str(said)  # who writes 7 at a command line means the text
        elif pa.types.is_integer(kind) and isinstance(said, bool):
            raise ValueError("a boolean is not a number")
        else:
            made = said
        return pa.scalar(made, kind).as_py()
    except (ValueError, TypeError, ArithmeticError, pa.ArrowException):
        raise UsageError(f"the key has a {type(said).__name__} where it is a {kind}") from None


# Answering ------------------------------------------------------------------------------------------------------------


def answers_of(
    fold: Fold, store: BucketStore, layout: Layout, asked: pa.Table, keys: Sequence[str], clock: Clock
) -> pa.Table:
    """QUESTION and ANSWER of each question, from what the bucket keeps now. Nothing is written."""
    held = held_of(fold, store, layout, asked[HASH].to_numpy(), keys)
    answers, size = [], 0
    for row in asked.to_pylist():
        answers.append(_answer(fold, held, row, keys, clock) if size < STEP_BYTES else TOO_MUCH)
        size += len(answers[-1])
    columns = [asked[QUESTION].combine_chunks(), pa.array(answers, pa.string())]
    return pa.Table.from_arrays(columns, names=list(BESIDE))


def _answer(fold: Fold, held: pa.Table, row: dict[str, Any], keys: Sequence[str], clock: Clock) -> str:
    if row[WRONG] is not None:
        return _text({"status": "refused", "error": row[WRONG]})
    try:
        own = held.filter(_is_key(held, row, keys))
        if not len(own):
            return _text({"status": "unknown"})
        said = fold.answer(own, clock) if isinstance(fold, Answering) else shown(own)
        if not len(said) and isinstance(fold, Forgetting):  # what it keeps is that the key is gone
            return _text({"status": "unknown"})
        return _fitting(said)
    except Exception as error:  # whatever a fold makes of its state, the query goes on
        return _text({"status": "refused", "error": f"{type(error).__name__}: {str(error)[:200]}"})


def _is_key(held: pa.Table, row: dict[str, Any], keys: Sequence[str]) -> pa.Array:
    """A hash is no key."""
    found = pc.equal(held[HASH], row[HASH])
    for name in keys:
        if name in held.schema.names:
            column = held[name]
            same = column.is_null() if row[name] is None else _equal(column, row[name])
            found = pc.and_(found, pc.fill_null(same, False))
    return found


def _equal(column: pa.ChunkedArray, value: Any) -> pa.ChunkedArray:
    if isinstance(value, float) and math.isnan(value):
        return pc.is_nan(column)
    return pc.equal(column, pa.scalar(value, column.type))


def shown(state: pa.Table) -> pa.Table:
    """What is no affair of the mechanism's, nor of the fold's alone."""
    return state.select([name for name in state.schema.names if not name.startswith("_")])


def _fitting(said: pa.Table) -> str:
    rows = [{name: as_json(value) for name, value in row.items()} for row in said.slice(0, ROWS_MAX).to_pylist()]
    more = {"more": len(said) - ROWS_MAX} if len(said) > ROWS_MAX else {}
    text = _text({"status": "answered", "rows": rows, **more})
    if len(text) > ANSWER_BYTES:
        told = f"the answer would have {len(text)} bytes, and {ANSWER_BYTES} are the most; ask a view for pages"
        return _text({"status": "refused", "error": told})
    return text


def as_json(value: Any) -> Any:
    """As rows of views have it."""
    if isinstance(value, datetime):
        return (value if value.tzinfo is None else value.astimezone(UTC)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, dict):
        return {str(name): as_json(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(one) for one in value]
    return value


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


TOO_MUCH = _text({"status": "refused", "error": "too much is asked at once; ask again"})


# On the way -----------------------------------------------------------------------------------------------------------


def beside(schema: pa.Schema) -> pa.Schema:
    """The output of a fold that is asked."""
    return pa.schema([*schema, *(pa.field(name, pa.string()) for name in BESIDE)])


def with_answers(output: pa.Table, answers: pa.Table, schema: pa.Schema, timed: str | None, clock: Clock) -> pa.Table:
    """Results, and answers behind them. `timed` is the column that Spark takes for event time: no row may be late."""
    wanted = beside(schema)
    results = [output.select(schema.names).columns, [pa.nulls(len(output), pa.string())] * len(BESIDE)]
    first = pa.Table.from_arrays([*results[0], *results[1]], schema=wanted)
    columns = [
        answers[field.name].combine_chunks()
        if field.name in BESIDE
        else _just_in_time(len(answers), field, clock)
        if field.name == timed
        else pa.nulls(len(answers), field.type)
        for field in wanted
    ]
    return pa.concat_tables([first, pa.Table.from_arrays(columns, schema=wanted)])


def _just_in_time(count: int, field: pa.Field, clock: Clock) -> pa.Array:
    at = pa.scalar(((clock.watermark or 0) + 1) * 1000, pa.int64())
    return pa.array([at.as_py()] * count, pa.int64()).cast(pa.timestamp("us")).cast(field.type)


def no_answers(frame: DataFrame) -> DataFrame:
    """Over history nobody asks; the columns are there."""
    from pyspark.sql import functions as F

    return frame.select("*", *(F.lit(None).cast("string").alias(name) for name in BESIDE))


def reading(keys: pa.Schema, names: Sequence[str]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield keys_of(batch, keys, names)

    return read


def check_questions(where: str, questions: DataFrame) -> None:
    if missing := [name for name in (QUESTION, ASKED) if name not in questions.columns]:
        raise UsageError(f"{where} is given questions without {missing[0]}; an app gives them to who names `questions`")


def refuse_answers(where: str, rows: DataFrame) -> None:
    """Answers are for who asked, not for the next operator."""
    if QUESTION in rows.columns:
        raise UsageError(
            f"{where} is given answers to questions among its rows; ask the last operator of a query, or write the"
            " results to a topic and go on from there"
        )
