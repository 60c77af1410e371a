"""Partitions that must be loaded from disk before a request about them can be answered: off the loop, then on it again.

A partition is opened without looking at its files. What only they know (its producers, the ends of its epochs, after a
crash also its offsets) is read on first use: in a worker thread, where a request names many partitions or can wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.partition import Partition
from tidelog.broker.topics import SECRET_TOPICS
from tidelog.errors import StorageError
from tidelog.log.log import Log
from tidelog.wire.error_code import ErrorCode

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call

AT_ONCE = 4  # threads that load the partitions of one request


def find(broker: Broker, name: str | None, index: int) -> Partition | int:
    """The partition, or the error code that says why there is none."""
    if name in SECRET_TOPICS:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    try:
        partition = broker.partition(name, index)
    except StorageError:
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if partition is None else partition


def when_loaded(
    broker: Broker, call: Call, wanted: Iterable[tuple[str, int]], then: Callable[[], None], *, known: bool = False
) -> None:
    """Calls `then` on the loop once all are loaded, or cannot be: a log that is not loaded says why when it is used.

    With `known` it is enough that their offsets are known.
    """
    found = [broker.find_partition(*one) for one in wanted]
    cold = [one.log for one in found if one is not None and not (one.log.known if known else one.log.loaded)]
    if not cold:
        then()
        return
    left = min(AT_ONCE, len(cold))

    def loaded(_result: object, _error: BaseException | None) -> None:
        nonlocal left
        left -= 1
        if not left:
            then()

    for start in range(left):
        off_loop(broker, call, partial(_load, cold[start::AT_ONCE]), loaded)


def _load(logs: list[Log]) -> None:
    for log in logs:
        with suppress(StorageError):
            log.load()


def off_loop(
    broker: Broker,
    call: Call,
    work: Callable[[], object],
    done: Callable[[object, BaseException | None], None],
) -> None:
    """Work that may wait for the disk, then `done` on the loop. After a fault of ours there, nobody waits in vain."""

    def guarded(result: object, error: BaseException | None) -> None:
        try:
            done(result, error)
        except Exception as fault:
            call.fault(fault)

    broker.scheduler.in_thread(work, guarded)
