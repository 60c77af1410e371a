"""Where this repository is, and how its tests' own parts (brokers, stores, certificates) are found from here."""

from __future__ import annotations

import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def find_parts_of_tests() -> None:
    """Brokers and stores are started as the tests start them."""
    sys.path.insert(0, str(REPOSITORY / "tests"))
