"""What a side says of itself on standard output; see `watch.py`. Imports nothing, so that every environment has it."""

from __future__ import annotations

import json
import sys
from typing import Any


def say(mark: str, **facts: Any) -> None:
    print(json.dumps({"mark": mark, **facts}), flush=True)


def ended(**facts: Any) -> None:
    """Says so, and stays until it has been looked at: what a process has used is gone with it."""
    say("end", **facts)
    sys.stdin.read()


def work() -> dict[str, Any]:
    """What the side was given to do."""
    given: dict[str, Any] = json.loads(sys.argv[1])
    return given
