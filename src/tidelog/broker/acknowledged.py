"""`tidelog.delete.when=acknowledged`: the start of a partition follows the slowest of the groups that the topic names.

A share group is done with what lies below the start of its queue, a consumer group with what lies below its committed
offset. As long as one of them has neither, nothing is deleted. Retention goes on beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.errors import StorageError

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.topics import Topic

SETTING = "tidelog.delete.when"


def delete_acknowledged(broker: Broker) -> None:
    """A turn of housekeeping."""
    for topic in [one for one in broker.topics.by_name.values() if one.configs.get(SETTING) == "acknowledged"]:
        for index in range(topic.partitions):
            partition = broker.open_partition(topic.name, index)
            if partition is None or not partition.log.loaded:
                continue  # nobody has used it since the start
            below = _done_below(broker, topic, index, partition.config.delete_groups)
            log = partition.log
            if below is not None and log.start_offset < min(below, log.high_watermark):
                try:
                    log.delete_before(min(below, log.high_watermark))
                except StorageError as error:
                    broker.logger.seldom("acknowledged records not deleted", topic=topic.name, error=error)


def _done_below(broker: Broker, topic: Topic, index: int, groups: tuple[str, ...]) -> int | None:
    """The offset below which all groups are done; None while one has not begun."""
    done: list[int] = []
    for group in groups:
        queue = broker.queues.state.queue(group, (topic.topic_id, index)) if broker.has_queues else None
        committed = broker.groups.offsets.get(group, {}).get((topic.name, index))
        if queue is not None:
            done.append(queue.window.start)
        elif committed is not None:
            done.append(committed.offset)
        else:
            return None
    return min(done, default=None)
