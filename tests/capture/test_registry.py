"""Schemas in a registry: what a capture writes there and in its topics, read by Confluent's own deserializers."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import SerializationContext

import tidelog
from capture.captured import folded, records
from capture.databases import PostgresShop, Shop, SqliteShop
from gateway.serving import Client, GatewayProcess
from postgres_server import PostgresServer
from proving import proves
from tidelog.capture.running import Capture
from tidelog.client.cluster import Cluster
from tidelog.control.captures import read_captures
from tidelog.errors import UsageError

KEY = ("id",)


@pytest.fixture(scope="module")
def broker() -> Iterator[tidelog.Broker]:
    with tidelog.Broker() as running:
        yield running


@pytest.fixture(scope="module")
def gateway(broker: tidelog.Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    running = GatewayProcess(broker.bootstrap, tmp_path_factory.mktemp("gateway") / "log")
    yield running
    assert running.stop() == 0, running.said()


@pytest.fixture
def url(gateway: GatewayProcess) -> str:
    return f"http://127.0.0.1:{gateway.client.port}"


def capture(broker: tidelog.Broker, shop: Shop, prefix: str, **settings: Any) -> Capture:
    made: Capture = tidelog.capture(shop.url, prefix=prefix, bootstrap=broker.bootstrap, **settings)
    return made


def avro(url: str, broker: tidelog.Broker, topic: str, *, keys: bool = False) -> list[Any]:
    """What an application sees that has Confluent's library."""
    read = AvroDeserializer(SchemaRegistryClient({"url": url}))
    side = "key" if keys else "value"
    found = [one.key if keys else one.value for one in records(broker.bootstrap, topic)]
    return [None if one is None else read(one, SerializationContext(topic, side)) for one in found]


def subjects(url: str, prefix: str) -> set[str]:
    return {one for one in SchemaRegistryClient({"url": url}).get_subjects() if one.startswith(f"{prefix}.")}


@pytest.fixture
def shop(path: Path) -> Iterator[Shop]:
    made = SqliteShop(path)
    made.make(made.writer())
    yield made
    made.close()


@proves("D1")
def test_confluents_deserializer_reads_what_a_capture_wrote(broker: tidelog.Broker, shop: Shop, url: str) -> None:
    writer = shop.writer()
    writer.run("INSERT INTO orders VALUES (1, 'tea', 2, NULL), (2, 'jam', NULL, 'ü')")
    capture(broker, shop, "one", registry=url).catch_up()
    writer.run("UPDATE orders SET price = 3 WHERE id = 1", "UPDATE orders SET id = 5 WHERE id = 2")
    writer.run("DELETE FROM orders WHERE id = 1")
    capture(broker, shop, "one", registry=url).catch_up()
    topic = "one.main.orders"
    told = avro(url, broker, topic)
    assert [None if one is None else one["op"] for one in told] == ["r", "r", "u", "d", None, "c", "d", None]
    assert folded([one for one in told if one is not None], KEY) == shop.rows() == {(5,): (5, "jam", None, "ü")}
    assert avro(url, broker, topic, keys=True) == [{"id": one} for one in (1, 2, 1, 2, 2, 5, 1, 1)]
    assert told[0]["source"]["connector"] == "sqlite" and told[0]["source"]["name"] == "one"
    assert subjects(url, "one") >= {f"{topic}-key", f"{topic}-value"}
    held = json.loads(SchemaRegistryClient({"url": url}).get_latest_version(f"{topic}-value").schema.schema_str)
    assert (held["name"], held["namespace"], held["connect.version"]) == ("Envelope", topic, 2)


@proves("D1", "cdc.14")
def test_a_changed_table_has_a_second_version_and_readers_go_on(broker: tidelog.Broker, shop: Shop, url: str) -> None:
    writer = shop.writer()
    writer.run("INSERT INTO orders VALUES (1, 'tea', 2, NULL)")
    capture(broker, shop, "two", registry=url).catch_up()
    with capture(broker, shop, "two", registry=url):
        writer.run("ALTER TABLE orders ADD COLUMN extra TEXT", "INSERT INTO orders VALUES (2, 'jam', 1, NULL, 'new')")
        while not any(b"new" in (one.value or b"") for one in records(broker.bootstrap, "two.main.orders")):
            time.sleep(0.02)
    client = SchemaRegistryClient({"url": url})
    assert client.get_versions("two.main.orders-value") == [1, 2]
    told = avro(url, broker, "two.main.orders")
    assert (told[0]["after"].get("extra", "-"), told[-1]["after"]["extra"]) == ("-", "new")
    old = json.loads(client.get_version("two.main.orders-value", 1).schema.schema_str)
    read = AvroDeserializer(client, json.dumps(old))  # a reader that knows the first version alone
    values = [one.value for one in records(broker.bootstrap, "two.main.orders")]
    rows = [read(one, SerializationContext("two.main.orders", "value")) for one in values]
    assert {one["after"]["id"]: one["after"]["item"] for one in rows} == {1: "tea", 2: "jam"}


@proves("D1")
def test_values_with_a_json_schema_are_the_same_json_behind_a_frame(
    broker: tidelog.Broker, shop: Shop, url: str
) -> None:
    shop.writer().run("INSERT INTO orders VALUES (1, 'tea', 2, NULL)")
    capture(broker, shop, "three", registry=url, format="json-schema").catch_up()
    (one,) = records(broker.bootstrap, "three.main.orders")
    assert one.value is not None and one.key is not None and one.value[:1] == b"\0"
    assert json.loads(one.key[5:]) == {"id": 1}
    client = SchemaRegistryClient({"url": url})
    held = client.get_latest_version("three.main.orders-value").schema
    assert held.schema_type == "JSON"
    read = JSONDeserializer(held.schema_str, schema_registry_client=client)
    value = read(one.value, SerializationContext("three.main.orders", "value"))
    assert value["after"] == {"id": 1, "item": "tea", "price": 2, "note": None}
    assert json.loads(one.value[5:]) == value


@proves("D1")
def test_transactions_and_heartbeats_have_schemas_too_and_rows_alone_may(
    broker: tidelog.Broker, shop: Shop, url: str
) -> None:
    shop.writer().run("INSERT INTO orders VALUES (1, 'tea', 2, NULL)")
    capture(broker, shop, "four", registry=url).catch_up()
    shop.writer().run("UPDATE orders SET price = 3")
    capture(broker, shop, "four", registry=url, transactions=True).catch_up()
    begun, ended = avro(url, broker, "four.transaction")
    assert (begun["status"], ended["status"], ended["event_count"]) == ("BEGIN", "END", 1)
    assert ended["data_collections"] == [{"data_collection": "main.orders", "event_count": 1}]
    assert {"four.transaction-key", "four.transaction-value"} <= subjects(url, "four")
    capture(broker, shop, "five", registry=url, envelope="row").catch_up()
    assert avro(url, broker, "five.main.orders") == [{"id": 1, "item": "tea", "price": 3, "note": None}]


@proves("D1")
def test_every_kind_of_value_of_postgresql_passes_through_avro(
    broker: tidelog.Broker, logical_server: PostgresServer, url: str
) -> None:
    shop = PostgresShop(logical_server)
    writer = shop.writer()
    writer.run(
        'CREATE TABLE kinds (id int PRIMARY KEY, n numeric(10,2), m numeric, d date, t timestamptz, "odd name" text,'
        " a int[], j jsonb, b bytea, s smallint DEFAULT 7, f real, u uuid, i interval, e boolean)",
        "INSERT INTO kinds VALUES (1, -2.50, 12345678901234567890.5, '2000-01-01', '2025-03-01 10:00+02', 'x',"
        " '{1,NULL,3}', '{\"k\": [1]}', '\\x00ff', 2, 'NaN', '00000000-0000-0000-0000-000000000001', '1 day', true)",
        "INSERT INTO kinds (id) VALUES (2)",
    )
    capture(broker, shop, "plain", name="kinds_plain", tables="public.kinds").catch_up()
    capture(broker, shop, "six", name="kinds_avro", tables="public.kinds", registry=url).catch_up()
    first, second = (one["after"] for one in avro(url, broker, "six.public.kinds"))
    assert str(first["n"]) == "-2.50" and first["d"] == 10957 and first["t"] == "2025-03-01T08:00:00.000000Z"
    assert int.from_bytes(first["m"]["value"], "big", signed=True) == 123456789012345678905 and first["m"]["scale"] == 1
    assert (first["odd_name"], first["a"], first["b"]) == ("x", [1, None, 3], b"\x00\xff")
    assert first["f"] != first["f"] and first["s"] == 2 and second["s"] == 7
    said = json.loads(records(broker.bootstrap, "plain.public.kinds")[0].value or b"")["after"]
    same = [name for name in said if name not in ("n", "m", "b", "f", "odd name")]
    assert {name: first[name] for name in same} == {name: said[name] for name in same}
    assert {name for name, value in second.items() if value is not None} == {"id", "s"}
    shop.close()


@proves("D1")
def test_what_does_not_fit_the_schema_before_stops_the_capture_and_says_what_to_do(
    broker: tidelog.Broker, path: Path, url: str, gateway: GatewayProcess
) -> None:
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")
    database.execute("INSERT INTO t VALUES (1, 'a')")
    shop = SqliteShop(path)
    capture(broker, shop, "seven", registry=url).catch_up()
    database.execute("DROP TABLE t")
    database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v INTEGER)")
    database.execute("INSERT INTO t VALUES (2, 5)")
    with pytest.raises(UsageError, match=r"refuses a schema of seven\.main\.t-value: .*PUT http") as refused:
        capture(broker, shop, "seven", registry=url).catch_up()
    assert "compatibility" in str(refused.value)
    before = [one["after"] for one in avro(url, broker, "seven.main.t") if one is not None]
    assert before == [{"id": 1, "v": "a"}], "nothing was written that could not be read"
    assert gateway.client("PUT", "/config/seven.main.t-value", {"compatibility": "NONE"}).status == 200
    capture(broker, shop, "seven", registry=url).catch_up()
    assert [one and one["after"] for one in avro(url, broker, "seven.main.t")][-1] == {"id": 2, "v": 5}
    database.close()
    shop.close()


@proves("D1")
def test_a_registry_that_is_away_is_waited_for(
    broker: tidelog.Broker, shop: Shop, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.control.registry.PAUSES_S", ())
    shop.writer().run("INSERT INTO orders VALUES (1, 'tea', 2, NULL)")
    away = GatewayProcess(broker.bootstrap, tmp_path / "log")
    port = away.client.port
    assert away.stop() == 0
    tries: list[str] = []
    monkeypatch.setattr("tidelog.capture.telling.CaptureReport.waits_after", lambda _, error: tries.append(str(error)))
    with capture(broker, shop, "eight", registry=f"http://127.0.0.1:{port}") as running:
        while len(tries) < 2:
            assert running._failed is None
    assert all("cannot be asked for /subjects/eight.main.credit-value/versions" in one for one in tries)
    capture(broker, shop, "eight", registry=url).catch_up()
    assert [one["after"]["id"] for one in avro(url, broker, "eight.main.orders")] == [1]


@proves("D1")
def test_settings_that_do_not_fit_are_refused(broker: tidelog.Broker, shop: Shop, url: str) -> None:
    for wrong, said in (
        ({"format": "avro"}, "needs a schema registry"),
        ({"format": "xml", "registry": url}, "'xml' is not a format"),
        ({"format": "json", "registry": url}, "plain JSON has no use for it"),
        ({"registry": url, "schemas": True}, "leave schemas out"),
        ({"registry": "http://me:secret@host"}, "has a password in it"),
        ({"registry": "nowhere"}, "is not an address of a registry"),
    ):
        with pytest.raises(UsageError, match=said) as refused:
            capture(broker, shop, "nine", **wrong)
        assert "secret" not in str(refused.value)
    shop.writer().run("INSERT INTO orders VALUES (1, 'tea', 2, NULL)")
    capture(broker, shop, "nine").catch_up()
    with pytest.raises(UsageError, match=r"nine\.main\.\w+ has records as json, .* told to write avro"):
        capture(broker, shop, "nine", registry=url).catch_up()


@proves("D7")
def test_a_captured_table_in_avro_is_followed_over_http(
    broker: tidelog.Broker, shop: Shop, url: str, gateway: GatewayProcess
) -> None:
    from gateway.views.shop import Follower

    client: Client = gateway.client
    shop.writer().run("INSERT INTO orders VALUES (1, 'tea', 2, NULL)")
    for number, format in enumerate(("avro", "json-schema")):
        prefix = f"ten{number}"
        capture(broker, shop, prefix, registry=url, format=format).catch_up()
        with Cluster(broker.bootstrap) as cluster:
            table = read_captures(cluster)[prefix].tables["main.orders"]
        assert (table.format, table.registry) == (format, url)
        with Follower(client, f"{prefix}.main.orders", room="tables", cursor="start") as follower:
            shop.writer().run(f"UPDATE orders SET price = {10 + number}")
            capture(broker, shop, prefix, registry=url, format=format).catch_up()
            first, second = follower.take(2)
        assert (first.event, second.event) == ("enter", "change")
        assert second.data["row"]["price"] == 10 + number


@proves("D1")
def test_a_registry_may_want_a_login(broker: tidelog.Broker, shop: Shop, url: str) -> None:
    with pytest.raises(UsageError, match="the environment variable REGISTRY_LOGIN is not set here"):
        capture(broker, shop, "eleven", registry=url, registry_login="REGISTRY_LOGIN").catch_up()
