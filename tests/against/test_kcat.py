"""kcat from Debian, on a librdkafka that is years old: lists, produces, consumes, asks for offsets, joins groups.

It sees null keys and values as such only with -Z and its JSON envelope (-J).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from against.apache_kafka import die_with_parent
from against.brokers import BRIEF_SESSION_MS, HEARTBEAT_MS, Broker
from against.patience import eventually
from against.rebalancing import create
from proving import proves

pytestmark = pytest.mark.external
SECONDS = 180.0


@pytest.fixture(autouse=True)
def kcat_is_installed() -> None:
    if shutil.which("kcat") is None:
        pytest.skip("kcat is not installed; on Debian: apt-get install kcat")


def kcat(broker: Broker, *arguments: str, says: bytes = b"") -> bytes:
    done = subprocess.run(
        ["kcat", "-b", broker.bootstrap, *arguments], input=says, capture_output=True, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def read_all(broker: Broker, topic: str, *arguments: str) -> list[dict[str, Any]]:
    """What the topic has up to its end, each record with its key, payload, offset, partition, timestamp and headers."""
    said = kcat(broker, "-C", "-t", topic, "-e", "-q", "-J", "-X", "check.crcs=true", *arguments)
    return [json.loads(line) for line in said.splitlines()]


@contextmanager
def member(broker: Broker, group: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    times = ("-X", f"session.timeout.ms={BRIEF_SESSION_MS}", "-X", f"heartbeat.interval.ms={HEARTBEAT_MS}")
    quick = (*times, "-X", "auto.offset.reset=earliest")
    process = subprocess.Popen(
        ["kcat", "-b", broker.bootstrap, "-u", "-J", *quick, "-G", group, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=die_with_parent,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@proves("T1", "T10")
def test_the_broker_and_its_topics_are_listed(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 3)
    listed = json.loads(kcat(broker, "-L", "-J"))
    assert [one["name"] for one in listed["brokers"]] == [broker.bootstrap]
    partitions = {one["topic"]: one["partitions"] for one in listed["topics"]}[topic]
    me = listed["brokers"][0]["id"]
    assert sorted(one["partition"] for one in partitions) == [0, 1, 2]
    assert all(one["leader"] == me and one["isrs"] == [{"id": me}] for one in partitions)


@proves("T1", "T10")
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_go_in_and_come_out_as_they_were(broker: Broker, topic: str, compression: str) -> None:
    create(broker.bootstrap, topic, 1)
    lines = b"".join(b"line %d of the same words\n" % number for number in range(20_000))
    kcat(broker, "-P", "-t", topic, "-z", compression, says=lines)
    assert kcat(broker, "-C", "-t", topic, "-e", "-q", "-X", "check.crcs=true") == lines


@proves("T1", "T10")
@pytest.mark.story
def test_keys_headers_and_nulls_come_back(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1)
    kcat(broker, "-P", "-t", topic, "-K", ":", "-H", "a=1", "-H", "b=2", says=b"key:value\n")
    kcat(broker, "-P", "-t", topic, "-K", ":", "-Z", says=b"gone:\n")
    first, second = read_all(broker, topic)
    assert (first["key"], first["payload"], first["headers"]) == ("key", "value", ["a", "1", "b", "2"])
    assert (second["key"], second["payload"]) == ("gone", None)


@proves("T7")
def test_reading_starts_where_it_is_told(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1)
    kcat(broker, "-P", "-t", topic, says=b"".join(b"%d\n" % number for number in range(10)))
    between = int(time.time() * 1000) + 50
    time.sleep(0.2)
    kcat(broker, "-P", "-t", topic, says=b"".join(b"%d\n" % number for number in range(10, 20)))
    assert kcat(broker, "-C", "-t", topic, "-e", "-q", "-o", "17").split() == [b"17", b"18", b"19"]
    assert kcat(broker, "-C", "-t", topic, "-p", "0", "-e", "-q", "-o", "-2").split() == [b"18", b"19"]
    assert kcat(broker, "-C", "-t", topic, "-e", "-q", "-o", f"s@{between}").split()[0] == b"10"
    asked = kcat(broker, "-Q", "-t", f"{topic}:0:{between}", "-J")
    assert json.loads(asked)[topic]["0"]["offset"] == 10


@proves("T1")
def test_a_message_above_the_limit_is_refused(broker: Broker, topic: str, tmp_path: Any) -> None:
    create(broker.bootstrap, topic, 1, max_message_bytes="50000")
    large = tmp_path / "large"
    large.write_bytes(b"x" * 60_000)
    told = subprocess.run(
        ["kcat", "-b", broker.bootstrap, "-P", "-t", topic, str(large)], capture_output=True, timeout=SECONDS
    )
    assert b"Message size too large" in told.stderr
    assert read_all(broker, topic) == []


@proves("T1")
def test_idempotent_and_unacked_producers_are_served(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1)
    lines = b"".join(b"%d\n" % number for number in range(1000))
    kcat(broker, "-P", "-t", topic, "-X", "enable.idempotence=true", "-X", "batch.num.messages=10", says=lines)
    kcat(broker, "-P", "-t", topic, "-X", "acks=0", says=lines)
    eventually(lambda: kcat(broker, "-C", "-t", topic, "-e", "-q"), lambda seen: seen == lines + lines)


@proves("T3", "T7")
@pytest.mark.story
def test_two_members_share_and_the_one_that_stays_takes_over(broker: Broker, topic: str, group: str) -> None:
    create(broker.bootstrap, topic, 2)
    with member(broker, group, topic) as stays:
        kcat(broker, "-P", "-t", topic, "-p", "0", says=b"first\n")
        assert stays.stdout is not None
        assert json.loads(stays.stdout.readline())["payload"] == "first"
        with member(broker, group, topic):
            eventually(lambda: len(owners(broker, group)), lambda members: members == 2)
        eventually(lambda: len(owners(broker, group)), lambda members: members == 1)
        kcat(broker, "-P", "-t", topic, "-p", "0", says=b"last 0\n")
        kcat(broker, "-P", "-t", topic, "-p", "1", says=b"last 1\n")
        wanted = {"last 0", "last 1"}
        while wanted:
            wanted.discard(json.loads(stays.stdout.readline())["payload"])


def owners(broker: Broker, group: str) -> list[str]:
    """The members of the group that own a partition, as the broker tells confluent-kafka."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    members = admin.describe_consumer_groups([group])[group].result(SECONDS).members
    return [one.member_id for one in members if one.assignment.topic_partitions]
