"""AlterReplicaLogDirs: there is one data folder, and partitions are in it.

v1    the first      v2    flexible

To move a partition to where it is is success, as in Kafka; any other folder is not found. A partition that is named
twice is told of once, with what the last one asked for.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call


def handle(broker: Broker, request: AlterReplicaLogDirsRequest, call: Call) -> AlterReplicaLogDirsResponse:
    asked: dict[str, dict[int, str]] = {}
    for folder in request.dirs:
        for topic in folder.topics:
            asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions, folder.path))
    own = os.path.abspath(broker.config.texts("log.dirs")[0])  # noqa: PTH100 (pathlib would resolve links)
    results = [
        AlterReplicaLogDirTopicResult(
            topic_name=name,
            partitions=[
                AlterReplicaLogDirPartitionResult(
                    partition_index=index, error_code=_error_code(broker, name, index, path == own)
                )
                for index, path in paths.items()
            ],
        )
        for name, paths in asked.items()
    ]
    return AlterReplicaLogDirsResponse(results=results)


def _error_code(broker: Broker, name: str, index: int, is_own: bool) -> int:
    if not is_own:
        return ErrorCode.LOG_DIR_NOT_FOUND
    topic = broker.topics.by_name.get(name)
    there = topic is not None and 0 <= index < topic.partitions
    return ErrorCode.NONE if there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
