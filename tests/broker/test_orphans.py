"""The log of topics is damaged in any way: no record of any partition goes, the start says what is wrong, and what it
says to do brings everything back.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from by_hand import ByHand

from proving import proves
from tidelog.broker.topics import GROUPS_TOPIC, TOPICS_TOPIC
from tidelog.cli.main import main
from tidelog.errors import DataFolderError
from tidelog.log.folder import ORPHANED_SUFFIX, partition_name
from tidelog.testing.disk import flip_bit

TOPICS_FOLDER = partition_name(TOPICS_TOPIC.topic_id, 0)
GROUPS_FOLDER = partition_name(GROUPS_TOPIC.topic_id, 0)
TOPICS = {"old": 2, "new": 1}
CONFIGS = {"retention.ms": "-1"}
LAST_BYTES = 206
RESTS = pytest.mark.parametrize("rests", [True, False], ids=["minutes later", "at once"])
Damage = Callable[[Path], None]


def value(topic: str, partition: int, number: int) -> bytes:
    return b"%s-%d-%d" % (topic.encode(), partition, number)


def values(topic: str, partition: int) -> list[bytes]:
    return [value(topic, partition, number) for number in range(4)]


def write(data: Path, *, rests: bool) -> Path:
    """As a `kill -9` leaves it: with minutes since the last write, or none."""
    broker = ByHand(data).start()
    for topic, partitions in TOPICS.items():
        broker.create(topic, partitions, CONFIGS)
        for partition in range(partitions):
            broker.produce(topic, *values(topic, partition), partition=partition)
        broker.commit_offset("group", topic, 1)
        broker.commit_offset("group", topic, 3)
    if rests:
        broker.rest(120)
    broker.kill()
    return data


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    folder = tmp_path_factory.mktemp("orphans")
    return {rests: write(folder / f"data-{rests}", rests=rests) for rests in (True, False)}


@pytest.fixture
def copy(kept: dict[bool, Path], tmp_path: Path) -> Callable[[bool], Path]:
    def copied(rests: bool) -> Path:
        return Path(shutil.copytree(kept[rests], tmp_path / "data"))

    return copied


def topics_log(data: Path) -> Path:
    (log,) = (data / TOPICS_FOLDER).glob("*.log")
    return log


def flip(at: int) -> Damage:
    def damage(data: Path) -> None:
        log = topics_log(data)
        flip_bit(log, log.stat().st_size - at, at % 8)

    return damage


def cut_one_byte(data: Path) -> None:
    log = topics_log(data)
    log.write_bytes(log.read_bytes()[:-1])


def empty(data: Path) -> None:
    topics_log(data).write_bytes(b"")


def remove_file(data: Path) -> None:
    topics_log(data).unlink()


def remove_folder(data: Path) -> None:
    shutil.rmtree(data / TOPICS_FOLDER)


DAMAGES = {
    "last byte": flip(1),
    "in the last batch": flip(100),
    "its first byte": flip(206),
    "a byte is missing": cut_one_byte,
    "empty": empty,
    "file gone": remove_file,
    "folder gone": remove_folder,
}


def records(data: Path) -> list[bytes]:
    """The batches of clients' partitions, wherever their folders are."""
    own = {GROUPS_FOLDER, TOPICS_FOLDER}
    folders = [path for path in data.iterdir() if path.is_dir() and not path.name.startswith(tuple(own))]
    return sorted(
        log.read_bytes()[4096:] for path in folders for log in path.glob("*.log") if log.stat().st_size > 4096
    )


def mend(data: Path) -> tuple[ByHand, list[str]]:
    """Does what the broker says, as whoever runs it would, until it runs with nothing set aside."""
    told = []
    for _ in range(6):
        broker = ByHand(data)
        try:
            broker.start()
        except DataFolderError as error:
            broker.kill()
            told.append(str(error))
            command = re.search(r"run: tidelog (repair adopt --data \S+?|repair --data \S+ \S+ 0 --skip),", str(error))
            assert command is not None, error
            assert main([*command[1].split(), *(["--yes"] if "--skip" in command[1] else [])]) == 0
            continue
        told.append(broker.said())
        if not list(data.glob(f"*{ORPHANED_SUFFIX}")):
            return broker, told
        assert " ERROR folder set aside" in broker.said() or "folders are set aside" in broker.said()
        broker.kill()
        assert main(["repair", "adopt", "--data", str(data)]) == 0
    raise AssertionError(told)


def check_all_there(broker: ByHand) -> None:
    assert {name: topic.partitions for name, topic in broker.broker.topics.by_name.items() if not topic.own} == TOPICS
    for topic, partitions in TOPICS.items():
        assert broker.broker.topics.by_name[topic].configs == CONFIGS
        assert broker.committed("group", topic) == 3
        for partition in range(partitions):
            assert broker.values(topic, partition) == values(topic, partition)
            broker.produce(topic, b"after", partition=partition)


def check(data: Path, damage: Damage) -> list[str]:
    before = records(data)
    assert len(before) == sum(TOPICS.values())
    damage(data)
    broker, told = mend(data)
    assert records(data) == before, "not one byte of them has changed"
    check_all_there(broker)
    broker.kill()
    return told


@proves("T6")
@RESTS
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))
def test_whatever_happens_to_the_log_of_topics_no_record_is_unlinked_and_all_come_back(
    copy: Callable[[bool], Path], damage: Damage, rests: bool
) -> None:
    told = check(copy(rests), damage)
    assert len(told) > 1, f"nobody was told: {told}"


@proves("T6")
@pytest.mark.full
@RESTS
def test_no_byte_of_the_last_batch_of_topics_takes_a_record_with_it(
    kept: dict[bool, Path], tmp_path: Path, rests: bool
):
    for at in range(1, LAST_BYTES + 1):
        data = Path(shutil.copytree(kept[rests], tmp_path / f"{at}"))
        check(data, flip(at))
        shutil.rmtree(data)
