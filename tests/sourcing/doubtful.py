"""What fails until it is mended, at each call when the test lets it: for parts in a crash loop."""

from __future__ import annotations

from threading import Event

from contract import TIMEOUT_S


class Doubtful:
    def __init__(self) -> None:
        self.called, self.go_on, self.mended = Event(), Event(), False

    def check(self) -> None:
        self.called.set()
        assert self.go_on.wait(TIMEOUT_S)
        if not self.mended:
            raise ValueError("no such order")
