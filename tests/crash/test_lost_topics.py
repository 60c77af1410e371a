"""A real broker is killed, its log of topics is damaged, and it is started again: nothing acked is unlinked, and what
the log says to do brings it back. `tests/broker/test_orphans.py` walks over every way to damage it, in process.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from against.patience import eventually
from proving import proves
from tidelog.broker.topics import TOPICS_TOPIC
from tidelog.cli.main import main
from tidelog.client.admin import groups
from tidelog.client.metadata import TopicPartition
from tidelog.errors import TidelogError
from tidelog.log.header_block import unpack_slots
from tidelog.log.names import partition_name
from tidelog.testing.broker import TestBroker
from tidelog.testing.disk import flip_bit

FOLDER = partition_name(TOPICS_TOPIC.topic_id, 0)
TOPICS = ("first", "newest")
VALUES = [b"%d" % number for number in range(20)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TestBroker]:
    with TestBroker(tmp_path / "data") as started:
        for topic in TOPICS:
            started.create_topic(topic, configs={"retention.ms": -1})
            started.produce(topic, VALUES)
            groups.commit(started.cluster, "group", {TopicPartition(topic, 0): 11})
        yield started


def topics_log(broker: TestBroker) -> Path:
    (log,) = (broker.data / FOLDER).glob("*.log")
    return log


def is_recorded(broker: TestBroker) -> bool:
    content = topics_log(broker).read_bytes()
    slot = unpack_slots(content)
    return slot is not None and slot.synced_position == len(content)


def check_all_there(broker: TestBroker) -> None:
    for topic in TOPICS:
        assert [row.value for row in broker.records(topic)] == VALUES
        assert groups.committed(broker.cluster, "group")[TopicPartition(topic, 0)].offset == 11
        broker.produce(topic, [b"after"])


@proves("T6")
def test_a_bit_that_flips_in_the_last_topic_long_after_it_was_acked_stops_the_start_and_takes_no_record(
    broker: TestBroker,
) -> None:
    eventually(lambda: is_recorded(broker))
    broker.kill()
    log = topics_log(broker)
    flip_bit(log, log.stat().st_size - 50)
    with pytest.raises(TidelogError, match=f"repair --data {broker.data} {TOPICS_TOPIC.name} 0 --skip"):
        broker.start()
    data = str(broker.data)
    assert main(["repair", "--data", data, TOPICS_TOPIC.name, "0", "--skip", "--yes"]) == 0
    assert main(["repair", "adopt", "--data", data]) == 0
    broker.start()
    check_all_there(broker)


def remove_folder(folder: Path) -> None:
    shutil.rmtree(folder)


def empty(folder: Path) -> None:
    (log,) = folder.glob("*.log")
    log.write_bytes(b"")


@proves("T6")
@pytest.mark.parametrize("damage", [remove_folder, empty])
def test_a_broker_without_its_log_of_topics_does_not_say_that_it_is_ready(
    broker: TestBroker, damage: Callable[[Path], None]
) -> None:
    broker.kill()
    damage(broker.data / FOLDER)
    for _ in range(2):
        with pytest.raises(TidelogError, match=f"its log of topics, .*tidelog repair adopt --data {broker.data}"):
            broker.start()
    assert main(["repair", "adopt", "--data", str(broker.data)]) == 0
    broker.start()
    check_all_there(broker)
