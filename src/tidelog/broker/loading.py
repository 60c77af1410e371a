"""Partitions that must be loaded from disk before a request about them can be answered: off the loop, then on it again.

A partition that was closed cleanly is opened without looking at its files; what only they know (its producers, the ends
of its epochs) is read on first use, in a worker thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tidelog.broker.partition import Partition
from tidelog.errors import StorageError
from tidelog.wire.error_code import ErrorCode

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker


def find(broker: Broker, name: str, index: int) -> Partition | int:
    """The partition, or the error code that says why there is none."""
    try:
        partition = broker.partition(name, index)
    except StorageError:
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if partition is None else partition


def when_loaded(broker: Broker, found: Iterable[Partition | int], then: Callable[[], None]) -> None:
    """Calls `then` on the loop once all are loaded, or cannot be: a log that is not loaded says why when it is used."""
    cold = [one.log for one in found if isinstance(one, Partition) and not one.log.loaded]
    if not cold:
        then()
        return

    def load() -> None:
        for log in cold:
            log.load()

    broker.scheduler.in_thread(load, lambda _result, _error: then())
