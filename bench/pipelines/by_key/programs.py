"""The programs by hand, by the names of the operators that they stand beside (`sides/stateful.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bench.pipelines.by_key.enrich import enrich
from bench.pipelines.by_key.in_order import changes, deduplicate
from bench.pipelines.by_key.sessions import session
from bench.pipelines.by_key.sliding import sliding
from bench.pipelines.by_key.tables import as_changelog, join_tables, join_upserts
from bench.pipelines.by_key.windows import hopping, tumbling

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BY_HAND: dict[str, Callable[[DataFrame], DataFrame]] = {
    "tumbling, early": tumbling,
    "hopping, corrected": hopping,
    "sliding": sliding,
    "session, corrected": session,
    "deduplicate": deduplicate,
    "changes": changes,
    "as_changelog": as_changelog,
    "enrich": enrich,
    "join_tables": join_tables,
    "join_tables, of upserts": join_upserts,
}


def by_hand(operator: str) -> str:
    """How the program beside an operator is called where both are known by name."""
    return f"{operator}, by hand"
