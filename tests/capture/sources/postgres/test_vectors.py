"""All that Debezium's connector wrote of eighty cases, and what we tell of the same statements."""

from __future__ import annotations

from pathlib import Path

from capture.sources.postgres.comparing import DIFFERENCES, REASONS, differences
from capture.sources.postgres.following import Base
from proving import proves

GUIDE = Path(__file__).parents[4] / "docs" / "guide" / "capture_postgres.md"


@proves("cdc.9", "cdc.10", "cdc.12", "cdc.13", "cdc.15")
def test_every_value_and_schema_is_debeziums_but_for_these(base: Base) -> None:
    assert differences(base, extensions=False) == DIFFERENCES


@proves("cdc.15")
def test_the_guide_tells_every_difference() -> None:
    page = " ".join(GUIDE.read_text().split())
    assert [reason for reason in REASONS if reason not in page] == []
