"""A stop under load: every request that came is answered, nothing is left to recover, and clients go on afterwards."""

from __future__ import annotations

import random
import time
from pathlib import Path

from crash.clients import CLASSIC, CONSUMER, Load, read, read_in_group, wait_for_groups, write, write_confluent
from crash.ledger import Ledger, read_all
from crash.powered_broker import PoweredBroker
from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import LATEST, list_offsets

STOPS = 4
DISK, MEMORY = "disk", "memory"
PLACES = [TopicPartition(name, index) for name in (DISK, MEMORY) for index in (0, 1)]
GROUPS = {"classic": CLASSIC, "consumer": CONSUMER}
SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.min.heartbeat.interval.ms": 200,
    "group.consumer.heartbeat.interval.ms": 200,
}


@proves("T3", "T6")
def test_a_broker_that_is_stopped_under_load_answers_everybody_and_recovers_nothing(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    ledger = Ledger()
    broker = PoweredBroker(tmp_path, SETTINGS)
    assert broker.start()
    with Cluster(broker.bootstrap) as cluster:
        topics.create(cluster, DISK, partitions=2)
        topics.create(cluster, MEMORY, partitions=2, configs={"tidelog.durability": "memory"})
    writers, readers = Load(broker.bootstrap, ledger, rng), Load(broker.bootstrap, ledger, rng)
    writers.start(write, "own-idempotent", PLACES, True)
    writers.start(write, "own-plain", PLACES, False)
    writers.start(write_confluent, "confluent", PLACES)
    readers.start(read, PLACES)
    for group, protocol in GROUPS.items():
        readers.start(read_in_group, group, [DISK, MEMORY], protocol)
    for _ in range(STOPS):
        time.sleep(rng.uniform(0.1, 0.4))
        broker.stop()
        assert broker.start()
    writers.stop()
    with Cluster(broker.bootstrap) as cluster:
        ends = list_offsets(cluster, dict.fromkeys(PLACES, LATEST))
        wait_for_groups(readers, GROUPS, {at: end.offset for at, end in ends.items()})
        ledger.check(read_all(cluster, PLACES))
        epochs = {partition.leader_epoch for partition in cluster.topic(MEMORY).partitions.values()}
    readers.stop()
    broker.stop()
    assert epochs == {0}, "an epoch rises after an unclean stop only"
    said = broker.lines.getvalue()
    assert "unanswered" not in said and "recovered" not in said and "fault" not in said, said[-3000:]
