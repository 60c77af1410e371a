"""`dead_letters(rows)`: what `typed(on_error="dead_letter")` gave, as two DataFrames: good rows, and letters.

A letter has the key, the bytes that could not be decoded, and the record's headers with those of a dead letter behind
them (`control/dead_letters.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.control.dead_letters import MESSAGE, PREFIX, told_of_error
from tidelog.errors import UsageError
from tidelog.spark.typed_values import ERROR, PLACE, UNDECODED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.column import Column

DECODED_BY, RAISED = "tidelog.spark.typed", "tidelog.errors.UndecodableValue"
LEFT_AS_THEY_ARE = ("binary", "string")


def dead_letters(rows: DataFrame, *, column: str = "value") -> tuple[DataFrame, DataFrame]:
    """Rows that are fine, without `_error` and `_undecoded`; and letters, as the sink takes them."""
    if not {ERROR, UNDECODED, column} <= set(rows.columns):
        raise UsageError(f"the rows have no {ERROR} or no {column!r}; they come from typed(on_error='dead_letter')")
    good = rows.where(f"{ERROR} IS NULL").drop(ERROR, UNDECODED)
    return good, rows.where(f"{ERROR} IS NOT NULL").select(*_letter(rows, column))


def _letter(rows: DataFrame, column: str) -> list[Column]:
    from pyspark.sql import functions as f

    made = []
    for name in ("key", "value"):
        if name == column:
            made.append(f.col(UNDECODED).alias(name))
        elif name in rows.columns and rows.schema[name].dataType.simpleString() in LEFT_AS_THEY_ARE:
            made.append(f.col(name))
    if column not in ("key", "value"):
        made.append(f.col(UNDECODED).alias("value"))
    return [*made, _headers(rows, column).alias("headers")]


def _headers(rows: DataFrame, column: str) -> Any:
    from pyspark.sql import functions as f

    stage = "KEY_CONVERTER" if column == "key" else "VALUE_CONVERTER"
    told = {name: f.col(name).cast("string") for name in PLACE if name in rows.columns}
    told |= {name: f.lit(text) for name, text in told_of_error(stage, DECODED_BY, RAISED).items()}
    told |= {MESSAGE: f.col(ERROR)}
    ours = f.array(
        *(
            f.struct(f.lit(PREFIX + name).alias("key"), value.cast("binary").alias("value"))
            for name, value in told.items()
        )
    )
    return f.concat(f.coalesce(f.col("headers"), f.array()), ours) if "headers" in rows.columns else ours
