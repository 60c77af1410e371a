"""DescribeLogDirs: the data folder, what is in it by partition, and how much room there is.

    v1    the first              v2    flexible
    v3    an error for the whole reply, never set
    v4    bytes of the disk in all and usable            v5    cordoned folders: there are none

The broker's own topics are in it when all are asked for: they take room too. Asking a disk for its room may block, so
it is done in a worker thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tidelog.broker.loading import find, off_loop, when_loaded
from tidelog.broker.partition import Partition
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call


def handle(broker: Broker, request: DescribeLogDirsRequest, call: Call) -> None:
    folder = os.path.abspath(broker.config.texts("log.dirs")[0])  # noqa: PTH100 (pathlib would resolve links)
    result = DescribeLogDirsResult(log_dir=folder)
    response = DescribeLogDirsResponse(results=[result])
    asked = _asked(broker, request)

    def room() -> None:
        disk = os.statvfs(folder)
        result.total_bytes = disk.f_blocks * disk.f_frsize
        result.usable_bytes = disk.f_bavail * disk.f_frsize

    def done(_result: object, error: BaseException | None) -> None:
        if error is not None:
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        result.topics = _topics(broker, asked)
        call.reply(response)

    partitions = [(name, index) for name, indexes in asked.items() for index in indexes]
    when_loaded(broker, call, partitions, lambda: off_loop(broker, call, room, done), known=True)


def _asked(broker: Broker, request: DescribeLogDirsRequest) -> Mapping[str, Iterable[int]]:
    if request.topics is None:
        return {name: range(topic.partitions) for name, topic in sorted(broker.topics.by_name.items())}
    return {one.topic: dict.fromkeys(one.partitions) for one in request.topics}


def _topics(broker: Broker, asked: Mapping[str, Iterable[int]]) -> list[DescribeLogDirsTopic]:
    described = []
    for name, indexes in asked.items():
        partitions = [_partition(broker, name, index) for index in indexes]
        found = [one for one in partitions if one is not None]
        if found:
            described.append(DescribeLogDirsTopic(name=name, partitions=found))
    return described


def _partition(broker: Broker, name: str, index: int) -> DescribeLogDirsPartition | None:
    partition = find(broker, name, index)
    if not isinstance(partition, Partition):
        return None
    return DescribeLogDirsPartition(partition_index=index, partition_size=partition.log.size_bytes)
