"""`tidelog repair` on a folder from which files were taken: it says what is missing, and can go on without it."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from against.patience import eventually
from cli.command import Command
from log.resting import all_rest, at_work
from proving import proves
from tidelog.broker.embedded import Broker
from tidelog.broker.topics import ACCESS_TOPIC, GROUPS_TOPIC, TRANSACTIONS_TOPIC, Topic
from tidelog.client.admin import access, configs, groups, topics, transactions
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, LATEST, list_offsets
from tidelog.client.producer import Producer
from tidelog.errors import TidelogError
from tidelog.log.ends import read_ends
from tidelog.log.files import RealFiles
from tidelog.testing.broker import TestBroker

AT = TopicPartition("orders", 0)
COUNT, IN_LAST = 12, 4
MIDDLE = 3
WHAT = ["folder", "first", "last", "both", "half", "middle", "emptied"]
SETTINGS = {"tidelog.log.level": "ERROR", "log.roll.ms": 1}


class Written(NamedTuple):
    """The same records, by how the broker ended."""

    stopped: Path
    killed: Path  # while all partitions rested
    at_work: Path  # killed before they did: the last commit of each is in no slot
    folder: str

    def copy(self, to: Path, ended: str) -> Path:
        data: Path = getattr(self, ended)
        assert (data / "clean").exists() is (ended == "stopped")
        return shutil.copytree(data, to)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Twelve records of as many batches, the last four in one segment; two of everything that a broker decides."""
    folder = tmp_path_factory.mktemp("missing")
    data = folder / "stopped"
    with at_work(), Broker(data, settings=SETTINGS, in_process=True) as broker, Cluster(broker.bootstrap) as cluster:
        topics.create(cluster, "orders", configs={"segment.ms": "1"})
        for number in range(2):
            groups.commit(cluster, f"group {number}", {AT: number})
            transactions.abort(cluster, f"id {number}")
            access.alter_quotas(cluster, {"user": f"user {number}"}, {"producer_byte_rate": 1e9})
        for number in range(COUNT):
            if number == COUNT - IN_LAST:
                configs.alter(cluster, configs.TOPIC, "orders", set={"segment.ms": "100000000"})
            put(cluster, b"record %d" % number)
        name = f"{cluster.topic('orders').topic_id.hex()}-0"
        ended = lambda: read_ends(RealFiles(), str(data)).table.get(name)  # noqa: E731
        eventually(ended, lambda end: end is not None and end.end_offset == COUNT)
        working = shutil.copytree(data, folder / "at work")
        assert not all_rest(working)
    resting = shutil.copytree(working, folder / "resting")
    with Broker(resting, settings=SETTINGS, in_process=True):
        eventually(lambda: all_rest(resting))
        killed = shutil.copytree(resting, folder / "killed")
    return Written(data, killed, working, name)


def put(cluster: Cluster, value: bytes) -> int:
    producer = Producer(cluster)
    sent = producer.send("orders", value, partition=0)
    producer.flush()
    assert sent.offset is not None
    return sent.offset


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def harm(folder: Path, what: str) -> None:
    logs = segments(folder)
    if what == "folder":
        shutil.rmtree(folder)
    elif what == "first":
        logs[0].unlink()
    elif what == "last":
        logs[-1].unlink()
    elif what == "both":
        logs[0].unlink()
        logs[-1].unlink()
    elif what == "middle":
        logs[MIDDLE].unlink()
    elif what == "emptied":
        logs[0].write_bytes(b"")
    else:
        with logs[-1].open("r+b") as file:
            file.truncate(logs[-1].stat().st_size - 10)


def lost_offsets(written: Written, what: str) -> set[int]:
    logs = segments(written.stopped / written.folder)
    first, last = range(int(logs[1].stem)), range(int(logs[-1].stem), COUNT)
    middle = range(int(logs[MIDDLE].stem), int(logs[MIDDLE + 1].stem))
    return {
        "folder": set(range(COUNT)),
        "first": set(first),
        "last": set(last),
        "both": {*first, *last},
        "half": {COUNT - 1},
        "middle": set(middle),
        "emptied": set(first),
    }[what]


@proves("T1", "T6")
@pytest.mark.parametrize(
    ("what", "ended"),
    [*itertools.product(WHAT, ["stopped", "killed"]), ("half", "at_work")],
)
def test_what_is_missing_is_damage_and_the_partition_goes_on_behind_it(
    written: Written, tmp_path: Path, nowhere: Command, what: str, ended: str
) -> None:
    data = written.copy(tmp_path / "data", ended)
    harm(data / written.folder, what)
    for _ in range(2):
        shown = nowhere("repair", "--data", str(data), "--json")
        assert shown.code == 1, "looking changes nothing"
        assert [(one["topic"], one["partition"], one["passed"]) for one in shown.json["damage"]] == [
            ("orders", 0, False)
        ]
    assert (data / "clean").exists() is (ended == "stopped")
    refused = nowhere("repair", "--data", str(data), "orders", "0", "--skip")
    assert refused.code == 2 and "nothing was changed" in refused.err
    skipped = nowhere("repair", "--data", str(data), "orders", "0", "--skip", "--yes", "--json")
    assert skipped.code == 0, skipped.err
    lost = lost_offsets(written, what)
    told = {offset for one in skipped.json["damage"] for offset in range(one["base_offset"], one["end_offset"])}
    assert told == lost and all(one["passed"] for one in skipped.json["damage"])
    assert nowhere("repair", "--data", str(data)).code == 0
    with TestBroker(data) as broker:
        start = {"folder": COUNT, "first": len(lost), "both": min(set(range(COUNT)) - lost, default=0)}.get(what, 0)
        assert list_offsets(broker.cluster, {AT: EARLIEST})[AT].offset == start
        left = [at for at in range(COUNT) if at not in lost]
        assert [row.offset for row in broker.records("orders")] == left
        # Half of the last segment is a hole once the partition has rested, and missing before that. Behind a hole at
        # the end there is a batch without records, which has an offset.
        is_hole = what == "half" and ended != "at_work"
        goes_on, following = what in ("first", "middle", "emptied") or is_hole, COUNT + is_hole
        assert broker.cluster.topic("orders").partitions[0].leader_epoch == (0 if goes_on else 1)
        assert put(broker.cluster, b"next") == following
    with TestBroker(data) as broker:
        assert list_offsets(broker.cluster, {AT: LATEST})[AT].offset == following + 1
        rows = broker.records("orders")
        assert [row.offset for row in rows] == [*left, following] and rows[-1].value == b"next"


@proves("T1", "T6")
@pytest.mark.parametrize("topic", [GROUPS_TOPIC, TRANSACTIONS_TOPIC, ACCESS_TOPIC], ids=lambda topic: topic.name)
@pytest.mark.parametrize(
    ("what", "ended", "fault"),
    [
        ("folder", "stopped", "missing"),
        ("folder", "killed", "missing"),
        ("half", "stopped", None),  # of which a snapshot has all that is missing
        ("half", "killed", "damaged"),
        ("half", "at_work", "missing"),
    ],
)
def test_a_broker_starts_again_when_what_it_had_decided_is_given_up(
    written: Written, tmp_path: Path, nowhere: Command, topic: Topic, what: str, ended: str, fault: str | None
) -> None:
    data = written.copy(tmp_path / "data", ended)
    harm(data / f"{topic.topic_id.hex()}-0", what)
    if fault is not None:
        with pytest.raises(TidelogError, match=f"{fault}.*{topic.name} 0 --skip"):
            Broker(data, settings=SETTINGS, in_process=True).start()
    assert nowhere("repair", "--data", str(data), topic.name, "0", "--skip", "--yes").code == 0
    for number in (2, 3):
        with Broker(data, settings=SETTINGS, in_process=True) as broker, Cluster(broker.bootstrap) as cluster:
            consumer = Consumer(cluster)
            consumer.assign({AT: 0})
            assert next(consumer.fetch()[0].rows()).value == b"record 0"
            groups.commit(cluster, f"group {number}", {AT: number})
            transactions.abort(cluster, f"id {number}")
            access.alter_quotas(cluster, {"user": f"user {number}"}, {"producer_byte_rate": 1e9})
            ids = {one.transactional_id for one in transactions.list_all(cluster)}
            assert {f"group {at}" for at in range(2, number + 1)} <= {one.group for one in groups.list_all(cluster)}
            assert {f"id {at}" for at in range(2, number + 1)} <= ids


@proves("T6")
def test_a_look_at_a_folder_without_a_partition_keeps_its_mark(
    written: Written, tmp_path: Path, nowhere: Command
) -> None:
    data = written.copy(tmp_path / "data", "stopped")
    before = (data / "clean").read_bytes()
    harm(data / written.folder, "folder")
    shown = nowhere("repair", "--data", str(data))
    assert shown.code == 1 and "the folder or all its segments are missing" in shown.out
    assert sorted((data / "clean").read_bytes().splitlines()[0]) == sorted(before.splitlines()[0])
