"""The power goes at any operation of the disk, and the disk keeps of what was not synced what it likes: a whole broker
loses nothing that it acked, neither records nor decisions, and goes on.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from crash.administrator import Decided, administer
from crash.clients import (
    CLASSIC,
    CONSUMER,
    Load,
    Place,
    note_places,
    read,
    read_forgetful,
    read_in_group,
    wait_for_groups,
    write,
    write_confluent,
)
from crash.ledger import Ledger, read_all
from crash.powered_broker import PoweredBroker
from crash.story import tell
from proving import proves
from tidelog.broker import housekeeping, internal
from tidelog.broker.topics import INTERNAL_TOPICS
from tidelog.client.admin import groups, topics
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer
from tidelog.client.metadata import TopicMetadata, TopicPartition
from tidelog.client.offsets import LATEST, list_offsets

SEEDS = (1, *(pytest.param(seed, marks=pytest.mark.full) for seed in (2, 3)))
SOAK_RUNS = 10
LIVES = 4
SOAK_LIVES = 10
LIFE_S = 1.5
CUTS = (10, 50, 200, 600, 1500, 100_000)  # operations of a life; the last means that its time is over first
RECOVERY_CUTS = range(1, 60)
OTHER_ENDS = 2  # of those that a cut could have had, looked at beside the one that the story goes on with

DISK, MEMORY, CUT, SHORT = "disk", "memory", "cut", "short"
GROUPS = {"classic": CLASSIC, "consumer": CONSUMER}
TOPICS = {
    DISK: {"segment.ms": "300"},
    MEMORY: {"tidelog.durability": "memory", "segment.ms": "300"},
    CUT: {"segment.ms": "100"},
    SHORT: {"segment.ms": "100", "retention.bytes": "20000"},
}
PARTITIONS = 2
SETTINGS = {
    "log.retention.check.interval.ms": 50,
    "group.initial.rebalance.delay.ms": 100,
    "group.consumer.min.heartbeat.interval.ms": 200,
    "group.consumer.heartbeat.interval.ms": 200,
}


def partitions_of(*names: str) -> list[TopicPartition]:
    return [TopicPartition(name, index) for name in names for index in range(PARTITIONS)]


class Story:
    """One broker over many lives, and the clients that stay."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.ledger = Ledger()
        self.ledger.retained |= {CUT, SHORT}
        self.decided = Decided()
        self.places: dict[Place, bytes] = {}
        self.epochs: dict[TopicPartition, int] = {}
        self.broker = PoweredBroker(folder, SETTINGS)
        self.writers = Load(self.broker.bootstrap, self.ledger, self.rng, pause_s=0.05)
        self.readers = Load(self.broker.bootstrap, self.ledger, self.rng)

    def begin(self) -> None:
        self.broker.start()
        with Cluster(self.broker.bootstrap) as cluster:
            for name, configs in TOPICS.items():
                topics.create(cluster, name, partitions=PARTITIONS, configs=configs)
                self.decided.created.add(name)
        disk = partitions_of(DISK)
        self.writers.start(write, "own-idempotent", partitions_of(DISK, CUT, SHORT), True)
        self.writers.start(write, "own-plain", partitions_of(*TOPICS), False)
        self.writers.start(write_confluent, "confluent", disk)
        self.writers.start(administer, self.decided, partitions_of(CUT))
        self.readers.start(read, disk)
        self.readers.start(read_forgetful, partitions_of(MEMORY), self.places)
        for group, protocol in GROUPS.items():
            self.readers.start(read_in_group, group, [DISK], protocol)

    def step(self) -> None:
        """From a start to a power cut; the next life may end before it is ready."""
        self.broker.disk.cut_power_at(self.rng.choice(CUTS))
        self.broker.live(LIFE_S)
        committed, ends = dict(self.ledger.committed), self.ledger.ends()
        for other in self.broker.other_ends(self.rng, OTHER_ENDS):
            self.compare(other)
        self.broker.crash(self.rng)
        while self.rng.random() < 0.4:
            self.broker.disk.cut_power_at(self.rng.choice(RECOVERY_CUTS))
            if self.broker.start():
                self.broker.live(LIFE_S)
            self.broker.crash(self.rng)
        assert self.broker.start()
        self.check(committed, ends)

    def check(self, committed: dict[tuple[str, TopicPartition], int], ends: dict[TopicPartition, int]) -> None:
        """What can be seen at once, while the clients go on."""
        self.writers.check()
        self.readers.check()
        with Cluster(self.broker.bootstrap) as cluster:
            self.decided.check(cluster)
            found = list_offsets(cluster, dict.fromkeys(partitions_of(DISK, CUT, SHORT), LATEST))
            for at, one in found.items():
                assert one.offset >= ends.get(at, 0), f"{at} ends at {one.offset}; {ends[at]} was acked or seen"
            for (group, at), offset in committed.items():
                there = groups.committed(cluster, group).get(at)
                assert there is not None and there.offset >= offset, (
                    f"{group} committed {offset} of {at}; it is {there}"
                )
            for at in partitions_of(MEMORY):
                epoch = cluster.topic(at.topic).partitions[at.partition].leader_epoch
                assert epoch >= self.epochs.get(at, 0), f"the leader epoch of {at} went back"
                self.epochs[at] = epoch

    def finish(self) -> None:
        """Writers end, groups read to the end; everything is compared before and after a clean stop."""
        self.writers.stop()
        with Cluster(self.broker.bootstrap) as cluster:
            ends = list_offsets(cluster, dict.fromkeys(partitions_of(DISK), LATEST))
        wait_for_groups(self.readers, GROUPS, {at: end.offset for at, end in ends.items()})
        self.readers.stop()
        self.compare(self.broker)
        self.note_places()
        self.broker.stop()
        assert self.broker.start()
        self.compare(self.broker)
        self.note_places()
        known = {topic.topic_id.hex() for topic in self.topics_there()}
        self.broker.stop()
        left = {folder.name for folder in self.broker.data.iterdir() if folder.is_dir()}
        orphans = [name for name in left if name.rpartition("-")[0] not in known]
        assert not orphans, f"deleted topics still take room: {orphans}"

    def topics_there(self) -> list[TopicMetadata]:
        """Also the broker's own."""
        with Cluster(self.broker.bootstrap) as cluster:
            own = topics.describe(cluster, [topic.name for topic in INTERNAL_TOPICS])
            return [*topics.describe(cluster), *own]

    def compare(self, broker: PoweredBroker) -> None:
        with Cluster(broker.bootstrap) as cluster:
            self.decided.check(cluster)
            there = {topic.name: topic for topic in topics.describe(cluster)}
            partitions = [TopicPartition(name, index) for name, topic in there.items() for index in topic.partitions]
            self.ledger.check(read_all(cluster, [at for at in partitions if at.topic != MEMORY]))
            self.ledger.check_forgetful(read_all(cluster, partitions_of(MEMORY)))

    def give_up(self) -> None:
        self.writers.stopped.set()
        self.readers.stopped.set()

    def note_places(self) -> None:
        with Cluster(self.broker.bootstrap) as cluster:
            consumer = Consumer(cluster, max_wait_ms=0)
            consumer.assign(dict.fromkeys(partitions_of(MEMORY), 0))
            while fetched := consumer.fetch():
                for one in fetched:
                    note_places(one, self.places)


@pytest.fixture(autouse=True)
def busy_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Housekeeping and snapshots many times in a short life."""
    monkeypatch.setattr(housekeeping, "TURN_S", 0.05)
    monkeypatch.setattr(internal, "SNAPSHOT_EVERY_BYTES", 3000)


@proves("T1", "T6")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_broker_loses_nothing_it_acked_when_the_power_goes_at_any_step(tmp_path: Path, seed: int) -> None:
    tell(Story(tmp_path, seed), seed, LIVES)


@pytest.mark.soak
@proves("T1", "T6")
@pytest.mark.parametrize("run_number", range(SOAK_RUNS))
def test_a_broker_loses_nothing_it_acked_however_often_the_power_goes(
    tmp_path: Path, seed: int, run_number: int
) -> None:
    seed = seed * SOAK_RUNS + run_number
    tell(Story(tmp_path, seed), seed, SOAK_LIVES)
