"""`@proves("T1", "T6")` says which mission rows or numbered rules a test proves; `make rows` prints the table of it.

A mission row is a letter and a number and stands in docs/rows.toml (`T1`). A numbered rule is the name of its list and
its number (`cdc.29`). A house rule is lower-case words (`architecture`, `tidy`). Anything else is misspelt, and fails.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

proves = pytest.mark.proves

ROWS_FILE = Path(__file__).parent.parent / "docs" / "rows.toml"
_MISSION_ROW = re.compile(r"[A-Z]\d+")
_RULE = re.compile(r"[a-z][a-z_]*(\.[a-z0-9_]+)*")


def proven_by(item: pytest.Item) -> list[str]:
    """The rows and rules that this test says it proves, nearest mark first."""
    return [str(row) for mark in item.iter_markers("proves") for row in mark.args]


def fault_of(rows: list[str]) -> str | None:
    """What is wrong with a test's marks, or None."""
    if not rows:
        return 'it does not say what it proves; mark it with @proves("T1") or the like, see tests/proving.py'
    unknown = [row for row in rows if not _is_known(row)]
    return f"it proves {', '.join(unknown)}, which is no row of docs/rows.toml and no rule's name" if unknown else None


@cache
def _mission_rows() -> frozenset[str]:
    return frozenset(tomllib.loads(ROWS_FILE.read_text())["rows"])


def _is_known(row: str) -> bool:
    return row in _mission_rows() if _MISSION_ROW.fullmatch(row) else _RULE.fullmatch(row) is not None
