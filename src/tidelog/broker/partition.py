"""One partition as the broker sees it: its log, and the fetches that wait for it to grow."""

from __future__ import annotations

from typing import Protocol

from tidelog.log.log import Log


class Waiter(Protocol):
    """A fetch that waits; `woken` is called whenever more of the partition became visible, and at its end."""

    def woken(self) -> None: ...

    def expire(self) -> None: ...


class Partition:
    __slots__ = ("index", "log", "max_message_bytes", "topic", "topic_id", "waiters")

    def __init__(self, topic: str, topic_id: bytes, index: int, log: Log, max_message_bytes: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.max_message_bytes = max_message_bytes
        # A dict for its order: who waits longest is answered first.
        self.waiters: dict[Waiter, None] = {}
        log.on_visible = self.wake

    def wake(self) -> None:
        for waiter in list(self.waiters):
            waiter.woken()
