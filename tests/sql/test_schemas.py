"""Values with a registry's frame: Avro, Protobuf and JSON Schema as columns, by the schemas in `_schemas`."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest

from proving import proves
from sql.asking import Ask, write
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.views.schemas import Schemas

V1 = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "product", "type": "string"}],
}
V2 = {**V1, "fields": [*V1["fields"], {"name": "amount", "type": "double", "default": 1.5}]}
PROTO = 'syntax = "proto3"; message Order { int64 id = 1; string product = 2; }'
JSON_SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "at": {"type": "string", "format": "date"}}}


def frame(number: int, data: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + data


def avro(number: int, schema: Any, record: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return frame(number, out.getvalue())


def record(subject: str, version: int, number: int, text: str, kind: str | None = None) -> tuple[bytes, bytes]:
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    value: dict[str, Any] = {"subject": subject, "version": version, "id": number, "schema": text, "deleted": False}
    return json.dumps(key).encode(), json.dumps(value | ({} if kind is None else {"schemaType": kind})).encode()


def register(cluster: Cluster, *records: tuple[bytes, bytes]) -> None:
    topics.create(cluster, "_schemas", configs={"cleanup.policy": "compact"})
    keys = {value: key for key, value in records}
    write(cluster, "_schemas", [value for _, value in records], key=keys.__getitem__)


@pytest.fixture
def ask(tidelog_broker: Any) -> Ask:
    return Ask(tidelog_broker.bootstrap)


@pytest.fixture
def cluster(ask: Ask) -> Any:
    with Cluster(ask.bootstrap) as connected:
        yield connected


@proves("sql")
def test_avro_of_two_versions_has_the_columns_of_the_newest(ask: Ask, cluster: Cluster) -> None:
    first, second = record("orders-value", 1, 7, json.dumps(V1)), record("orders-value", 2, 9, json.dumps(V2))
    register(cluster, first, second)
    topics.create(cluster, "orders")
    old = [avro(7, V1, {"id": n, "product": "é"}) for n in range(3)]
    write(cluster, "orders", [*old, avro(9, V2, {"id": 3, "product": "tea", "amount": 4.0}), None])
    assert ask('select id, product, amount from orders order by "offset"') == [
        *((n, "é", 1.5) for n in range(3)),
        (3, "tea", 4.0),
        (None, None, None),
    ]
    assert ask.columns("orders")["value"] == "BLOB"


@proves("sql")
def test_protobuf_and_json_schema_are_columns_too(ask: Ask, cluster: Cluster) -> None:
    proto, schema = record("p-value", 1, 1, PROTO, "PROTOBUF"), record("j-value", 1, 2, json.dumps(JSON_SCHEMA), "JSON")
    register(cluster, proto, schema)
    topics.create(cluster, "p")
    topics.create(cluster, "j")
    write(cluster, "p", [frame(1, b"\0\x08\x05\x12\x03tea")])
    write(cluster, "j", [frame(2, b'{"id": 5, "at": "2026-01-31"}')])
    assert ask.one("select id, product from p") == (5, "tea")
    assert str(ask.one('select "at" from j')) == "2026-01-31"


@proves("sql")
def test_a_frame_of_an_unknown_schema_leaves_the_bytes(ask: Ask, cluster: Cluster) -> None:
    topics.create(cluster, "orders")
    write(cluster, "orders", [frame(77, b"\x02")])
    assert ask("select value from orders") == [(frame(77, b"\x02"),)]


@proves("sql")
def test_deleted_versions_are_not_the_newest_and_still_known_by_id() -> None:
    known = Schemas()
    for key, value in (record("s", 1, 1, '"long"'), record("s", 2, 2, '"string"')):
        known.note(key, value)
    known.note(b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}', b'{"subject":"s","version":2}')
    known.note(b"garbage", b"garbage")
    known.note(None, None)
    assert known.newest("s") is None
    assert not isinstance(known.schema_of(2), str)
    assert known.schema_of(3) == "_schemas has no schema 3"
