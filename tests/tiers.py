"""Which run a test belongs to, decided by the names of its marks alone.

- test: make test, and so every run after it
- change: only the fixed part of .ci/run: plain but above one second of CPU, or the one story of its kind, which does
  not mean a twin, the same story on Apache Kafka or on one more server
- rest: the other long tests: when their turn comes, and all of them in make test-all
- soak: make soak alone
- lint: make lint alone: the style of the repository, whatever the product does
"""

from __future__ import annotations

from collections.abc import Collection

TIERS = ("test", "change", "rest", "soak", "lint")


def tier_of(marks: Collection[str]) -> str:
    for alone in ("soak", "lint"):
        if alone in marks:
            return alone
    long = "external" in marks or "full" in marks
    if not long and "slow" not in marks:
        return "test"
    story = "story" in marks and "twin" not in marks
    return "change" if story or not long else "rest"
