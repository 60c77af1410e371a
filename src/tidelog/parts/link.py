"""What parts ask of a broker and tell it, by one thread that has more to do than to wait for one that is away.

A broker that is away is waited for once, not once a question: until it answers again, which is looked for every AWAY_S,
shortly, nothing is asked and nothing told.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from tidelog.client.cluster import Cluster
from tidelog.control.status import Reporter
from tidelog.errors import Disconnected, TidelogError
from tidelog.parts.part import Key, Say

AWAY_S = 5.0  # until one that did not answer is looked for again
LOOK_S = 0.2


class Link:
    def __init__(self, cluster: Cluster, say: Say) -> None:
        self.away_until: float | None = None  # None: the broker answers
        self.reporters: dict[Key, Reporter] = {}
        self._cluster = cluster
        self._say = say

    def ask(self, question: Callable[[], Any]) -> Any:
        """None where there is no answer: whoever asks goes on without."""
        if self._is_away():
            return None
        try:
            return question()
        except TidelogError as error:
            self._say("broker", error=str(error))
            if isinstance(error, Disconnected):
                self.away_until = time.monotonic() + AWAY_S
            return None

    def tell(self, key: Key, figures: Mapping[str, Any], *, at_once: bool = False) -> None:
        if self._is_away():
            return
        if key not in self.reporters:
            self.reporters[key] = Reporter(self._cluster, *key)
        reporter = self.reporters[key]
        reporter.tell(figures, at_once=at_once)
        if reporter.in_vain:
            self.away_until = time.monotonic() + AWAY_S

    def _is_away(self) -> bool:
        if self.away_until is None or time.monotonic() < self.away_until:
            return self.away_until is not None
        try:
            self._cluster.retry(lambda: self._cluster.ask_metadata(()), timeout_s=LOOK_S)
        except TidelogError:
            self.away_until = time.monotonic() + AWAY_S
            return True
        self.away_until = None
        self._say("broker answers again")
        return False
