"""One partition as the broker sees it: its log, and the fetches that wait for it to grow."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from tidelog.broker.settings.topic_config import TopicConfig
from tidelog.log.log import Log

if TYPE_CHECKING:
    from tidelog.broker.call import Call

    Loaded = tuple[Call, Callable[[], None]]


class Waiter(Protocol):
    """A fetch that waits; `woken` is called whenever more of the partition became visible, and at its end."""

    def woken(self) -> None: ...

    def expire(self) -> None: ...


class Partition:
    __slots__ = ("config", "dropped", "index", "loading", "log", "topic", "topic_id", "waiters")

    def __init__(self, topic: str, topic_id: bytes, index: int, log: Log, config: TopicConfig) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.config = config
        self.dropped = False  # its topic is deleted: whoever still holds it must not wait for it
        self.loading: list[Loaded] | None = None  # who waits for it to be loaded, in order (`loading.when_ready`)
        # A dict for its order: who waits longest is answered first.
        self.waiters: dict[Waiter, None] = {}
        log.on_visible = self.wake

    def configure(self, config: TopicConfig) -> None:
        self.config = config
        self.log.update_settings(config.log)

    def drop(self) -> None:
        self.dropped = True
        self.wake()

    def wake(self) -> None:
        for waiter in list(self.waiters):
            waiter.woken()
