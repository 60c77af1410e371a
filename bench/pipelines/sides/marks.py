"""What a side says of itself on standard output; see `watch.py`. Imports nothing, so that every environment has it."""

from __future__ import annotations

import json
import sys
from typing import Any


def say(mark: str, **facts: Any) -> None:
    print(json.dumps({"mark": mark, **facts}), flush=True)


def work() -> dict[str, Any]:
    """What the side was given to do."""
    given: dict[str, Any] = json.loads(sys.argv[1])
    return given
