"""A broker in a process of its own whose time of day jumps: what lives by deadlines lives on, nothing counts twice.

Retention goes by the time of day, as Kafka's does: that is looked at, too, so that all the others were looked at.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from against.patience import eventually
from against.tidelog_process import TidelogProcess
from broker.raw import RawConnection, produce
from crash.jumping_clock import JumpingClock, jumping_clock
from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.membership import GroupMembership
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, LATEST, list_offsets
from tidelog.client.producer import Producer
from tidelog.client.transactions import Transactions
from tidelog.record.columns import encode
from tidelog.wire.messages.produce import ProduceResponse

__all__ = ["jumping_clock"]

HOUR_S, DAY_S = 3600, 86_400
PATIENCE_S = 60.0
LONG, SHORT = TopicPartition("long", 0), TopicPartition("short", 0)
RESTING = """
from threading import Event, Timer
from tidelog.clock import rest

Timer(0.5, lambda: print("rests", flush=True)).start()
rest(Event(), 2.0)
"""
STOPPING = """
from concurrent.futures import Future
from threading import Timer
from tidelog.process import tell_until_done

Timer(0.5, lambda: print("rests", flush=True)).start()
tell_until_done([Future()], at_most_s=2.0)
"""
LOOKS_OFTEN = {"log.retention.check.interval.ms": "200"}


@pytest.fixture
def broker(jumping_clock: JumpingClock, tmp_path: Path) -> Iterator[TidelogProcess]:
    made = TidelogProcess(tmp_path / "broker", LOOKS_OFTEN).start()
    yield made
    made.kill()


def offset(cluster: Cluster, at: TopicPartition, when: int) -> int:
    return list_offsets(cluster, {at: when})[at].offset


def send_first_batch(broker: TidelogProcess) -> int:
    """Of an idempotent producer, which may be sent again; the offset that it has."""
    batch = encode([(None, b"once", (), int(time.time() * 1000))], producer_id=7, producer_epoch=0, base_sequence=0)
    with RawConnection(broker.bootstrap) as raw:
        answer = raw.call(produce(LONG.topic, bytes(batch)), 9, ProduceResponse)
    (told,) = answer.responses[0].partition_responses
    assert told.error_code == 0
    return told.base_offset


@proves("T1", "T2", "T4")
def test_nobody_is_expired_and_nothing_counts_twice_when_a_brokers_clock_jumps(
    jumping_clock: JumpingClock, broker: TidelogProcess
) -> None:
    with Cluster(broker.bootstrap) as cluster, Cluster(broker.bootstrap) as other:
        topics.create(cluster, LONG.topic, partitions=1)
        topics.create(cluster, SHORT.topic, partitions=1, configs={"retention.ms": str(2 * HOUR_S * 1000)})
        member, writer = GroupMembership(cluster, "readers"), Transactions(other, "writer")
        eventually(lambda: member.beat([LONG.topic]) or member.partitions)
        assert send_first_batch(broker) == 0
        with Producer(cluster) as producer:
            producer.send(SHORT.topic, b"soon gone", partition=0)
        writer.start()
        for ahead_s in (-HOUR_S, DAY_S):
            with writer.transaction() as producer:
                producer.send(LONG.topic, b"a", partition=0)
                jumping_clock.jump_to(ahead_s)
                if ahead_s > 0:  # when it is gone, older than its retention, all partitions were looked at
                    eventually(lambda: offset(cluster, SHORT, EARLIEST) == 1)
            assert not member.beat([LONG.topic]) and member.partitions == {LONG}
        assert send_first_batch(broker) == 0, "it is known again"
        eventually(lambda: offset(cluster, LONG, LATEST) == 5)  # markers are seen a moment after the commit
        assert offset(cluster, LONG, EARLIEST) == 0


@proves("P3")
@pytest.mark.parametrize("program", [RESTING, STOPPING], ids=["rests", "waits for parts that stop"])
def test_a_supervisor_that_rests_wakes_up_though_the_clock_was_set_back(
    jumping_clock: JumpingClock, program: str
) -> None:
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"rests\n"
            jumping_clock.jump_to(-HOUR_S)
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
