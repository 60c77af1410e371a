"""A batch that is refused because readers are too far behind; a handler knows it from other refusals."""

from __future__ import annotations

from tidelog.broker.keys import BatchRefused
from tidelog.wire.error_code import ErrorCode


class Overloaded(BatchRefused):
    """Refused for now. Every client knows this code as one to try again, with nothing stored."""

    def __init__(self, hold_ms: int, message: str) -> None:
        super().__init__(ErrorCode.NOT_ENOUGH_REPLICAS, message)
        self.hold_ms = hold_ms
