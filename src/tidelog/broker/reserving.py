"""Producer ids when the log of topics has lost some of its records: which may have been given out, and are not again.

A producer id that two producers have is worse than one that nobody has: a record of the second is taken for one of the
first that is there already, and acked. So above all that partitions and the coordinator of transactions remember, as
many more are left out as nobody will have been given that has not written anything yet.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

from tidelog.broker import producer_ids
from tidelog.broker.decision import Decision, NewRecord
from tidelog.broker.internal import InternalTopic, TopicFold
from tidelog.broker.producer_ids import BLOCK_SIZE, ProducerIds
from tidelog.broker.stopped import StoppedBroker
from tidelog.broker.topics import INTERNAL_TOPICS, TOPICS_TOPIC, TRANSACTIONS_TOPIC, Topic
from tidelog.errors import StorageError

LEFT_OUT = 1_000_000  # also for each partition that cannot be asked, as its files are another's say


def reserve(stopped: StoppedBroker) -> None:
    """Of a log of topics whose holes were passed just now."""
    stopped.settle()  # behind a hole at the end there is a batch since
    internal = stopped.topics()
    write(stopped, internal, records_of(stopped, internal.state.producer_ids))


def records_of(stopped: StoppedBroker, known: ProducerIds) -> list[NewRecord]:
    highest = max(known.reserved, _highest(stopped)) + LEFT_OUT
    return producer_ids.to_records(ProducerIds((highest // BLOCK_SIZE + 1) * BLOCK_SIZE))


def write(stopped: StoppedBroker, internal: InternalTopic, records: Sequence[NewRecord]) -> None:
    """Returns when they are on disk."""
    if not records:
        return
    failed: list[StorageError] = []
    internal.commit(Decision(list(records), []), time.time_ns() // 1_000_000)
    internal.log.when_visible(internal.log.end_offset, lambda error: failed.append(error) if error else None)
    stopped.settle()
    if failed:
        raise failed[0]


def _highest(stopped: StoppedBroker) -> int:
    """The highest id that a partition or the coordinator of transactions remembers."""
    own = {topic.topic_id: topic for topic in INTERNAL_TOPICS}
    highest, hidden = -1, 0
    for topic_id, index in stopped.folder.contents().partitions:
        if topic_id != TOPICS_TOPIC.topic_id:
            topic = own.get(topic_id) or Topic(topic_id.hex(), topic_id, 0, {}, 0)
            try:
                log = stopped.open(topic, index, checked=False)
            except StorageError:
                hidden += LEFT_OUT
                continue
            highest = max(highest, *log.producers, *log.open_transactions(), -1)
    return max(highest, _of_transactions(stopped)) + hidden


def _of_transactions(stopped: StoppedBroker) -> int:
    from tidelog.broker.transactions import state as transactions

    fold = TopicFold(transactions.fresh, transactions.apply, transactions.to_records)
    told, highest = InternalTopic(TRANSACTIONS_TOPIC.name, fold, lambda _error: None), -1
    if stopped.has(TRANSACTIONS_TOPIC, 0):
        with suppress(StorageError):  # as above; what is wrong with it is told when the broker starts
            told.recover(stopped.open(TRANSACTIONS_TOPIC, 0), stopped.folder.path, stopped.files)
            for one in told.state.transactions.values():
                highest = max(highest, one.producer_id, one.previous_producer_id, one.next_producer_id)
    return highest
