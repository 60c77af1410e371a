"""The log of topics is damaged in any way: no record of any partition goes, the start says what is wrong, and what it
says to do brings everything back.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from errno import ENOSPC
from pathlib import Path

import pytest
from by_hand import ByHand

from proving import proves
from tidelog.broker.decision import Decision
from tidelog.broker.topic_changes import Creation, decide_create
from tidelog.broker.topics import GROUPS_TOPIC, TOPICS_TOPIC, random_id, topic_record
from tidelog.broker.transactions import state as transactions
from tidelog.broker.transactions.state import Transaction
from tidelog.broker.transactions.states import State
from tidelog.cli.main import main
from tidelog.errors import DataFolderError, DiskFullError
from tidelog.log import identity
from tidelog.log.folder import ORPHANED_SUFFIX
from tidelog.log.header_block import HEADER_BLOCK
from tidelog.log.names import partition_name
from tidelog.record import codec
from tidelog.record.columns import encode
from tidelog.testing.disk import SimulatedDisk, flip_bit

TOPICS_FOLDER = partition_name(TOPICS_TOPIC.topic_id, 0)
GROUPS_FOLDER = partition_name(GROUPS_TOPIC.topic_id, 0)
TOPICS = {"old": 2, "new": 1}
CONFIGS = {"retention.ms": "-1"}
LAST_BYTES = 220  # of the last batch
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
    "its offset": flip(213),
    "its length": flip(210),
    "a byte is missing": cut_one_byte,
    "empty": empty,
    "file gone": remove_file,
    "folder gone": remove_folder,
}


def records(data: Path) -> list[bytes]:
    """The batches of clients' partitions, wherever their folders are."""
    own = {GROUPS_FOLDER, TOPICS_FOLDER}
    folders = [path for path in data.iterdir() if path.is_dir() and not path.name.startswith(tuple(own))]
    logs = [log for path in folders for log in path.glob("*.log")]
    return sorted(log.read_bytes()[HEADER_BLOCK:] for log in logs if log.stat().st_size > HEADER_BLOCK)


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
    assert len(told) > 1 or " WARNING recovered" in told[0], f"nobody was told: {told}"


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


# What else follows from it --------------------------------------------------------------------------------------------


@proves("T6")
def test_an_offset_that_was_answered_does_not_go_back_when_the_bit_flips_later(tmp_path: Path) -> None:
    data = tmp_path / "data"
    broker = ByHand(data).start()
    broker.create("orders")
    broker.commit_offset("group", "orders", 50)
    broker.commit_offset("group", "orders", 90)
    broker.rest()
    broker.kill()
    (log,) = (data / GROUPS_FOLDER).glob("*.log")
    flip_bit(log, log.stat().st_size - 20)
    with pytest.raises(DataFolderError, match=rf"{GROUPS_TOPIC.name} is damaged at or after offset 0: .* --skip"):
        ByHand(data).start()
    flip_bit(log, log.stat().st_size - 20)
    broker = ByHand(data).start()
    assert broker.committed("group", "orders") == 90
    broker.kill()


@proves("T6")
def test_within_the_second_a_flipped_bit_is_told_and_what_was_cut_is_kept(tmp_path: Path) -> None:
    data = tmp_path / "data"
    broker = ByHand(data).start()
    broker.create("orders")
    broker.commit_offset("group", "orders", 50)
    broker.commit_offset("group", "orders", 90)
    broker.kill()
    (log,) = (data / GROUPS_FOLDER).glob("*.log")
    flip_bit(log, log.stat().st_size - 20)
    broker = ByHand(data).start()
    assert broker.committed("group", "orders") == 50
    assert f" WARNING recovered topic={GROUPS_TOPIC.name} " in broker.said()
    assert "or damage to what was acked in the last second before it" in broker.said()
    (cut,) = (data / GROUPS_FOLDER).glob("*.cut")
    assert b"90" in cut.read_bytes()
    broker.kill()


def folder_of(broker: ByHand, topic: str, partition: int = 0) -> Path:
    return broker.data / partition_name(broker.broker.topics.by_name[topic].topic_id, partition)


@proves("T6")
def test_folders_of_a_topic_that_was_deleted_go_also_after_a_crash(tmp_path: Path) -> None:
    broker = ByHand(tmp_path / "data").start()
    broker.create("orders")
    broker.produce("orders", b"x")
    folder = folder_of(broker, "orders")
    shutil.copytree(folder, tmp_path / "kept")
    broker.delete("orders")
    assert not folder.exists()
    broker.kill()
    shutil.copytree(tmp_path / "kept", folder)  # as if the crash had come before it was renamed
    shutil.copytree(tmp_path / "kept", f"{folder.with_name(folder.name[:-1] + '7')}.deleted")  # and half-way through
    broker = ByHand(tmp_path / "data").start()
    assert not list((tmp_path / "data").glob(f"{folder.name[:32]}*")), "nothing of it is set aside either"
    assert " INFO left-over folder removed" in broker.said() and "ERROR" not in broker.said()
    broker.kill()


@proves("T6")
def test_a_folder_without_a_topic_and_without_a_record_goes(tmp_path: Path) -> None:
    broker = ByHand(tmp_path / "data").start()
    broker.create("orders")
    broker.produce("orders", b"x")
    folder = folder_of(broker, "orders")
    broker.kill()
    empty = Path(shutil.copytree(folder, tmp_path / "data" / f"{'ab' * 16}-0"))
    (log,) = empty.glob("*.log")
    log.write_bytes(log.read_bytes()[:HEADER_BLOCK])
    broker = ByHand(tmp_path / "data").start()
    assert not empty.exists() and folder.exists()
    assert f" INFO left-over folder removed path={empty}" in broker.said() and "ERROR" not in broker.said()
    broker.kill()


@proves("T6")
def test_a_partition_gets_no_folder_before_its_topic_is_on_disk(tmp_path: Path) -> None:
    disk = SimulatedDisk(tmp_path / "disk")
    broker = ByHand(tmp_path / "disk" / "data", disk).start()
    broker.create("first")
    disk.fail("write", OSError(ENOSPC, "no room"), name=TOPICS_FOLDER)
    shell = broker.broker
    decided = decide_create(shell.topics, [Creation("lost", 1, 1)], shell.config, random_id, shell.now())
    shell.commit(TOPICS_TOPIC.name, Decision(decided.records, []))
    folder = folder_of(broker, "lost")
    log = shell.partition("lost", 0).log
    batch = encode([(None, b"x", (), 1)])
    told: list[object] = []
    log.append(memoryview(batch), codec.check(batch), 1)
    log.when_visible(1, told.append)
    broker.committer.settle()
    assert isinstance(told[0], DiskFullError) and "lost" not in shell.topics.by_name
    assert not folder.exists()
    broker.create("lost")
    broker.produce("lost", b"y")
    assert broker.values("lost") == [b"y"]
    broker.kill()


@proves("T6")
def test_a_transaction_that_was_committed_is_committed_when_its_topic_comes_back(tmp_path: Path) -> None:
    """The kill came between the outcome and its marker. Without the topic the marker cannot be written, and must be."""
    data = tmp_path / "data"
    broker = ByHand(data).start()
    broker.create("first")
    broker.create("orders")
    batch = encode([(None, b"paid", (), 1)], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    broker.broker.partition("orders", 0).log.append(memoryview(batch), codec.check(batch), 1)
    prepared = Transaction("id", State.PREPARE_COMMIT, 7, 0, 60_000, 1, partitions=frozenset({("orders", 0)}))
    broker.broker.transactions.internal.commit(Decision([transactions.record(prepared)], []), 1)
    broker.committer.settle()
    broker.kill()
    flip(50)(data)
    broker = ByHand(data).start()
    assert "marker waits: its topic's folders are set aside" in broker.said()
    assert broker.broker.transactions.state.transactions["id"].state is State.PREPARE_COMMIT
    broker.kill()
    assert main(["repair", "adopt", "--data", str(data)]) == 0
    broker = ByHand(data).start()
    assert broker.broker.transactions.state.transactions["id"].state is State.COMPLETE_COMMIT
    stable = broker.broker.partition("orders", 0).log.stable()
    assert (stable.offset, stable.aborted_between(0, 2)) == (2, []), "and not aborted, as what nobody knows of is"
    broker.kill()


@proves("T6")
def test_a_folder_says_the_settings_that_its_topic_has_now(tmp_path: Path) -> None:
    broker = ByHand(tmp_path / "data").start()
    broker.create("orders", 3)
    for partition in (0, 2):
        broker.produce("orders", b"x", partition=partition)
    broker.alter("orders", "retention.ms", "1234")
    for partition in (0, 2):
        found = identity.load(broker.files, str(folder_of(broker, "orders", partition)))
        assert found is not None and (found.topic, found.partitions) == ("orders", 3)
        assert found.configs == {"retention.ms": "1234"}
    broker.kill()


@proves("T6")
def test_a_partition_that_its_topic_does_not_count_any_more_is_told_and_can_be_counted_again(tmp_path: Path) -> None:
    """As when the record that added partitions is lost."""
    broker = ByHand(tmp_path / "data").start()
    broker.create("orders", 4)
    broker.produce("orders", b"x", partition=3)
    orders = broker.broker.topics.by_name["orders"]
    broker.decide(TOPICS_TOPIC.name, Decision([topic_record(orders._replace(partitions=1))], []))
    broker.kill()
    broker = ByHand(tmp_path / "data").start()
    assert " ERROR partition cannot be reached: its topic has fewer topic=orders partition=3" in broker.said()
    broker.kill()
    assert main(["repair", "adopt", "--data", str(tmp_path / "data")]) == 0
    broker = ByHand(tmp_path / "data").start()
    assert broker.values("orders", 3) == [b"x"] and broker.broker.topics.by_name["orders"].partitions == 4
    broker.kill()


@proves("T6")
def test_what_a_data_folder_has_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        data = write(tmp_path / "data", rests=True)
        broker = ByHand(data).start()
        broker.stop()
    finally:
        os.umask(before)
    paths = [data, *data.rglob("*")]
    assert len(paths) > 10
    assert [path for path in paths if path.stat().st_mode & 0o777 != (0o700 if path.is_dir() else 0o600)] == []


@proves("T6")
def test_a_data_folder_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o755)
    ByHand(data).start().stop()
    assert data.stat().st_mode & 0o777 == 0o755
