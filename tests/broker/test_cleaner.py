"""The broker compacts by itself: topics that ask for it, by their settings, beside everything else that it does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from proving import proves
from tidelog.client.admin import configs, topics
from tidelog.testing.broker import TestBroker

PATIENCE_S = 180.0
QUICK = {"log.cleaner.backoff.ms": "50", "log.retention.check.interval.ms": "200"}
COMPACT = {"cleanup.policy": "compact", "internal.segment.bytes": "20000", "min.cleanable.dirty.ratio": "0.01"}
ROUNDS = 60
KEYS = 10


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TestBroker]:
    with TestBroker(tmp_path / "data", settings=QUICK) as broker:
        yield broker


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def fill(broker: TestBroker, topic: str, rounds: range = range(ROUNDS)) -> None:
    for number in rounds:
        broker.produce(topic, [(f"key-{key}", f"{number}-" + "x" * 200) for key in range(KEYS)])


def table(broker: TestBroker, topic: str) -> dict[bytes | None, bytes | None]:
    return {row.key: row.value for row in broker.records(topic)}


def expected(rounds: int) -> dict[bytes, bytes]:
    return {b"key-%d" % key: b"%d-" % (rounds - 1) + b"x" * 200 for key in range(KEYS)}


@proves("T8", "D5")
def test_a_compacted_topic_shrinks_and_says_the_same(broker: TestBroker) -> None:
    broker.create_topic("prices", configs=COMPACT)
    fill(broker, "prices")
    until(lambda: len(broker.records("prices")) < ROUNDS * KEYS / 4)
    assert table(broker, "prices") == expected(ROUNDS)
    broker.kill()
    broker.start()
    assert table(broker, "prices") == expected(ROUNDS)
    fill(broker, "prices", range(ROUNDS, 2 * ROUNDS))
    until(lambda: len(broker.records("prices")) < ROUNDS * KEYS / 4)
    assert table(broker, "prices") == expected(2 * ROUNDS)


def compacts_another(broker: TestBroker, rounds: range) -> None:
    """One walk of the cleaner, which takes one partition after the other."""
    fill(broker, "stock", rounds)
    until(lambda: len(broker.records("stock")) < ROUNDS * KEYS / 4)


def turns(broker: TestBroker, topic: str) -> None:
    """A turn of what the broker does by itself: retention first, then the cleaner."""
    broker.create_topic(topic, configs={"retention.ms": "1", "internal.segment.bytes": "2000"})
    fill(broker, topic, range(2))
    until(lambda: len(broker.records(topic)) < KEYS)


@proves("T8", "D5")
def test_a_topic_is_compacted_from_when_it_is_told_to(broker: TestBroker) -> None:
    broker.create_topic("prices", configs={**COMPACT, "cleanup.policy": "delete"})
    fill(broker, "prices")
    broker.create_topic("stock", configs=COMPACT)
    compacts_another(broker, range(ROUNDS))
    compacts_another(broker, range(ROUNDS, 2 * ROUNDS))  # all partitions have had their turn since the first
    assert len(broker.records("prices")) == ROUNDS * KEYS
    configs.alter(broker.cluster, configs.KINDS["topic"], "prices", set={"cleanup.policy": "compact"}, delete=[])
    until(lambda: len(broker.records("prices")) < ROUNDS * KEYS / 4)
    assert table(broker, "prices") == expected(ROUNDS)


@proves("T8")
def test_compaction_can_be_turned_off(tmp_path: Path) -> None:
    settings = {**QUICK, "log.cleaner.enable": "false"}
    with TestBroker(tmp_path / "data", settings=settings) as broker:
        broker.create_topic("prices", configs=COMPACT)
        fill(broker, "prices")
        for number in range(3):
            turns(broker, f"old-{number}")
        assert len(broker.records("prices")) == ROUNDS * KEYS
    with TestBroker(tmp_path / "data", settings=QUICK) as broker:
        fill(broker, "prices", range(1))  # a log that nobody has used since the start is passed over
        until(lambda: len(broker.records("prices")) < ROUNDS * KEYS / 4)


@proves("T8")
def test_topics_come_and_go_while_they_are_compacted(broker: TestBroker) -> None:
    for number in range(4):
        broker.create_topic(f"prices-{number}", configs=COMPACT)
        fill(broker, f"prices-{number}", range(20))
        topics.delete(broker.cluster, f"prices-{number}")
    broker.create_topic("prices", configs=COMPACT)
    fill(broker, "prices")
    until(lambda: len(broker.records("prices")) < ROUNDS * KEYS / 4)
    assert table(broker, "prices") == expected(ROUNDS)
