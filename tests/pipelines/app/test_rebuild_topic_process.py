"""`tidelog rebuild TOPIC --in-place` as users run it, killed near its switch, while a foreign program reads it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, TopicPartition

from against.patience import eventually
from against.tidelog_process import TidelogProcess
from pipelines.app.test_rebuild_process import Process
from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer
from tidelog.control.catalog import find_derived, read_catalog
from tidelog.control.derived import GENERATION_HEADER, Derived
from tidelog.control.status import Commands

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

PATIENCE_S = 300.0
BEFORE, PARTITIONS = 20_000, 2
OLD_CODE = """
from pyspark.sql import functions as F

from tidelog import App

app = App("shop")
app.stream("orders", value="id long, amount double")


@app.topic("net", key="id")
def net(orders):
    return orders.withColumn("amount", F.col("amount") * 1)
"""
NEW_CODE = OLD_CODE.replace("* 1", "* 10")
Place = tuple[int, int]


class Foreign:
    """A program that knows nothing of generations but the header: what it got, by partition, in order."""

    def __init__(self, bootstrap: str) -> None:
        self.got: dict[int, list[tuple[int, int, int, float]]] = {at: [] for at in range(PARTITIONS)}
        self.faults: list[str] = []
        self.stopping = threading.Event()
        self._bootstrap = bootstrap
        self.thread = threading.Thread(target=self._consume, daemon=True)
        self.thread.start()

    def _consume(self) -> None:
        settings = {"group.id": "foreign", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "enable.auto.commit": False, **settings})
        consumer.assign([TopicPartition("net", at, 0) for at in range(PARTITIONS)])
        try:
            while not self.stopping.is_set():
                for message in consumer.consume(500, 0.2):
                    assert message.error() is None, message.error()
                    row, said = json.loads(message.value()), dict(message.headers() or ()).get(GENERATION_HEADER)
                    generation = 1 if said is None else int(said)
                    self.got[message.partition()].append((message.offset(), generation, row["id"], row["amount"]))
        except Exception as error:
            self.faults.append(repr(error))
        finally:
            consumer.close()

    def rows(self, generation: int) -> dict[int, float]:
        found = [one for every in list(self.got.values()) for one in list(every) if one[1] == generation]
        assert len({one[2] for one in found}) == len(found), f"rows of generation {generation} came twice"
        return {one[2]: one[3] for one in found}


class Shop:
    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random = folder, Random(seed)
        self.broker = TidelogProcess(folder / "broker", {}).start()
        self.cluster = Cluster(self.broker.bootstrap)
        self.processes: list[Process] = []
        self.written = 0
        (folder / "old.py").write_text(OLD_CODE)
        (folder / "new.py").write_text(NEW_CODE)
        topics.create(self.cluster, "orders", partitions=PARTITIONS)
        self.write(BEFORE)

    def write(self, count: int) -> None:
        with Producer(self.cluster) as producer:
            for number in range(self.written, self.written + count):
                row = {"id": number, "amount": float(number % 97)}
                producer.send("orders", json.dumps(row).encode(), key=str(number).encode())
        self.written += count

    def start(self, *words: str) -> Process:
        more = ["--bootstrap", self.broker.bootstrap, "--memory", "512m", "--master", "local[1]"]
        self.processes.append(Process(self.folder, *words, *more))
        return self.processes[-1]

    def rebuild(self) -> Process:
        return self.start("rebuild", "net", "--app", "new.py", "--in-place", "--yes")

    def entry(self) -> Derived | None:
        return find_derived(read_catalog(self.cluster), "net")

    def is_told_to_pause(self) -> bool:
        return any((one.name, one.command) == ("shop.net", "pause") for one in Commands(self.cluster).first())

    def end(self) -> None:
        for one in self.processes:
            one.kill()
        self.cluster.close()
        self.broker.kill()


@pytest.fixture
def shop(tmp_path: Path, seed: int) -> Iterator[Shop]:
    made = Shop(tmp_path, seed)
    try:
        yield made
    finally:
        made.end()


@proves("dt.5", "dt.7", "dt.8", "F4", "command_line")
def test_a_consumer_gets_whole_generations_though_a_rebuild_in_place_is_killed_near_its_switch(shop: Shop) -> None:
    old = shop.start("run", "old.py")
    eventually(shop.entry, seconds=PATIENCE_S)
    foreign = Foreign(shop.broker.bootstrap)
    eventually(lambda: len(foreign.rows(1)) == BEFORE, seconds=PATIENCE_S)
    killed = shop.rebuild()
    eventually(shop.is_told_to_pause, seconds=PATIENCE_S)
    shop.write(500)
    time.sleep(shop.random.uniform(0, 2))
    killed.kill()
    print(f"killed at {shop.entry()}")
    made = shop.rebuild()
    assert made.wait() == 0, made.said()
    assert "net is generation 2 now, in topic net\n" in made.said() or "generation 3 now" in made.said()
    old.kill()
    shop.write(500)
    new = shop.start("run", "new.py")
    entry = shop.entry()
    assert entry is not None
    eventually(lambda: len(foreign.rows(entry.live)) == shop.written or foreign.faults, seconds=PATIENCE_S)
    foreign.stopping.set()
    foreign.thread.join()
    assert new.stop() == 0, new.said()
    assert foreign.faults == []
    assert foreign.rows(entry.live) == {number: 10.0 * (number % 97) for number in range(shop.written)}
    for got in foreign.got.values():
        assert [one[0] for one in got] == sorted({one[0] for one in got}), "no offset came twice"
        assert [one[1] for one in got] == sorted(one[1] for one in got), "all of one generation, then of the next"
