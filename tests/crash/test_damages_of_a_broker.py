"""Damages by `damages.py`, with a real broker: written, killed or stopped, damaged, started as its own words advise."""

from __future__ import annotations

import random
import re
import shutil
import time
from pathlib import Path

import pytest

from crash.damages import BATCHES, END, RECORDS, TOPICS, configs_of, partitions, repair, some, swap, values
from crash.seeds import run_seeds
from proving import proves
from tidelog.broker.embedded import Broker
from tidelog.broker.topics import TOPICS_TOPIC
from tidelog.client.admin import groups, topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer
from tidelog.control.reading import read_all
from tidelog.errors import TidelogError
from tidelog.log.folder import ORPHANED_SUFFIX
from tidelog.log.names import partition_name

PICKS, PICKS_OF_A_TEST = 20, 4
ENDS_KNOWN_S = 1.5  # the end of a partition is known elsewhere a second after a write
TRIES = 8
QUIET = {"tidelog.log.level": "ERROR"}


def write(data: Path, *, clean: bool) -> Path:
    broker = Broker(data, settings=QUIET).start()
    with Cluster(broker.bootstrap) as cluster, Producer(cluster) as producer:
        for topic, count in TOPICS.items():
            topics.create(cluster, topic, partitions=count, configs=configs_of(topic))
        for number in range(BATCHES):
            for topic, partition in partitions():
                for value in values(topic, partition)[number * RECORDS :][:RECORDS]:
                    producer.send(topic, value, partition=partition)
            producer.flush()
            groups.commit(cluster, "readers", {TopicPartition("orders", 0): number})
    time.sleep(ENDS_KNOWN_S)
    if clean:
        broker.stop()
    else:
        broker.kill()
    return data


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    folder = tmp_path_factory.mktemp("damages")
    return {clean: write(folder / str(clean), clean=clean) for clean in (True, False)}


def started(data: Path) -> Broker:
    """Does what the broker says, as who runs it would, until it runs with nothing set aside."""
    told: list[str] = []
    for _ in range(TRIES):
        broker = Broker(data, settings=QUIET)
        try:
            broker.start()
        except TidelogError as error:
            told.append(str(error))
            advice = re.search(r"tidelog repair ((?:adopt )?--data \S+?(?: \S+ \d+ --skip)?)(?:,|$)", str(error), re.M)
            assert advice is not None, f"no advice: {error}"
            assert repair(*advice[1].split(), *(["--yes"] if "--skip" in advice[1] else [])) == 0
            continue
        if not list(data.glob(f"*{ORPHANED_SUFFIX}")):
            return broker
        broker.stop()
        assert repair("adopt", "--data", str(data)) == 0
    raise AssertionError(f"it does not start after {TRIES} tries: {told}")


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@proves("T6")
def test_the_log_of_topics_that_has_another_folders_name_gets_its_own_back(
    kept: dict[bool, Path], tmp_path: Path, clean: bool
) -> None:
    """Also where the other one is all that its topic has."""
    data = Path(shutil.copytree(kept[clean], tmp_path / "data"))
    log_of_topics = data / partition_name(TOPICS_TOPIC.topic_id, 0)
    for other in sorted(one for one in data.glob("*-0") if one != log_of_topics):
        swap(log_of_topics, other)
        assert repair("adopt", "--data", str(data)) == 0
        broker = started(data)
        assert missing(broker) == []
        broker.kill()


def read(cluster: Cluster, topic: str, partition: int) -> list[bytes | None]:
    return [row.value for row in read_all(cluster, TopicPartition(topic, partition))]


def missing(broker: Broker) -> list[tuple[str, int]]:
    """Partitions that a reader is refused; what it is given is complete."""
    refused = []
    with Cluster(broker.bootstrap, timeout_s=1.0) as cluster:
        for topic, partition in partitions():
            try:
                found = read(cluster, topic, partition)
            except TidelogError:
                refused.append((topic, partition))
            else:
                assert found == values(topic, partition), f"{topic}-{partition} has {found} in silence"
    return refused


def try_one(kept: dict[bool, Path], folder: Path, seed: int) -> None:
    rng = random.Random(seed)
    clean = rng.choice((True, False))
    name, wound = some(rng, kept[clean])
    data = Path(shutil.copytree(kept[clean], folder / "data"))
    wound.damage(data / name)
    try:
        broker = started(data)
        refused = missing(broker)
        broker.kill()
        for topic, partition in refused:
            if repair("--data", str(data), topic, str(partition)) != 0:
                assert repair("--data", str(data), topic, str(partition), "--skip", "--yes") == 0
        broker = started(data)
        with Cluster(broker.bootstrap) as cluster, Producer(cluster) as producer:
            for topic, partition in partitions():
                left = read(cluster, topic, partition)
                assert left == [value for value in values(topic, partition) if value in left]
                delivery = producer.send(topic, b"after", partition=partition)
                producer.flush()
                assert delivery.offset >= END, f"{topic}-{partition} gives out {delivery.offset} again"
        broker.kill()
    except BaseException as error:
        error.add_note(f"{'stopped' if clean else 'killed'}; {wound.told}")
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("first", range(1, PICKS + 1, PICKS_OF_A_TEST))
@proves("T6")
def test_no_damage_takes_what_a_broker_has_acked(kept: dict[bool, Path], tmp_path: Path, first: int) -> None:
    run_seeds(tmp_path, PICKS_OF_A_TEST, lambda folder, seed: try_one(kept, folder, seed), first)
