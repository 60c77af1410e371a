"""The routes over HTTP: what Confluent's client asks, what is answered, and by which numbers it is refused."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka.schema_registry import (
    ConfigCompatibilityLevel,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    ServerConfig,
)
from confluent_kafka.schema_registry.error import SchemaRegistryError

from gateway.serving import Client
from proving import proves

V1 = "application/vnd.schemaregistry.v1+json"


def avro(*names: str) -> str:
    made = [{"name": one.rstrip("?"), "type": "int", **({"default": 0} if one.endswith("?") else {})} for one in names]
    return json.dumps({"type": "record", "name": "R", "fields": made}, separators=(",", ":"))


def refused(client: Client, method: str, path: str, body: Any = None) -> tuple[int, int]:
    got = client(method, path, body)
    assert got.message
    return got.status, got.json["error_code"]


@proves("schemas", "T10")
def test_a_life_of_a_subject_by_confluents_client(registry: SchemaRegistryClient, subject: str) -> None:
    first = registry.register_schema(subject, Schema(avro("x")))
    assert registry.register_schema(subject, Schema(avro("x"))) == first
    assert not registry.test_compatibility(subject, Schema(avro("x", "y")))
    with pytest.raises(SchemaRegistryError) as error:
        registry.register_schema(subject, Schema(avro("x", "y")))
    assert (error.value.http_status_code, error.value.error_code) == (409, 40901)
    second = registry.register_schema(subject, Schema(avro("x", "y?")))
    assert second > first
    assert registry.get_versions(subject) == [1, 2]
    latest = registry.get_latest_version(subject)
    assert (latest.version, latest.schema_id, latest.schema.schema_str) == (2, second, avro("x", "y?"))
    assert registry.get_schema(first).schema_str == avro("x")
    assert registry.lookup_schema(subject, Schema(avro("x"))).version == 1
    assert subject in registry.get_subjects()
    assert registry.delete_version(subject, 1) == 1
    assert registry.get_versions(subject) == [2]
    assert registry.delete_subject(subject) == [2]
    assert subject not in registry.get_subjects()
    assert registry.delete_subject(subject, permanent=True) == [1, 2]


@proves("schemas", "T10")
def test_compatibility_and_mode_by_confluents_client(registry: SchemaRegistryClient, subject: str) -> None:
    assert registry.get_compatibility() == "BACKWARD"
    registry.set_compatibility(subject, "FORWARD")
    assert registry.get_compatibility(subject) == "FORWARD"
    registry.set_config(subject, ServerConfig(compatibility=ConfigCompatibilityLevel.FULL))
    assert registry.get_config(subject).compatibility_level == "FULL"
    registry.delete_config(subject)
    with pytest.raises(SchemaRegistryError) as error:
        registry.get_compatibility(subject)
    assert error.value.error_code == 40408
    assert registry.update_mode(subject, "READONLY") == "READONLY"
    with pytest.raises(SchemaRegistryError) as error:
        registry.register_schema(subject, Schema(avro("x")))
    assert error.value.error_code == 42205
    assert registry.get_mode(subject) == "READONLY"
    assert registry.delete_mode(subject) == "READONLY"
    assert registry.get_global_mode() == "READWRITE"
    assert registry.get_contexts() == ["."]


@proves("schemas", "T10")
def test_references_by_confluents_client(registry: SchemaRegistryClient, subject: str) -> None:
    part = '{"type":"record","name":"Part","fields":[]}'
    registry.register_schema(f"{subject}-part", Schema(part))
    whole = '{"type":"record","name":"R","fields":[{"name":"p","type":"Part"}]}'
    references = [SchemaReference("Part", f"{subject}-part", 1)]
    made = registry.register_schema(subject, Schema(whole, references=references))
    assert registry.get_schema(made).references[0].subject == f"{subject}-part"
    assert registry.get_referenced_by(f"{subject}-part", 1) == [made]
    with pytest.raises(SchemaRegistryError) as error:
        registry.delete_version(f"{subject}-part", 1)
    assert error.value.error_code == 42206


@proves("schemas")
def test_what_is_not_there_is_said_by_its_number(client: Client, subject: str) -> None:
    body = {"schema": avro("x")}
    assert client("POST", f"/subjects/{subject}/versions", body).status == 200
    assert refused(client, "GET", "/subjects/nobody/versions") == (404, 40401)
    assert refused(client, "GET", "/subjects/nobody/versions/1") == (404, 40401)
    assert refused(client, "GET", f"/subjects/{subject}/versions/7") == (404, 40402)
    assert refused(client, "GET", f"/subjects/{subject}/versions/zero") == (422, 42202)
    assert refused(client, "GET", f"/subjects/{subject}/versions/0") == (422, 42202)
    assert refused(client, "GET", "/schemas/ids/999999") == (404, 40403)
    assert refused(client, "GET", "/schemas/ids/x") == (404, 40403)
    assert refused(client, "POST", "/subjects/nobody", body) == (404, 40401)
    assert refused(client, "POST", f"/subjects/{subject}", {"schema": avro("other")}) == (404, 40403)
    assert refused(client, "POST", f"/subjects/{subject}/versions", {"schema": "nope"}) == (422, 42201)
    assert refused(client, "POST", f"/subjects/{subject}/versions", b"{") == (415, 415)
    assert refused(client, "POST", f"/compatibility/subjects/{subject}/versions/9", body) == (404, 40402)
    assert refused(client, "DELETE", "/subjects/nobody") == (404, 40401)
    assert refused(client, "PUT", "/config", {"compatibility": "x"}) == (422, 42203)
    assert refused(client, "PUT", "/mode", {"mode": "x"}) == (422, 42204)
    assert refused(client, "POST", f"/subjects/{quote(':.other:s', safe='')}/versions", body) == (422, 42208)


@proves("schemas")
def test_answers_and_errors_have_the_registrys_content_type(client: Client, subject: str) -> None:
    got = client("POST", f"/subjects/{subject}/versions", json.dumps({"schema": avro("x")}).encode(), Content_Type=V1)
    assert (got.status, got.headers["content-type"]) == (200, V1)
    assert client("GET", "/subjects/nobody/versions").headers["content-type"] == V1
    text = client("GET", f"/subjects/{subject}/versions/latest/schema")
    assert (text.body.decode(), text.headers["content-type"]) == (avro("x"), V1)
    assert client("GET", f"/schemas/ids/{got.json['id']}/schema").body.decode() == avro("x")


@proves("schemas")
def test_a_subject_may_have_any_name_that_fits_a_path(client: Client) -> None:
    name = "a/b c?d=ü%"
    got = client("POST", f"/subjects/{quote(name, safe='')}/versions", {"schema": '"int"'})
    assert got.status == 200, got
    assert name in client("GET", "/subjects").json
    assert client("GET", f"/subjects/{quote(name, safe='')}/versions").json == [1]


@proves("schemas")
def test_lists_come_in_pages_and_by_prefix(client: Client, subject: str) -> None:
    for number in range(3):
        client(
            "POST", f"/subjects/{subject}-{number}/versions", {"schema": f'{{"type":"int","n":"{subject}{number}"}}'}
        )
    assert client("GET", f"/subjects?subjectPrefix={subject}&offset=1&limit=1").json == [f"{subject}-1"]
    found = client("GET", f"/schemas?subjectPrefix={subject}").json
    assert [one["subject"] for one in found] == [f"{subject}-{number}" for number in range(3)]
    identity = found[0]["id"]
    assert client("GET", f"/schemas/ids/{identity}/subjects").json == [f"{subject}-0"]
    assert client("GET", f"/schemas/ids/{identity}/versions").json == [{"subject": f"{subject}-0", "version": 1}]
    assert client("GET", f"/schemas/guids/{found[0]['guid']}").json["schema"] == found[0]["schema"]


@proves("schemas")
def test_a_check_says_why_when_asked(client: Client, subject: str) -> None:
    client("POST", f"/subjects/{subject}/versions", {"schema": avro("x")})
    place = f"/compatibility/subjects/{subject}/versions/latest"
    assert client("POST", place, {"schema": avro("x", "y?")}).json == {"is_compatible": True}
    assert client("POST", place, {"schema": avro("x", "y")}).json == {"is_compatible": False}
    told = client("POST", f"{place}?verbose=true", {"schema": avro("x", "y")}).json
    assert told["is_compatible"] is False
    assert "'y'" in told["messages"][0]
    assert client("POST", "/compatibility/subjects/nobody/versions/latest", {"schema": '"int"'}).json["is_compatible"]


@proves("schemas", "hostile")
def test_a_hostile_schema_is_an_answer_and_not_the_end_of_the_gateway(client: Client, subject: str) -> None:
    deep = '{"type":"array","items":' * 3_000 + '"int"' + "}" * 3_000
    assert refused(client, "POST", f"/subjects/{subject}/versions", {"schema": deep}) == (422, 42201)
    protobuf = {"schema": "message A {" * 3_000, "schemaType": "PROTOBUF"}
    assert refused(client, "POST", f"/subjects/{subject}/versions", protobuf) == (422, 42201)
    remote = {"schema": '{"$ref":"http://127.0.0.1:1/x"}', "schemaType": "JSON"}
    assert refused(client, "POST", f"/subjects/{subject}/versions", remote) == (422, 42201)
    assert client("GET", "/healthz").status == 200
