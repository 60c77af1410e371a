"""How long to wait before the next try: doubling from 20 ms to 1 s, with chance, so that clients do not come as one."""

from __future__ import annotations

import os
from collections.abc import Iterator

FIRST_S = 0.02
LONGEST_S = 1.0


def waits() -> Iterator[float]:
    """Without end; whoever waits has a deadline of its own. Each is between half and the whole of its step."""
    step = FIRST_S
    while True:
        yield step * (0.5 + os.urandom(1)[0] / 510)
        step = min(step * 2, LONGEST_S)
