"""A stream and a table with one bad record in a thousand, while the run is killed at random: rows, letters and counts
are exact, in the marks, in the topics, and in what a run tells that was started last.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

import psutil
import pytest

from against.apache_kafka import die_with_parent
from against.patience import eventually
from against.tidelog_process import TidelogProcess
from pipelines.app.driven import committed
from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.client.producer import Producer
from tidelog.control.counts import Counts
from tidelog.control.marks import Mark, read_mark
from tidelog.control.status import read_status

PROGRAM = Path(__file__).with_name("bad_records_app.py")
PARTITIONS, RECORDS, PIECES = 2, 1_000, 12
KILLS = 4
PATIENCE_S = 300.0
BAD = [b"{broken", b'{"product": "tea", "amount": "many", "price": "much"}']
REASONS = {"orders": "amount: the value is of another type", "prices": "price: the value is of another type"}
SINKS = {"orders": "revenue.v1", "prices": "latest.v1"}


class Input:
    """What was written, and what is to come of it."""

    def __init__(self, cluster: Cluster, random: Random) -> None:
        self.cluster, self.random = cluster, random
        self.sums: Counter[str] = Counter()
        self.orders: Counter[str] = Counter()
        self.prices: dict[str, int] = {}
        self.bad: dict[str, list[tuple[int, bytes]]] = {"orders": [], "prices": []}

    def write_piece(self) -> None:
        """A thousand records of each topic, one of which is bad."""
        for topic, field in (("orders", "amount"), ("prices", "price")):
            worst = self.random.randrange(RECORDS)
            with Producer(self.cluster) as producer:
                sent = [self._record(producer, topic, field, bad=number == worst) for number in range(RECORDS)]
            self.bad[topic] += [(delivery.offset, value) for delivery, value in sent if value in BAD]

    def _record(self, producer: Producer, topic: str, field: str, *, bad: bool):  # type: ignore[no-untyped-def]
        product, number = f"p{self.random.randrange(7)}", self.random.randrange(100)
        value = json.dumps({"product": product, field: number}).encode()
        if bad:
            value = self.random.choice(BAD)
        elif topic == "orders":
            self.sums[product] += number
            self.orders[product] += 1
        else:
            self.prices[product] = number
        partition = int(product[1:]) % PARTITIONS
        return producer.send(topic, value, key=product.encode(), partition=partition), value

    @property
    def rows(self) -> dict[str, dict[str, object]]:
        revenue = {name: {"revenue": self.sums[name], "orders": count} for name, count in self.orders.items()}
        return {"orders": revenue, "prices": {name: {"price": price} for name, price in self.prices.items()}}

    def counts(self, topic: str) -> dict[str, int]:
        reasons = {BAD[0]: "it is not JSON", BAD[1]: REASONS[topic]}
        return dict(Counter(reasons[value] for _, value in self.bad[topic]))


class Run:
    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.log = folder / "run.log"
        words = ["run", str(PROGRAM), "--bootstrap", bootstrap, "--memory", "512m"]
        with self.log.open("ab") as said:
            command = [sys.executable, "-m", "tidelog", *words]
            self.process = subprocess.Popen(command, cwd=folder, stdout=said, stderr=said, preexec_fn=die_with_parent)

    def kill(self) -> None:
        with suppress(psutil.NoSuchProcess):
            program = psutil.Process(self.process.pid)
            for one in (*reversed(program.children(recursive=True)), program):
                with suppress(psutil.NoSuchProcess):
                    one.kill()
        self.process.wait()


@proves("P1", "E3")
@pytest.mark.full
def test_rows_letters_and_counts_are_exact_though_the_run_is_killed_at_random(tmp_path: Path) -> None:
    random = Random(19)
    broker = TidelogProcess(tmp_path / "broker").start()
    run: Run | None = None
    try:
        with Cluster(broker.bootstrap) as cluster:
            for topic in SINKS:
                topics.create(cluster, topic, partitions=PARTITIONS)
            given = Input(cluster, random)
            given.write_piece()
            run = Run(broker.bootstrap, tmp_path)
            for kill in range(KILLS):
                before = {sink: batch_of(cluster, sink) for sink in SINKS.values()}
                for _ in range(PIECES // KILLS):
                    given.write_piece()
                    time.sleep(random.random())
                sink = random.choice(list(SINKS.values()))
                eventually(lambda: batch_of(cluster, sink) > before[sink], seconds=PATIENCE_S)  # noqa: B023
                time.sleep(random.random())
                run.kill()
                run = Run(broker.bootstrap, tmp_path)
                assert kill < KILLS
            given.write_piece()
            for topic, sink in SINKS.items():
                eventually(lambda: has_read_all(cluster, topic, sink), seconds=PATIENCE_S)  # noqa: B023
                check(cluster, given, topic, sink)
            eventually(lambda: told_of(cluster, given), seconds=PATIENCE_S)
    finally:
        if run is not None:
            run.kill()
        broker.kill()


def check(cluster: Cluster, given: Input, topic: str, sink: str) -> None:
    rows: dict[str, dict[str, object]] = {}
    for _, record in committed(cluster, sink):
        row = json.loads(record.value or b"{}").get("after")
        assert row is not None, "nothing was deleted: a bad record is not a tombstone"
        rows[row.pop("product")] = row
    assert rows == given.rows[topic]
    letters = [record for _, record in committed(cluster, f"{sink}.dead")]
    found = Counter((int(dict(one.headers)["__connect.errors.offset"] or b""), one.value) for one in letters)
    assert found == Counter(given.bad[topic]), "each bad record is one letter"
    mark = read_mark(cluster, sink)
    assert mark is not None and left_out(mark.counts) == {topic: given.counts(topic)}


def told_of(cluster: Cluster, given: Input) -> bool:
    """Whether the run that was started last tells the sums of all."""
    told = {one.name: one.figures.get("left_out") for one in read_status(cluster) if one.kind == "query"}
    wanted = {"shop.revenue": {"orders": given.counts("orders")}, "shop.latest": {"prices": given.counts("prices")}}
    return told == wanted


def left_out(counts: Counts) -> dict[str, dict[str, int]]:
    return {name: dict(sums) for name, sums in counts.get("records", {}).items()}


def batch_of(cluster: Cluster, sink: str) -> int:
    mark: Mark | None = read_mark(cluster, sink)
    return -1 if mark is None else mark.batch_id


def has_read_all(cluster: Cluster, topic: str, sink: str) -> bool:
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    ends = {at: one.offset for at, one in list_offsets(cluster, dict.fromkeys(places, LATEST)).items()}
    mark = read_mark(cluster, sink)
    return mark is not None and dict(mark.sources.offsets) == ends
