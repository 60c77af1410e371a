"""Exactly once: a client transforms records in transactions, dies at any request, comes back as a zombie, and the power
goes at any operation of the disk. Whoever reads committed records finds every input once, in its order.
"""

from __future__ import annotations

import random
import time
from contextlib import suppress
from errno import ENOSPC
from pathlib import Path

import pytest

from crash.power_cut import quick_folder
from crash.powered_broker import PoweredBroker
from crash.seeds import run_seeds
from crash.transforming import INPUT, OUTPUT, OUTPUTS, AskedForPatience, Died, Instance, Zombie, read_committed
from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer

SEEDS = 20
SOAK_SEEDS = 1000
FULL_SEEDS = 4
MEMORY_SEEDS = 8
FULL, OUTLIVE = 0.2, 0.5
FULL_LIVES = 100  # then there is room, so that the story ends
OPERATIONS = 45  # of the disk: some transactions long
REQUESTS = 16  # of a client: two transactions long
RECORDS = 60
LIVES_MAX = 400
PAUSE_S = 0.05  # a partition that could not be loaded is left alone for seconds
CUTS = (5, 12, 25, 50, 100, 100_000)
NEVER = 1 << 40
RECOVERY_CUTS = range(1, 40)
SETTINGS: dict[str, object] = {"tidelog.log.level": "ERROR"}


@pytest.mark.full
@proves("F2", "F3", "T6")
def test_every_input_is_transformed_once_whoever_dies_and_whenever() -> None:
    with quick_folder() as folder:
        run_seeds(folder, SEEDS, story)


@proves("F2", "F3", "T6")
@pytest.mark.parametrize(
    "version_2", [pytest.param(False, marks=pytest.mark.full, id="v1"), pytest.param(True, id="v2")]
)
@pytest.mark.slow
def test_the_power_goes_at_each_operation_of_a_transaction(version_2: bool) -> None:
    def one_cut(folder: Path, cut: int) -> None:
        broker = PoweredBroker(folder, SETTINGS)
        assert broker.start()
        try:
            fill(broker, "disk")
            broker.disk.cut_power_at(cut)
            with suppress(Died):
                instance(broker, random.Random(cut), version_2, NEVER).run()
            broker.crash(random.Random(cut))
            assert broker.start()
            instance(broker, random.Random(cut), version_2, NEVER).run()
            check(broker, all_there=True)
        finally:
            broker.end()

    with quick_folder() as folder:
        run_seeds(folder, OPERATIONS, one_cut)


@proves("F2", "F3")
@pytest.mark.parametrize("version_2", [False, True], ids=["v1", "v2"])
def test_a_client_dies_at_each_request_of_a_transaction(version_2: bool) -> None:
    """One after the other dies a request later than the last, first before it is sent, then before it is answered."""
    rng = random.Random(1)
    with quick_folder() as folder:
        broker = PoweredBroker(folder, SETTINGS)
        assert broker.start()
        try:
            fill(broker, "disk")
            for request in range(1, REQUESTS):
                for sent in (False, True):
                    with suppress(Died):
                        instance(broker, rng, version_2, request, sent).run()
            instance(broker, rng, version_2, NEVER).run()
            check(broker, all_there=True)
        finally:
            broker.end()


@proves("F2", "F3", "T6", "T8")
def test_every_input_is_transformed_once_though_the_disk_is_full_now_and_then() -> None:
    with quick_folder() as folder:
        run_seeds(folder, FULL_SEEDS, lambda place, seed: story(place, seed, FULL))


@proves("F2", "T6")
@pytest.mark.slow
def test_no_transaction_hangs_in_topics_that_ack_from_memory() -> None:
    """A power cut may take records and markers from them, also such as were committed; it leaves nothing open."""
    with quick_folder() as folder:
        run_seeds(folder, MEMORY_SEEDS, lambda place, seed: story(place, seed, durability="memory"))


@pytest.mark.soak
@proves("F2", "F3", "T6")
def test_every_input_is_transformed_once_over_many_seeds() -> None:
    with quick_folder() as folder:
        run_seeds(folder, SOAK_SEEDS, story, first=SEEDS + 1)


def story(folder: Path, seed: int, full: float = 0.0, durability: str = "disk") -> None:
    rng = random.Random(seed)
    broker = PoweredBroker(folder, SETTINGS)
    assert broker.start()
    try:
        fill(broker, durability)
        # Who outlives the broker misses what memory lost: it is told so, and cannot go on.
        live(broker, rng, full, OUTLIVE if durability == "disk" else 0.0, version_2=bool(seed % 2))
        check(broker, all_there=durability == "disk")
    finally:
        broker.end()


def fill(broker: PoweredBroker, durability: str) -> None:
    with Cluster(broker.bootstrap) as cluster:
        topics.create(cluster, INPUT, partitions=1)
        topics.create(cluster, OUTPUT, partitions=OUTPUTS, configs={"tidelog.durability": durability})
        with Producer(cluster) as producer:
            for number in range(RECORDS):
                producer.send(INPUT, b"%d" % number, partition=0)
            producer.flush()


def instance(
    broker: PoweredBroker, rng: random.Random, version_2: bool, dies_at: int, dies_after: bool = False
) -> Instance:
    return Instance(broker.bootstrap, version_2, rng, dies_at, dies_after, lambda: broker.disk.is_off)


def live(broker: PoweredBroker, rng: random.Random, full: float, outlive: float, *, version_2: bool) -> None:
    """`full`: how often some writes find no room in a life. `outlive`: how many clients outlive the broker."""
    broker.disk.cut_power_at(rng.choice(CUTS))
    dead: list[Instance] = []
    for number in range(LIVES_MAX):
        if rng.random() < full and number < FULL_LIVES:
            broker.disk.fail("write", OSError(ENOSPC, "no space left on device"), times=rng.randint(1, 3))
        one = instance(broker, rng, version_2, rng.randint(1, 40), rng.random() < 0.5)
        if rng.random() < outlive:
            one.come_back = lambda: come_back_if_gone(broker, rng)
        try:
            one.run()
            return
        except AskedForPatience:
            dead.append(one)
            time.sleep(PAUSE_S)
        except Died:
            dead.append(one)
        if come_back_if_gone(broker, rng):
            continue
        if rng.random() < 0.3 and len(dead) > 1 and dead[-2].producer_id >= 0 and dead[-1].producer_id >= 0:
            Zombie(dead[-2]).haunt()
    raise AssertionError(f"{LIVES_MAX} lives were not enough\n{broker.said()}")


def come_back_if_gone(broker: PoweredBroker, rng: random.Random) -> bool:
    gone = broker.disk.is_off or not broker.running
    if gone:
        come_back(broker, rng)
    return gone


def come_back(broker: PoweredBroker, rng: random.Random) -> None:
    while True:
        broker.crash(rng)
        if rng.random() < 0.3:
            broker.disk.cut_power_at(rng.choice(RECOVERY_CUTS))
        if broker.start():
            break
    broker.disk.cut_power_at(rng.choice(CUTS))


def check(broker: PoweredBroker, *, all_there: bool) -> None:
    broker.disk.cut_power_at(NEVER)
    broker.disk.mend()
    reader = Instance(broker.bootstrap, False, random.Random(0), NEVER, False, lambda: False)
    found = [[int(value) for value in read_committed(reader, OUTPUT, index)] for index in range(OUTPUTS)]
    for values in found:
        assert values == sorted(values), "out of order"
    everything = sorted(value for values in found for value in values)
    assert everything == (list(range(RECORDS)) if all_there else sorted(set(everything))), broker.said()
