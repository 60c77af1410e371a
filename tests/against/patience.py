"""Waiting for a state that another process reaches by itself: ask again until it is there, and say what was seen if it
never is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_SECONDS = 180.0
State = TypeVar("State")


def eventually(
    look: Callable[[], State], reached: Callable[[State], bool] = bool, *, seconds: float = PATIENCE_SECONDS
) -> State:
    deadline = time.monotonic() + seconds
    while True:
        seen = look()
        if reached(seen):
            return seen
        assert time.monotonic() < deadline, f"not reached within {seconds} s; last seen: {seen!r}"
        time.sleep(0.02)
