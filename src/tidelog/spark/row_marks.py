"""What a plan says of the rows of one of its nodes, for who asks later which of two rows of a key counts.

    in order      a Python stage of ours gives the rows of a task in the order in which it gets them
    one row by    no two rows of a micro-batch have the same in these columns: an operator of ours says so of its own

Both are filters that are always true, of a text, as `native_operators.py` has them: the optimizer takes them out, and
columns stay what they are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

IN_ORDER = "tidelog rows in order"
ONE_ROW_BY = "tidelog one row by "


def kept_in_order(rows: DataFrame) -> DataFrame:
    return _saying(rows, IN_ORDER)


def one_row_by(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    return _saying(rows, ONE_ROW_BY + json.dumps(list(columns)))


def _saying(rows: DataFrame, text: str) -> DataFrame:
    from pyspark.sql import functions as F

    return rows.where(F.lit(text).isNotNull())


def text_of(node: Any) -> str:
    """What a node of a plan says, if it is such a filter; else nothing."""
    if str(node.nodeName()) != "Filter" or _kind(node.condition()) != "IsNotNull":
        return ""
    asked = node.condition().child()
    return str(asked.value()) if _kind(asked) == "Literal" else ""


def _kind(expression: Any) -> str:
    return str(expression.getClass().getSimpleName())
