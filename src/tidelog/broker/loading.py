"""Partitions that must be loaded from disk before a request about them can be answered: off the loop, then on it again.

A partition is opened without looking at its files. What only they know (its producers, the ends of its epochs, after a
crash also its offsets) is read on first use, in a worker thread: recovery must not stop the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.partition import Partition
from tidelog.broker.topics import SECRET_TOPICS
from tidelog.errors import DataFolderError, HoleError, StorageError
from tidelog.log.log import Log
from tidelog.log.slice import Cold
from tidelog.wire.error_code import ErrorCode

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call

AT_ONCE = 4  # threads that load the partitions of one request


def find(broker: Broker, name: str | None, index: int) -> Partition | int:
    """The partition, or the error code that says why there is none. Its offsets are known, if need be by waiting."""
    partition = find_cold(broker, name, index)
    if isinstance(partition, Partition) and not partition.log.known:
        try:
            partition.log.load()
        except StorageError:
            return ErrorCode.KAFKA_STORAGE_ERROR
    return partition


def find_cold(broker: Broker, name: str | None, index: int) -> Partition | int:
    """The same without waiting: its log may have to be loaded first."""
    if name in SECRET_TOPICS:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    try:
        partition = broker.find_partition(name, index)
    except StorageError:
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if partition is None else partition


def find_known(broker: Broker, name: str | None, index: int) -> Partition | int:
    """The same without waiting; raises Cold where its offsets are not known."""
    partition = find_cold(broker, name, index)
    if isinstance(partition, Partition) and not partition.log.known:
        raise Cold
    return partition


def sentence(error: StorageError) -> str:
    """What a client may hear of it: where the broker keeps its files is for the broker's log alone."""
    if isinstance(error, DataFolderError | HoleError):
        return "the broker cannot use its files of this partition; the broker's log says why"
    return str(error)


def when_ready(broker: Broker, call: Call, partition: Partition, then: Callable[[], None]) -> None:
    """Calls `then` on the loop once the partition is loaded, or cannot be.

    Those who wait for one partition are called in the order in which they came, and nobody overtakes them: batches of
    one producer must not.
    """
    if partition.loading is not None:
        partition.loading.append((call, then))
        return
    if partition.log.loaded:
        then()
        return
    waiting = partition.loading = [(call, then)]

    def loaded(_result: object, _error: BaseException | None) -> None:
        partition.loading = None
        for call, then in waiting:
            try:
                then()
            except Exception as fault:
                call.fault(fault)

    broker.scheduler.in_thread(partial(_load, [partition.log]), loaded)


def when_loaded(
    broker: Broker, call: Call, wanted: Iterable[tuple[str, int]], then: Callable[[], None], *, known: bool = False
) -> None:
    """Calls `then` on the loop once all are loaded, or cannot be: a log that is not loaded says why when it is used.

    With `known` it is enough that their offsets are known.
    """
    found = [one for one in (find_cold(broker, *place) for place in wanted) if isinstance(one, Partition)]
    cold = [one.log for one in found if not (one.log.known if known else one.log.loaded)]
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
