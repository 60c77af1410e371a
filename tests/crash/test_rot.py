"""One bit of a data folder flips, any bit of any file: everything is as it was, or an error says that it is not.

What an error may cover is one batch. Whatever else the bit was in (an index, a snapshot, a mark) can be made anew, or
the broker refuses to start and says what to do. So it is of a folder that was left by a clean stop, and of one whose
broker was killed when its partitions rested: then nothing is in doubt, the last batch no more than the first.
"""

from __future__ import annotations

import random
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from against.patience import eventually
from crash.seeds import run_seeds
from proving import proves
from tidelog.broker.embedded import Broker
from tidelog.broker.topics import GROUPS_TOPIC, TOPICS_TOPIC, TRANSACTIONS_TOPIC, Topic
from tidelog.cli.main import main
from tidelog.client.admin import groups, topics, transactions
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, LATEST, list_offsets
from tidelog.client.producer import Producer
from tidelog.errors import BrokerError, TidelogError
from tidelog.log.header_block import unpack_slots
from tidelog.record.codec import scan
from tidelog.testing.disk import flip_bit
from tidelog.wire.error_code import ErrorCode

FEW = 25
SOAK_FLIPS = 400
RECORDS, BATCHES, ROLLS = 6, 5, 2
PARTITIONS = [TopicPartition("plain", 0), TopicPartition("plain", 1), TopicPartition("squeezed", 0)]
COMPRESSIONS = {"plain": "none", "squeezed": "zstd"}
GROUP = "group"
SETTINGS = {"tidelog.log.level": "ERROR", "log.roll.ms": 50, "log.index.interval.bytes": 200}


class Written(NamedTuple):
    """`killed` is the folder as it was at rest, before the stop that left `data`."""

    data: Path
    killed: Path
    values: dict[TopicPartition, list[bytes]]  # by offset


def write_folder(data: Path) -> Written:
    values: dict[TopicPartition, list[bytes]] = {at: [] for at in PARTITIONS}
    killed = data.with_name("killed")
    with Broker(data, settings=SETTINGS) as broker, Cluster(broker.bootstrap) as cluster:
        for name in COMPRESSIONS:
            topics.create(cluster, name, partitions=sum(at.topic == name for at in PARTITIONS))
        for number in range(BATCHES * ROLLS):
            for at, written in values.items():
                write_batch(cluster, at, written)
            groups.commit(cluster, GROUP, dict.fromkeys(PARTITIONS, number))
            if number == BATCHES - 1:
                broker.stop()
                broker.start()
        eventually(lambda: [log for log in data.glob("*/*.log") if is_last(log) and not is_recorded(log)] == [])
        shutil.copytree(data, killed)  # what is written is there, as after a kill: the page cache is the kernel's
    return Written(data, killed, values)


def is_last(log: Path) -> bool:
    return log == max(log.parent.glob("*.log"))


def is_recorded(log: Path) -> bool:
    content = log.read_bytes()
    slot = unpack_slots(content)
    return slot is not None and slot.synced_position == len(content)


def write_batch(cluster: Cluster, at: TopicPartition, written: list[bytes]) -> None:
    producer = Producer(cluster, compression=COMPRESSIONS[at.topic])
    for _ in range(RECORDS):
        value = b"%s of %s " % (str(len(written)).encode(), str(at).encode()) * 5
        written.append(value)
        producer.send(at.topic, value, key=b"key", headers=[("header", b"value")], partition=at.partition)
    producer.flush()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return write_folder(tmp_path_factory.mktemp("rot") / "data")


def flip_anywhere(written: Written, folder: Path, seed: int) -> None:
    rng = random.Random(seed)
    data = folder / "data"
    shutil.copytree(written.killed if seed % 2 else written.data, data)
    files = sorted(path for path in data.rglob("*") if path.is_file() and path.stat().st_size)
    path = rng.choice(files)
    byte, bit = rng.randrange(path.stat().st_size), rng.randrange(8)
    flip_bit(path, byte, bit)
    try:
        check_folder(data, written.values)
    except BaseException as error:
        error.add_note(f"bit {bit} of byte {byte} of {path.relative_to(data)}, which has {path.stat().st_size}")
        raise
    finally:
        shutil.rmtree(folder)


def check_folder(data: Path, values: dict[TopicPartition, list[bytes]]) -> None:
    broker = Broker(data, settings=SETTINGS, in_process=True)
    try:
        broker.start()
    except TidelogError as error:
        # Refused, by name and with advice. Damage in batches never stops a start, but for the broker's own topics.
        assert "; " in str(error) and str(data) in str(error), error
        return
    with ExitStack() as ending:
        ending.callback(broker.stop)
        cluster = ending.enter_context(Cluster(broker.bootstrap))
        holes = Counter(at for at, written in values.items() for _ in holes_in(cluster, at, written))
        assert len(holes) <= 1 and holes.total() <= RECORDS, f"more than a batch is lost: {holes}"
        offsets = {at: one.offset for at, one in groups.committed(cluster, GROUP).items()}
        assert offsets == dict.fromkeys(PARTITIONS, BATCHES * ROLLS - 1), "no answered commit has gone back"
        for at, written in values.items():
            producer = Producer(cluster)
            sent = producer.send(at.topic, b"after", partition=at.partition)
            producer.flush()
            assert sent.offset == len(written)


def holes_in(cluster: Cluster, at: TopicPartition, written: list[bytes]) -> Iterator[int]:
    """The offsets that answer CORRUPT_MESSAGE; all others must answer what was written."""
    ends = {where: list_offsets(cluster, {at: where})[at].offset for where in (EARLIEST, LATEST)}
    assert ends == {EARLIEST: 0, LATEST: len(written)}, f"{at} is now {ends}"
    for offset, value in enumerate(written):
        consumer = Consumer(cluster, max_partition_bytes=1)
        consumer.assign({at: offset})
        try:
            (fetched,) = consumer.fetch()
        except BrokerError as error:
            assert error.code == ErrorCode.CORRUPT_MESSAGE, error
            yield offset
            continue
        assert scan(fetched.batches).error is None
        assert next(row.value for row in fetched.rows()) == value


@proves("T6")
def test_no_bit_of_a_data_folder_flips_in_silence(written: Written, tmp_path: Path) -> None:
    run_seeds(tmp_path, FEW, lambda folder, seed: flip_anywhere(written, folder, seed))


@pytest.mark.soak
@proves("T6")
def test_no_bit_of_a_data_folder_flips_in_silence_however_many(written: Written, tmp_path: Path, seed: int) -> None:
    run_seeds(tmp_path, SOAK_FLIPS, lambda folder, one: flip_anywhere(written, folder, one), seed * SOAK_FLIPS)


@proves("T6")
@pytest.mark.parametrize(
    "topic", [TOPICS_TOPIC, GROUPS_TOPIC, TRANSACTIONS_TOPIC], ids=["topics", "groups", "transactions"]
)
def test_damage_in_the_brokers_own_topics_stops_the_start_and_names_the_command_that_mends_it(
    tmp_path: Path, topic: Topic
) -> None:
    data = tmp_path / "data"
    broker = Broker(data, settings=SETTINGS).start()
    with Cluster(broker.bootstrap) as cluster:
        for number in range(4):
            topics.create(cluster, f"topic-{number}")
            groups.commit(cluster, f"group-{number}", {TopicPartition(f"topic-{number}", 0): number})
            transactions.abort(cluster, f"id-{number}")  # which takes it, and so it is known
    broker.kill()
    (log,) = (data / f"{topic.topic_id.hex()}-0").glob("*.log")
    needles = {TOPICS_TOPIC.name: b"topic-1", GROUPS_TOPIC.name: b"group-1", TRANSACTIONS_TOPIC.name: b"id-1"}
    flip_bit(log, log.read_bytes().index(needles[topic.name]))
    command = rf"tidelog (repair --data {data} {topic.name} 0 --skip)"
    for _ in range(2):
        with pytest.raises(TidelogError, match=command) as refused:
            broker.start()
    found = re.search(command, str(refused.value))
    assert found is not None and main([*found[1].split(), "--yes"]) == 0
    broker.start()
    with Cluster(broker.bootstrap) as cluster:
        ids = {one.transactional_id for one in transactions.list_all(cluster)}
        listed = {*topics.names(cluster), *(one.group for one in groups.list_all(cluster)), *ids}
        everything = {f"{kind}-{number}" for kind in ("topic", "group", "id") for number in range(4)}
        forgotten = {needles[topic.name].decode()}
        if topic is TOPICS_TOPIC:
            forgotten.add("group-1")  # offsets of a topic go with it
        assert everything - forgotten <= listed and everything - listed, listed
        topics.create(cluster, "after")
    broker.stop()
