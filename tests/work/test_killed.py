"""Processes of workers, and their broker, that are killed at random: each result is there once, no job is lost, and
where jobs are in order by key their results are too.
"""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

import tidelog
from against.patience import eventually
from cli.command import Command
from proving import proves
from tidelog.client import Cluster, configs, topics
from tidelog.control.reading import read_all
from tidelog.work.outputs import JOB_ID
from tidelog.work.queue import is_empty

JOBS, PROCESSES, KILLS = 600, 3, 12
KEYS, ORDERED_JOBS, ORDERED_KILLS = 10, 300, 12
MODULE = """
import time

def shout(job):
    time.sleep(0.01)
    if job.value.endswith(b"poison"):
        raise ValueError("poison")
    return job.value.upper()
"""


@proves("T4")
@pytest.mark.full
@pytest.mark.timeout(400)
def test_workers_that_are_killed_at_random_write_each_result_once(tmp_path: Path) -> None:
    (tmp_path / "shouting.py").write_text(MODULE)
    chance = random.Random(18)
    settings = {"group.share.min.record.lock.duration.ms": "1000", "tidelog.log.level": "ERROR"}
    with tidelog.Broker(tmp_path / "data", settings=settings) as broker, Cluster(broker.bootstrap) as cluster:
        wanted = {"share.record.lock.duration.ms": "1000", "share.delivery.count.limit": "10"}
        configs.alter(cluster, configs.GROUP, "shouters", set=wanted)
        with tidelog.JobSender(broker.bootstrap) as sender:
            ids = [sender.send("texts", f"{number} {'poison' if number % 50 == 7 else ''}") for number in range(JOBS)]
        command = Command(broker.bootstrap)
        words = ("work", "shouting:shout", "--topic", "texts", "--group", "shouters", "--workers", "4")
        words = (*words, "--output", "shouted", "--dead-letters", "dlq.texts", "--backoff", "0.01")

        def start() -> subprocess.Popen[bytes]:
            return command.start(*words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        running = [start() for _ in range(PROCESSES)]
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.1, 0.8))
            killed = running.pop(chance.randrange(PROCESSES))
            killed.send_signal(signal.SIGKILL)
            killed.wait()
            running.append(start())
        eventually(lambda: is_empty(cluster, "texts", "shouters"))
        for one in running:
            one.terminate()
        assert [one.wait() for one in running] == [0] * PROCESSES
        rows = [row for at in cluster.partitions("shouted") for row in read_all(cluster, at)]
        told = Counter((dict(row.headers)[JOB_ID] or b"").decode() for row in rows)
        poison = {ids[number] for number in range(7, JOBS, 50)}
        assert told == Counter(set(ids) - poison)
        letters = [row for at in cluster.partitions("dlq.texts") for row in read_all(cluster, at)]
        assert {int(dict(row.headers)["__dlq.errors.offset"] or b"") for row in letters} == set(range(7, JOBS, 50))


@proves("T4")
@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2])
def test_in_order_by_key_results_are_in_order_though_workers_and_the_broker_are_killed(
    tmp_path: Path, seed: int
) -> None:
    (tmp_path / "shouting.py").write_text(MODULE)
    chance = random.Random(seed)
    settings = {"group.share.min.record.lock.duration.ms": "1000", "tidelog.log.level": "ERROR"}
    with tidelog.Broker(tmp_path / "data", settings=settings) as broker:
        sent: dict[bytes, list[bytes]] = {}
        with Cluster(broker.bootstrap) as cluster, tidelog.JobSender(broker.bootstrap) as sender:
            wanted = {"share.record.lock.duration.ms": "1000", "share.delivery.count.limit": "10"}
            configs.alter(cluster, configs.GROUP, "shouters", set=wanted)
            topics.create(cluster, "texts", partitions=2, configs={"tidelog.queue.order": "key"})
            topics.create(cluster, "shouted", partitions=2)
            for number in range(ORDERED_JOBS):
                key = f"key {chance.randrange(KEYS)}".encode()
                sender.send("texts", str(number), key=key)
                sent.setdefault(key, []).append(str(number).encode())
        command = Command(broker.bootstrap)
        words = ("work", "shouting:shout", "--topic", "texts", "--group", "shouters", "--workers", "4")

        def start() -> subprocess.Popen[bytes]:
            line = (*words, "--output", "shouted", "--backoff", "0.01")
            return command.start(*line, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        running = [start() for _ in range(PROCESSES)]
        for _ in range(ORDERED_KILLS):
            time.sleep(chance.uniform(0.1, 0.8))
            if chance.random() < 0.5:
                broker.kill()
                broker.start()
                continue
            killed = running.pop(chance.randrange(PROCESSES))
            killed.send_signal(signal.SIGKILL)
            killed.wait()
            running.append(start())
        with Cluster(broker.bootstrap) as cluster:
            eventually(lambda: is_empty(cluster, "texts", "shouters"))
            for one in running:  # the last of them may not even have begun
                one.kill()
                one.wait()
            told: dict[bytes, list[bytes]] = {}
            for at in cluster.partitions("shouted"):
                for row in read_all(cluster, at):
                    told.setdefault(row.key or b"", []).append(row.value or b"")
        assert told == sent
