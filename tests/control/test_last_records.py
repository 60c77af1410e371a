"""Where the last records begin: as many as were asked for, however many offsets behind them are none that count."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from client.committed import rows_of
from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import LATEST, READ_COMMITTED, list_offsets
from tidelog.client.transactions import Transactions
from tidelog.control import last_records
from tidelog.control.last_records import STRETCH_MIN, starts_of_last

ABORTED = 64 * STRETCH_MIN
MARKED = 3 * STRETCH_MIN


class Lasts:
    """Asks of one partition, and counts the stretches that are read for it."""

    def __init__(self, cluster: Cluster, at: TopicPartition, monkeypatch: pytest.MonkeyPatch) -> None:
        self._cluster, self._at = cluster, at
        self.stretches = 0
        read = last_records._offsets

        def counted(*given: Any) -> deque[int] | None:
            self.stretches += 1
            return read(*given)

        monkeypatch.setattr(last_records, "_offsets", counted)

    def start(self, count: int, *, committed: bool = True) -> int:
        self.stretches = 0
        ends = list_offsets(self._cluster, {self._at: LATEST}, isolation=READ_COMMITTED)
        found = starts_of_last(
            self._cluster, count, {self._at: 0}, {self._at: ends[self._at].offset}, committed=committed
        )
        return found[self._at]


def abort(owner: Transactions, topic: str, count: int) -> None:
    with pytest.raises(ZeroDivisionError), owner.transaction() as producer:
        for number in range(count):
            producer.send(topic, b"aborted %d" % number)
        producer.flush()
        raise ZeroDivisionError


@proves("F2", "T10")
def test_the_last_records_behind_thousands_that_were_aborted_are_found_in_a_few_stretches(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create(cluster, topic)
    with Transactions(cluster, f"id-{topic}") as owner:
        with owner.transaction() as producer:
            for number in range(5):
                producer.send(topic, b"%d" % number)
        abort(owner, topic, ABORTED)
        with owner.transaction() as producer:
            producer.send(topic, b"last")
    at = TopicPartition(topic, 0)
    offsets = [row.offset for row in rows_of(cluster, at)]
    assert len(offsets) == 6 and offsets[-1] - offsets[-2] > ABORTED
    lasts = Lasts(cluster, at, monkeypatch)
    assert (lasts.start(1), lasts.stretches) == (offsets[-1], 1)
    for count in (2, 6):
        assert lasts.start(count) == offsets[-count]
        assert lasts.stretches <= 8, "each is twice as long as the one before"
    assert (lasts.start(1000), lasts.start(100, committed=False)) == (0, offsets[-1] - 1 - 99)


@proves("F2", "T10")
def test_the_last_records_between_markers_of_transactions_are_as_many_as_were_asked_for(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create(cluster, topic)
    with Transactions(cluster, f"id-{topic}") as owner:
        for number in range(MARKED):
            with owner.transaction() as producer:
                producer.send(topic, b"%d" % number)
    at = TopicPartition(topic, 0)
    offsets = [row.offset for row in rows_of(cluster, at)]
    lasts = Lasts(cluster, at, monkeypatch)
    for count in (1, 2, STRETCH_MIN - 1, STRETCH_MIN, STRETCH_MIN + 1, MARKED - 1, MARKED):
        assert lasts.start(count) == offsets[-count]
    assert (lasts.start(MARKED + 1), lasts.start(10 * MARKED)) == (0, 0)
    assert lasts.stretches == 0, "of a partition that has no more offsets nothing is read"
