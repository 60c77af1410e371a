"""The state of a run's operators as rows, read from its checkpoint by Spark's own readers.

Tidelog's operators    a row for each that the fold keeps
Spark's own            key and value: {"user": "ada", "count": 2}; a join's rows say their `side`, left or right
transformWithState     a row for each value, list element or map entry: {"user": "ada", "variable": "seen",
                       "value": {...}}; a map's rows have a `key` too
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JOIN = "symmetricHashJoin"
SIDES = ("left", "right")
NO_VALUE = "__dummy__"  # what Spark keeps where a key is all there is to keep
TIMERS = "TimerState"

StateRow = dict[str, Any]


class Operator(NamedTuple):
    number: int
    name: str
    variables: dict[str, str]  # of transformWithState: the kind of each by its name


def operators(spark: SparkSession, checkpoint: Path) -> list[Operator]:
    """Those of the query that keep state."""
    if not (checkpoint / "state").is_dir():
        return []
    found = {}
    for row in spark.read.format("state-metadata").load(str(checkpoint)).collect():
        properties = json.loads(row["operatorProperties"] or "{}")
        kinds = {one["stateName"]: one["stateVariableType"] for one in properties.get("stateVariables", ())}
        variables = {name: kind for name, kind in kinds.items() if kind != TIMERS}
        found[row["operatorId"]] = Operator(row["operatorId"], row["operatorName"], variables)
    return [found[number] for number in sorted(found)]


def state_rows(spark: SparkSession, checkpoint: Path, number: int | None) -> list[StateRow]:
    """Of the operator with this number; it need not be said where there is only one."""
    from tidelog.pipelines.operators.state.reading import HEADER, PAGES, read_states

    chosen = _chosen(operators(spark, checkpoint), number)
    if chosen is None:
        return []
    if {HEADER, PAGES} <= set(chosen.variables):
        rows: list[StateRow] = next(
            state.rows.to_pylist() for state in read_states(spark, checkpoint) if state.operator == chosen.number
        )
        return rows
    return list(_spark_rows(spark, checkpoint, chosen))


def _chosen(found: list[Operator], number: int | None) -> Operator | None:
    if number is None and len(found) <= 1:
        return found[0] if found else None
    chosen = next((one for one in found if one.number == number), None)
    if chosen is None:
        have = ", ".join(f"{one.number} ({one.name})" for one in found)
        raise UsageError(f"say whose state: state(operator=...); the query has {have or 'none'}")
    return chosen


def _spark_rows(spark: SparkSession, checkpoint: Path, operator: Operator) -> Iterator[StateRow]:
    if operator.name == JOIN:
        for side in SIDES:
            yield from (
                {"side": side} | _flat(row) for row in _read(spark, checkpoint, operator, joinSide=side).collect()
            )
    elif operator.variables:
        for name in operator.variables:
            yield from (
                _of_variable(name, row) for row in _read(spark, checkpoint, operator, stateVarName=name).collect()
            )
    else:
        yield from (_flat(row) for row in _read(spark, checkpoint, operator).collect())


def _read(spark: SparkSession, checkpoint: Path, operator: Operator, **options: str) -> DataFrame:
    reader = spark.read.format("statestore").option("operatorId", operator.number).options(**options)
    return reader.load(str(checkpoint))


def _flat(row: Any) -> StateRow:
    held: StateRow = row.asDict(recursive=True)
    return {**held["key"], **{name: value for name, value in (held["value"] or {}).items() if name != NO_VALUE}}


def _of_variable(name: str, row: Any) -> StateRow:
    held = row.asDict(recursive=True)
    value = next(held[column] for column in ("value", "list_element", "user_map_value") if column in held)
    key = {"key": held["user_map_key"]} if "user_map_key" in held else {}
    return {**held["key"], "variable": name, **key, "value": value}
