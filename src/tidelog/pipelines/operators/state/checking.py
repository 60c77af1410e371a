"""What a fold must be, and what its step must give: told by the names of fold and column, before Spark or the state of
a query trips over it. Pure, but for the types that Spark knows.

Rules:
- Where a fold is declared, it is looked at once; what a step gives, in every step, in a stream and in a batch.
- Columns beyond those of a schema are left out, and types that can be cast without a loss are cast.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.errors import TidelogError, UsageError
from tidelog.pipelines.operators.state.fold import DUE, END_OF_TIME, HASH, Clock, Fold, Step
from tidelog.pipelines.operators.state.packing import nullable_schema

if TYPE_CHECKING:
    from tidelog.pipelines.operators.state.steps import StepFunction

MEMBERS = ("name", "version", "state_schema", "output_schema", "step")
COLLATED = "string collate "
LOOKED_AT = 4  # state rows of a step, whose hashes are looked for among those given: who errs does so in all of them
TAKE_ALONG = "a row is found again by it alone: take it from the row or the state that it is of"


# Where it is declared -------------------------------------------------------------------------------------------------


def check_fold(fold: Fold, event_time: str | None = None) -> None:
    kind = fold if isinstance(fold, type) else type(fold)
    if isinstance(fold, type):
        raise UsageError(f"{kind.__name__} is a class, and a fold is one of it; give {kind.__name__}(...)")
    if missing := [name for name in MEMBERS if not hasattr(fold, name)]:
        raise UsageError(f"{kind.__name__} has no {missing[0]}; a fold has {', '.join(MEMBERS)}")
    if not isinstance(fold.name, str) or not fold.name:
        raise UsageError(f"{kind.__name__} has the name {fold.name!r}; give it a text that its state is known by")
    if not isinstance(fold.version, int) or fold.version < 1:
        raise UsageError(f"fold {fold.name!r} has version {fold.version!r}; versions count up from 1")
    if not _is_frozen(fold):
        raise UsageError(
            f"fold {fold.name!r} could change while it runs, and what it was declared with would not be kept beside "
            f"its state; put @dataclass(frozen=True) above class {kind.__name__}"
        )
    _check_state_schema(fold)
    _check_output_schema(fold, event_time)


def _is_frozen(fold: Any) -> bool:
    """Or a named tuple."""
    parameters = getattr(fold, "__dataclass_params__", None)
    return hasattr(fold, "_fields") or (parameters is not None and bool(parameters.frozen))


def _check_state_schema(fold: Fold) -> None:
    schema = _schema(fold, "state_schema")
    for name, what in ((HASH, "a row is found by"), (DUE, "says when it is looked at again, or is null")):
        if name not in schema.names:
            raise UsageError(f"the state_schema of fold {fold.name!r} lacks {name!r}, which {what}; add it as an int64")
        if schema.field(name).type != pa.int64():
            raise UsageError(
                f"the state_schema of fold {fold.name!r} has {name!r} as {schema.field(name).type}; it is an int64"
            )


def _check_output_schema(fold: Fold, event_time: str | None) -> None:
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_type

    schema = _schema(fold, "output_schema")
    for field in schema:
        try:
            from_arrow_type(field.type)
        except PySparkException:
            raise UsageError(
                f"the output_schema of fold {fold.name!r} has {field.name!r} as {field.type}, which Spark does not have"
            ) from None
    if event_time is not None and event_time not in schema.names:
        raise UsageError(
            f"event_time is {event_time!r}, which fold {fold.name!r} does not put out; it puts out {columns_in(schema)}"
        )


def _schema(fold: Fold, name: str) -> pa.Schema:
    schema = getattr(fold, name)
    if not isinstance(schema, pa.Schema):
        raise UsageError(f"the {name} of fold {fold.name!r} is a {type(schema).__name__}; it is a pyarrow.Schema")
    if twice := [one for one in schema.names if schema.names.count(one) > 1]:
        raise UsageError(f"the {name} of fold {fold.name!r} has {twice[0]!r} twice; name columns apart")
    return schema


def check_keys(fold: Fold, keys: str | Sequence[str], columns: Sequence[str]) -> list[str]:
    names = [keys] if isinstance(keys, str) else list(keys)
    if not names:
        raise UsageError(f"fold {fold.name!r} has no key; name its columns, or one that is the same in all rows")
    for name in names:
        if name not in columns:
            raise UsageError(f"fold {fold.name!r} is by {name!r}, and its rows have only {', '.join(columns)}")
    return names


def check_key_type(fold: Fold, name: str, kind: str) -> None:
    """`kind` as Spark writes it. By a collation texts are equal that have other bytes, and a fold goes by bytes."""
    if COLLATED in kind:
        raise UsageError(
            f"fold {fold.name!r} is by {name!r}, which is of type {kind}: by that, texts are one key that are written"
            f" differently, and a fold tells keys apart as they are written; give it collate({name}, 'UTF8_BINARY'),"
            f" and lower({name}) where case is not to count"
        )


# What a step gives ----------------------------------------------------------------------------------------------------


def checked_step(
    fold: Fold, state: pa.Table, rows: pa.Table, clock: Clock, step_by: StepFunction | None = None
) -> Step:
    """What the fold's step gives, as its schemas have it; `UsageError` where that is not what a step may give."""
    try:
        step = (step_by or fold.step)(state, rows, clock)
    except TidelogError:
        raise
    except Exception as error:
        given = f"rows with {columns_in(rows.schema)}; state with {columns_in(state.schema)}"
        error.add_note(f"fold {fold.name!r} was given {given}")
        raise
    if not isinstance(step, Step):
        raise UsageError(f"the step of fold {fold.name!r} gave a {type(step).__name__}; it gives Step(state, output)")
    kept = fitted(fold, "state", step.state, fold.state_schema)
    _check_hashes(fold, kept, state, rows)
    _check_dues(fold, kept, clock)
    output = fitted(fold, "output", step.output, fold.output_schema)
    return Step(kept, output, _counts(fold, step.counts))


def fitted(fold: Fold, what: str, made: Any, schema: pa.Schema) -> pa.Table:
    """The columns of the schema, in its order and with its types. Whether one may be null is nobody's affair here."""
    if not isinstance(made, pa.Table):
        raise UsageError(f"fold {fold.name!r} gave a {type(made).__name__} as {what}; it gives a pyarrow.Table")
    if made.schema.names == schema.names and made.schema.types == schema.types:
        return made
    for name in schema.names:
        if (times := made.schema.names.count(name)) != 1:
            raise UsageError(
                f"fold {fold.name!r} gave {what} {'twice with' if times else 'without'} the column {name!r}; it has "
                f"{columns_in(made.schema)}, and is to have {columns_in(schema)}"
            )
    return pa.table([_cast(fold, what, made[field.name], field) for field in schema], schema=nullable_schema(schema))


def _cast(fold: Fold, what: str, column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    try:
        return column if column.type == field.type else column.cast(field.type)
    except pa.ArrowException as error:
        raise UsageError(
            f"fold {fold.name!r} gave {what} with the column {field.name!r} as {column.type}, which is not {field.type}"
            f" ({error}); cast it, or say so in {what}_schema"
        ) from None


def _check_hashes(fold: Fold, kept: pa.Table, state: pa.Table, rows: pa.Table) -> None:
    if kept[HASH].null_count:
        raise UsageError(f"fold {fold.name!r} gave a state row whose {HASH!r} is null; {TAKE_ALONG}")
    hashes, given = kept[HASH].to_numpy(), (state[HASH].to_numpy(), rows[HASH].to_numpy())
    for place in np.linspace(0, len(hashes) - 1, LOOKED_AT, dtype=np.int64) if len(hashes) else ():
        if not any((some == hashes[place]).any() for some in given):
            raise UsageError(
                f"fold {fold.name!r} gave a state row with {HASH} {hashes[place]}, which no row and no state that it "
                f"was given has; {TAKE_ALONG}"
            )


def _check_dues(fold: Fold, kept: pa.Table, clock: Clock) -> None:
    """At the end of time nothing is kept."""
    if clock.watermark is None or clock.watermark == END_OF_TIME:
        return
    earliest = pc.min(kept[DUE]).as_py()
    if earliest is not None and earliest <= clock.watermark:
        raise UsageError(
            f"fold {fold.name!r} kept a row whose {DUE!r} is {_time(earliest)}, and the watermark is "
            f"{_time(clock.watermark)}; leave it out of the state, or give it a later one, in ms since 1970, or none"
        )


def _time(ms: int) -> str:
    try:
        return f"{ms} ({datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S})"
    except (ValueError, OverflowError, OSError):
        return str(ms)


def _counts(fold: Fold, counts: Mapping[str, int]) -> dict[str, int]:
    """numpy's numbers are none of JSON's."""
    try:
        return {name: operator.index(count) for name, count in counts.items()}
    except TypeError:
        raise UsageError(f"fold {fold.name!r} gave counts {dict(counts)!r}; each is a whole number") from None


def columns_in(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema) or "no columns"
