"""Several gateways and one topic: no id for two schemas, no version twice, and nothing lost when parts are killed."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import tidelog
from against.apache_kafka import ApacheKafka, Missing
from gateway.serving import Client, GatewayProcess, Got
from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer
from tidelog.gateway.registry.state import State, apply

WITHIN_S = 180.0


@contextmanager
def gateways(bootstrap: str, folder: Path, count: int) -> Iterator[list[GatewayProcess]]:
    with ExitStack() as stack:
        running = []
        for number in range(count):
            one = GatewayProcess(bootstrap, folder / f"gateway-{number}")
            stack.callback(one.stop)
            running.append(one)
        yield running


def schema(number: int) -> str:
    return json.dumps({"type": "record", "name": f"R{number}", "fields": []}, separators=(",", ":"))


def patiently(client: Client, method: str, path: str, body: object = None) -> Got:
    """As Confluent's clients do it: what may pass is tried again."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        try:
            got = client(method, path, body)
            if got.status not in (502, 503, 504) or time.monotonic() > deadline:
                return got
        except OSError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def topic_of(bootstrap: str) -> State:
    state = State()
    with Cluster(bootstrap) as cluster:
        consumer = Consumer(cluster, max_wait_ms=0, read_committed=True)
        consumer.assign({TopicPartition("_schemas", 0): 0})
        while fetched := consumer.fetch():
            for one in fetched:
                for row in one.rows():
                    apply(state, row.key, row.value)
    return state


def check_two_gateways(bootstrap: str, folder: Path) -> None:
    with gateways(bootstrap, folder, 2) as both:
        clients = [one.client for one in both]
        assert patiently(clients[0], "PUT", "/config", {"compatibility": "NONE"}).status == 200

        def register(number: int) -> tuple[int, Got]:
            """Each schema by both gateways, most of them into one subject, in another order each."""
            place = f"/subjects/{'shared' if number % 3 else 'other'}/versions"
            return number, patiently(clients[number % 2], "POST", place, {"schema": schema(number // 2)})

        numbers = list(range(60))
        random.Random(4).shuffle(numbers)
        with ThreadPoolExecutor(8) as pool:
            done = list(pool.map(register, numbers))
        assert [got for _, got in done if got.status != 200] == []
        by_schema: dict[int, set[int]] = {}
        for number, got in done:
            by_schema.setdefault(number // 2, set()).add(got.json["id"])
        assert all(len(ids) == 1 for ids in by_schema.values()), "one schema, one id"
        ids = {next(iter(found)): number for number, found in by_schema.items()}
        assert len(ids) == 30, "one id, one schema"
        for client in clients:
            for identity, number in ids.items():
                assert client("GET", f"/schemas/ids/{identity}").json["schema"] == schema(number)
            versions = client("GET", "/subjects/shared/versions").json
            assert versions == list(range(1, len(versions) + 1))
    assert {identity: schema(number) for identity, number in ids.items()} == {
        one.id: one.content.text for versions in topic_of(bootstrap).subjects.values() for one in versions.values()
    }


@proves("schemas", "F3")
def test_two_gateways_at_once_give_no_id_to_two_schemas(tmp_path: Path) -> None:
    with tidelog.Broker(tmp_path / "data") as broker:
        check_two_gateways(broker.bootstrap, tmp_path)


@proves("schemas", "F3", "T10")
@pytest.mark.external
def test_two_gateways_beside_apache_kafka_do_not_either(tmp_path: Path) -> None:
    try:
        kafka = ApacheKafka(tmp_path / "kafka").start()
    except Missing as missing:
        pytest.skip(str(missing))
    try:
        check_two_gateways(kafka.bootstrap, tmp_path)
    finally:
        kafka.stop()


@proves("schemas", "F3")
def test_only_one_of_two_that_exclude_each_other_is_registered(tmp_path: Path) -> None:
    """Each is compatible with what is there, and not with the other: whoever is second is refused."""

    def fields(*names: str) -> str:
        made = [{"name": name, "type": "int"} for name in names]
        return json.dumps({"type": "record", "name": "R", "fields": made})

    with tidelog.Broker(tmp_path / "data") as broker, gateways(broker.bootstrap, tmp_path, 2) as both:
        clients = [one.client for one in both]
        for round_number in range(8):
            place = f"/subjects/s{round_number}/versions"
            patiently(clients[0], "POST", place, {"schema": fields("a", "b")})
            with ThreadPoolExecutor(2) as pool:
                one = pool.submit(patiently, clients[0], "POST", place, {"schema": fields("a")})
                other = pool.submit(patiently, clients[1], "POST", place, {"schema": fields("b")})
            assert sorted([one.result().status, other.result().status]) == [200, 409]
            assert clients[0]("GET", place).json == clients[1]("GET", place).json == [1, 2]


@proves("schemas", "T6")
@pytest.mark.slow
def test_what_was_answered_is_there_after_broker_and_gateway_were_killed(tmp_path: Path) -> None:
    rng = random.Random(11)
    known: dict[int, str] = {}
    with tidelog.Broker(tmp_path / "data") as broker:
        for turn in range(4):
            gateway = GatewayProcess(broker.bootstrap, tmp_path / f"gateway-{turn}")
            for number in range(rng.randrange(2, 6)):
                text = schema(turn * 10 + number)
                got = patiently(gateway.client, "POST", f"/subjects/s{number}-{turn}/versions", {"schema": text})
                assert got.status == 200, got
                known[got.json["id"]] = text
            if turn % 2:
                gateway.process.kill()
                gateway.process.wait()
            broker.kill()
            broker.start()
            if not turn % 2:  # the same process goes on with the broker that has come back
                text = schema(turn * 10 + 9)
                got = patiently(gateway.client, "POST", f"/subjects/again-{turn}/versions", {"schema": text})
                assert got.status == 200, got
                known[got.json["id"]] = text
                gateway.stop()
        with gateways(broker.bootstrap, tmp_path, 1) as (last,):
            found = {identity: last.client("GET", f"/schemas/ids/{identity}").json["schema"] for identity in known}
    assert found == known


def records_of(cluster: Cluster) -> int:
    consumer = Consumer(cluster, max_wait_ms=0, read_committed=True)
    consumer.assign({TopicPartition("_schemas", 0): 0})
    count = 0
    while fetched := consumer.fetch():
        count += sum(len(list(one.rows())) for one in fetched)
    return count


@proves("schemas", "D5")
def test_a_topic_that_the_broker_has_compacted_gives_the_same_registry(tmp_path: Path) -> None:
    eager = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": "0"}
    asked = ("/subjects", "/subjects?deleted=true", "/config/s", "/schemas", "/schemas?deleted=true")
    with (
        tidelog.Broker(tmp_path / "data", settings={"log.cleaner.backoff.ms": 50}) as broker,
        Cluster(broker.bootstrap) as cluster,
    ):
        topics.create(cluster, "_schemas", partitions=1, configs={"cleanup.policy": "compact", **eager})
        with gateways(broker.bootstrap, tmp_path, 1) as (old,):
            for number in range(40):
                level = "NONE" if number % 2 else "FULL"
                assert old.client("PUT", "/config/s", {"compatibility": level}).status == 200
                if number % 4 == 0:
                    place = f"/subjects/s{number}"
                    assert old.client("POST", f"{place}/versions", {"schema": schema(number)}).status == 200
                    if number % 8 == 0:
                        assert old.client("DELETE", place).status == 200
                    if number % 16 == 0:
                        assert old.client("DELETE", f"{place}?permanent=true").status == 200
            deadline = time.monotonic() + WITHIN_S
            while records_of(cluster) > 45:  # of 40, 10, 5 and 3
                assert time.monotonic() < deadline, "nothing was compacted"
                old.client("PUT", "/config/s", {"compatibility": "FULL"})  # an active segment is left alone
                time.sleep(0.1)
            known = [old.client("GET", path).json for path in asked]
        (tmp_path / "later").mkdir()
        with gateways(broker.bootstrap, tmp_path / "later", 1) as (new,):
            assert [new.client("GET", path).json for path in asked] == known
            again = new.client("POST", "/subjects/new/versions", {"schema": schema(99)}).json["id"]
        assert again not in {one["id"] for one in known[-1]}


@proves("schemas", "T10")
def test_a_registry_moves_in_with_its_topic(tmp_path: Path) -> None:
    """Records as another registry left them, with members and kinds that are not known here."""
    left = [
        ('{"keytype":"NOOP","magic":0}', None),
        ('{"keytype":"CONFIG","subject":null,"magic":0}', '{"compatibilityLevel":"FORWARD"}'),
        (
            '{"keytype":"SCHEMA","subject":"old","version":1,"magic":1}',
            '{"subject":"old","version":1,"id":100,"md5":"Zm9v","schema":"\\"int\\"","deleted":false}',
        ),
        (
            '{"keytype":"SCHEMA","subject":"old","version":2,"magic":1}',
            '{"subject":"old","version":2,"id":205,"schemaType":"JSON","schema":"{}","deleted":false,"ts":1,"offset":2}',
        ),
        ('{"keytype":"DELETE_SUBJECT","subject":"old","magic":0}', '{"subject":"old","version":1}'),
        ('{"keytype":"CONTEXT","tenant":"default","context":".x","magic":0}', '{"tenant":"default","context":".x"}'),
    ]
    with tidelog.Broker(tmp_path / "data") as broker, Cluster(broker.bootstrap) as cluster:
        topics.create(cluster, "_schemas", partitions=1, configs={"cleanup.policy": "compact"})
        with Producer(cluster) as producer:
            for key, value in left:
                producer.send("_schemas", None if value is None else value.encode(), key=key.encode())
        with gateways(broker.bootstrap, tmp_path, 1) as (gateway,):
            client = gateway.client
            assert client("GET", "/config").json == {"compatibilityLevel": "FORWARD"}
            assert client("GET", "/subjects/old/versions").json == [2]
            assert client("GET", "/subjects/old/versions?deleted=true").json == [1, 2]
            assert client("GET", "/schemas/ids/100").json["schema"] == '"int"'
            assert client("POST", "/subjects/new/versions", {"schema": '"long"'}).json["id"] == 206


@proves("schemas")
def test_a_topic_that_cannot_be_a_registrys_is_refused(tmp_path: Path) -> None:
    with tidelog.Broker(tmp_path / "data") as broker, Cluster(broker.bootstrap) as cluster:
        topics.create(cluster, "_schemas", partitions=3)
        with gateways(broker.bootstrap, tmp_path, 1) as (gateway,):
            got = gateway.client("GET", "/subjects")
            assert (got.status, "3 partitions" in got.message) == (400, True)


@proves("schemas")
def test_a_topic_that_is_deleted_and_made_anew_is_read_anew(tmp_path: Path) -> None:
    with (
        tidelog.Broker(tmp_path / "data") as broker,
        Cluster(broker.bootstrap) as cluster,
        gateways(broker.bootstrap, tmp_path, 1) as (gateway,),
    ):
        patiently(gateway.client, "POST", "/subjects/a/versions", {"schema": '"int"'})
        assert gateway.client("GET", "/subjects").json == ["a"]
        topics.delete(cluster, "_schemas")
        assert patiently(gateway.client, "GET", "/subjects").json == []
        assert patiently(gateway.client, "POST", "/subjects/b/versions", {"schema": '"int"'}).status == 200
        assert gateway.client("GET", "/subjects").json == ["b"]
