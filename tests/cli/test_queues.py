"""`tidelog queues`: where the records of share groups are."""

from __future__ import annotations

import json

import pytest

import tidelog
from against.patience import eventually
from proving import proves
from tidelog.cli.main import main
from tidelog.client import Cluster, Producer
from tidelog.client.admin import configs, topics
from tidelog.client.share import REJECT, RELEASE, ShareReader


@proves("T4")
def test_records_are_left_in_flight_and_redelivered(capsys: pytest.CaptureFixture[str]) -> None:
    with tidelog.Broker(in_process=True) as broker, Cluster(broker.bootstrap) as cluster:
        topics.create(cluster, "jobs", partitions=1)
        configs.alter(cluster, configs.GROUP, "mailers", set={"share.auto.offset.reset": "earliest"})
        with Producer(cluster) as producer:
            for number in range(10):
                producer.send("jobs", str(number).encode())

        def queues(*arguments: str) -> str:
            assert main(["queues", *arguments, "--bootstrap", broker.bootstrap]) == 0
            return capsys.readouterr().out

        assert queues() == "no share groups\n"
        reader = ShareReader(cluster, "mailers", ["jobs"], max_records=4)
        eventually(reader.fetch)
        (first,) = eventually(lambda: reader.fetch(max_records=1))
        reader.acknowledge({first.at: {first.row.offset: RELEASE}})
        wanted = {"group": "mailers", "state": "Stable", "members": 1, "left": 10, "dead": None}

        def seen() -> dict[str, object]:
            (one,) = json.loads(queues("mail*", "--json"))
            assert {key: one[key] for key in wanted} == wanted
            return one

        eventually(seen, lambda one: bool(one["in flight"]) and (one["redelivered"], one["delayed"]) == (1, 0))
        shown = queues("describe", "mailers")
        assert "redelivered 1" in shown
        assert "jobs" in shown
        reader.close()


@proves("T4")
def test_records_are_delayed_and_dead(capsys: pytest.CaptureFixture[str]) -> None:
    with tidelog.Broker(in_process=True) as broker, Cluster(broker.bootstrap) as cluster:
        topics.create(cluster, "jobs", configs={"tidelog.delay.max.ms": "3600000"})
        topics.create(cluster, "dlq.jobs", configs={"errors.deadletterqueue.group.enable": "true"})
        wanted = {"share.auto.offset.reset": "earliest", "errors.deadletterqueue.topic.name": "dlq.jobs"}
        configs.alter(cluster, configs.GROUP, "mailers", set=wanted)
        with Producer(cluster) as producer:
            for delay_ms in (b"0", b"3600000", b"3600000"):
                producer.send("jobs", b"job", headers=[("tidelog-delay-ms", delay_ms)])
        reader = ShareReader(cluster, "mailers", ["jobs"])
        (first,) = eventually(reader.fetch)
        reader.acknowledge({first.at: {first.row.offset: REJECT}})

        def seen() -> tuple[object, ...]:
            assert main(["queues", "--json", "--bootstrap", broker.bootstrap]) == 0
            (one,) = json.loads(capsys.readouterr().out)
            return tuple(one[name] for name in ("left", "in flight", "redelivered", "delayed", "dead"))

        eventually(seen, lambda found: found == (2, 0, 0, 2, 1))
        reader.close()
