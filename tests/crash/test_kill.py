"""`kill -9` at any moment, under load: nothing acked is lost, nothing is there twice, and groups go on."""

from __future__ import annotations

import os
import random
import threading
import time
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL

import pytest

from crash.clients import CLASSIC, CONSUMER, Load, read, read_in_group, wait_for_groups, write, write_confluent
from crash.ledger import Ledger, read_all
from crash.port import free_port
from proving import proves
from tidelog.broker.embedded import Broker
from tidelog.client.admin import groups, topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.errors import TidelogError

SEEDS = (1, pytest.param(2, marks=pytest.mark.full))
SOAK_RUNS = 5
KILLS = 3
SOAK_KILLS = 10
DISK, MEMORY = "disk", "memory"
PARTITIONS = 3
GROUPS = {"classic": CLASSIC, "consumer": CONSUMER}
SETTINGS = {
    "log.roll.ms": 200,
    "tidelog.log.level": "ERROR",
    "group.initial.rebalance.delay.ms": 100,
    "group.consumer.min.heartbeat.interval.ms": 200,
    "group.consumer.heartbeat.interval.ms": 200,
}


def kill_and_start(broker: Broker, rng: random.Random) -> None:
    """Sometimes it is killed again while it starts."""
    broker.kill()
    time.sleep(rng.choice((0, 0.1)) * rng.random())
    while rng.random() < 0.3:
        killer = threading.Timer(rng.uniform(0.02, 0.25), kill_child, [broker])
        killer.start()
        with suppress(TidelogError):
            broker.start()
        killer.join()
        if broker.pid is not None:
            broker.kill()
    broker.start()


def kill_child(broker: Broker) -> None:
    pid = broker.pid
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, SIGKILL)


def run(folder: Path, seed: int, kills: int) -> None:
    rng = random.Random(seed)
    ledger = Ledger()
    port = free_port()
    with Broker(folder, listen=f"127.0.0.1:{port}", settings=SETTINGS) as broker:
        with Cluster(broker.bootstrap) as cluster:
            topics.create(cluster, DISK, partitions=PARTITIONS)
            topics.create(cluster, MEMORY, partitions=1, configs={"tidelog.durability": "memory"})
        partitions = [*(TopicPartition(DISK, index) for index in range(PARTITIONS)), TopicPartition(MEMORY, 0)]
        writers = Load(broker.bootstrap, ledger, rng)
        readers = Load(broker.bootstrap, ledger, rng)
        writers.start(write, "own-idempotent", partitions, True)
        writers.start(write, "own-plain", partitions, False)
        writers.start(write_confluent, "confluent", partitions)
        readers.start(read, partitions)
        for group, protocol in GROUPS.items():
            for _ in range(2):
                readers.start(read_in_group, group, [DISK, MEMORY], protocol)
        for _ in range(kills):
            time.sleep(rng.uniform(0.1, 0.8))
            committed = dict(ledger.committed)
            kill_and_start(broker, rng)
            check_committed(broker, committed)
            writers.check()
            readers.check()
        time.sleep(rng.uniform(0.1, 0.5))
        writers.stop()
        finish(broker, ledger, readers, partitions)


def finish(broker: Broker, ledger: Ledger, readers: Load, partitions: list[TopicPartition]) -> None:
    """The groups read to the end; then, after another kill, everything is compared."""
    with Cluster(broker.bootstrap) as cluster:
        ends = list_offsets(cluster, dict.fromkeys(partitions, LATEST))
    wait_for_groups(readers, GROUPS, {at: end.offset for at, end in ends.items()})
    readers.stop()
    broker.kill()
    broker.start()
    check_committed(broker, ledger.committed)
    with Cluster(broker.bootstrap) as cluster:
        log = read_all(cluster, partitions)
    ledger.check(log)
    assert len(ledger.acked) > 0
    seen = {(told.at, told.offset) for told in ledger.seen}
    assert all((told.at, told.offset) in seen for told in ledger.acked), "an acked record was read by nobody"


def check_committed(broker: Broker, told: dict[tuple[str, TopicPartition], int]) -> None:
    """What a group has committed is never less than what its members were told."""
    with Cluster(broker.bootstrap) as cluster:
        for group in {group for group, _ in told}:
            there = groups.committed(cluster, group)
            for (whose, at), offset in told.items():
                if whose == group:
                    found = there[at].offset if at in there else None
                    assert found is not None and found >= offset, f"{group} committed {offset} of {at}; found {found}"


def run_with(folder: Path, seed: int, kills: int) -> None:
    try:
        run(folder, seed, kills)
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise


@proves("T1", "T3", "T6")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_broker_that_is_killed_under_load_loses_nothing_it_acked(tmp_path: Path, seed: int) -> None:
    run_with(tmp_path, seed, KILLS)


@pytest.mark.soak
@proves("T1", "T3", "T6")
@pytest.mark.parametrize("run_number", range(SOAK_RUNS))
def test_a_broker_that_is_killed_again_and_again_loses_nothing_it_acked(
    tmp_path: Path, seed: int, run_number: int
) -> None:
    run_with(tmp_path, seed * SOAK_RUNS + run_number, SOAK_KILLS)
