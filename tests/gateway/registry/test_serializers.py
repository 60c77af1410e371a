"""confluent-kafka's serializers, unchanged: they register, evolve, are refused, and read what others wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import DeserializingConsumer, SerializingProducer
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

import tidelog
from proving import proves
from tidelog.schema.protobuf.grammar import read


def record(**fields: Any) -> str:
    made = [
        {"name": name, "type": kind} if isinstance(kind, str) else {"name": name, **kind}
        for name, kind in fields.items()
    ]
    return json.dumps({"type": "record", "name": "Order", "fields": made})


def message_class(text: str, name: str, *others: descriptor_pb2.FileDescriptorProto, file: str = "order.proto") -> Any:
    """A generated class, without protoc: from a descriptor in a pool of its own."""
    pool = descriptor_pool.DescriptorPool()
    timestamps = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(timestamps)
    made = read(text)
    made.name = file
    for one in (timestamps, *others, made):
        pool.Add(one)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def through(broker: tidelog.Broker, topic: str, serializer: Any, deserializer: Any, values: list[Any]) -> list[Any]:
    producer = SerializingProducer({"bootstrap.servers": broker.bootstrap, "value.serializer": serializer})
    for value in values:
        producer.produce(topic, value=value)
    assert producer.flush(30) == 0
    consumer = DeserializingConsumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "value.deserializer": deserializer,
        }
    )
    consumer.subscribe([topic])
    found: list[Any] = []
    while len(found) < len(values):
        message = consumer.poll(30)
        assert message is not None, f"{len(found)} of {len(values)} came"
        found.append(message.value())
    consumer.close()
    return found


@proves("schemas", "T10")
def test_avro(broker: tidelog.Broker, registry: SchemaRegistryClient, topic: Callable[[], str]) -> None:
    name = topic()
    old, new = record(id="int"), record(id="long", note={"type": "string", "default": "-"})
    written = [{"id": number} for number in range(5)]
    assert through(broker, name, AvroSerializer(registry, old), AvroDeserializer(registry), written) == written
    where = SerializationContext(name, MessageField.VALUE)
    later = AvroSerializer(registry, new)({"id": 7, "note": "late"}, where)
    assert registry.get_versions(f"{name}-value") == [1, 2]
    before = AvroSerializer(registry, old)({"id": 6}, where)
    reader = AvroDeserializer(registry, new)
    assert [reader(one, where) for one in (before, later)] == [{"id": 6, "note": "-"}, {"id": 7, "note": "late"}]
    with pytest.raises(SchemaRegistryError) as error:
        AvroSerializer(registry, record(id="string"))({"id": "x"}, where)
    assert error.value.http_status_code == 409


@proves("schemas", "T10")
def test_ids_in_headers_are_names_of_the_content(registry: SchemaRegistryClient, topic: Callable[[], str]) -> None:
    where = SerializationContext(topic(), MessageField.VALUE, headers=[])
    settings = {"schema.id.serializer": header_schema_id_serializer}
    value = {"note": "their deserializer wants more than five bytes"}
    data = AvroSerializer(registry, record(note="string"), conf=settings)(value, where)
    registry.clear_caches()
    assert where.headers and where.headers[0][0] == "__value_schema_id"
    assert AvroDeserializer(registry)(data, where) == value


@proves("schemas", "T10")
def test_json_schema(broker: tidelog.Broker, registry: SchemaRegistryClient, topic: Callable[[], str]) -> None:
    name = topic()

    def schema(**properties: Any) -> str:
        closed = {"type": "object", "properties": properties, "additionalProperties": False, "title": "Order"}
        return json.dumps({"$schema": "http://json-schema.org/draft-07/schema#", **closed})

    first = schema(id={"type": "integer"})
    written = [{"id": number} for number in range(5)]
    serializer, deserializer = JSONSerializer(first, registry), JSONDeserializer(first, schema_registry_client=registry)
    assert through(broker, name, serializer, deserializer, written) == written
    where = SerializationContext(name, MessageField.VALUE)
    JSONSerializer(schema(id={"type": "number"}, note={"type": "string"}), registry)({"id": 1.5, "note": "n"}, where)
    assert registry.get_versions(f"{name}-value") == [1, 2]
    with pytest.raises(SchemaRegistryError) as error:
        JSONSerializer(schema(id={"type": "string"}), registry)({"id": "x"}, where)
    assert error.value.http_status_code == 409


@proves("schemas", "T10")
def test_protobuf(broker: tidelog.Broker, registry: SchemaRegistryClient, topic: Callable[[], str]) -> None:
    name = topic()
    head = 'syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto";'
    first = message_class(head + "message Order { int32 id = 1; google.protobuf.Timestamp at = 2; }", "shop.Order")
    settings = {"use.deprecated.format": False}
    written = [first(id=number) for number in range(5)]
    serializer, deserializer = ProtobufSerializer(first, registry, settings), ProtobufDeserializer(first, settings)
    assert through(broker, name, serializer, deserializer, written) == written
    text = registry.get_latest_version(f"{name}-value").schema
    assert text.schema_type == "PROTOBUF"
    assert "message Order" in text.schema_str
    where = SerializationContext(name, MessageField.VALUE)
    more = message_class(head + "message Order { int64 id = 1; string note = 3; }", "shop.Order")
    data = ProtobufSerializer(more, registry, settings)(more(id=8, note="n"), where)
    assert deserializer(data, where).id == 8
    assert registry.get_versions(f"{name}-value") == [1, 2]
    changed = message_class(head + "message Order { string id = 1; }", "shop.Order")
    with pytest.raises(SchemaRegistryError) as error:
        ProtobufSerializer(changed, registry, settings)(changed(id="x"), where)
    assert error.value.http_status_code == 409


@proves("schemas", "T10")
def test_protobuf_with_imports_registers_them_first(registry: SchemaRegistryClient, topic: Callable[[], str]) -> None:
    name = topic()
    item = read('syntax = "proto3"; package shop; message Item { string name = 1; }')
    item.name = f"{name}/item.proto"
    text = f'syntax = "proto3"; package shop; import "{item.name}"; message Order {{ repeated Item items = 1; }}'
    order = message_class(text, "shop.Order", item, file=f"{name}/order.proto")
    settings = {"use.deprecated.format": False}
    where = SerializationContext(name, MessageField.VALUE)
    data = ProtobufSerializer(order, registry, settings)(order(items=[{"name": "tide"}]), where)
    registered = registry.get_latest_version(f"{name}-value")
    assert [one.name for one in registered.schema.references] == [item.name]
    assert ProtobufDeserializer(order, settings, registry)(data, where).items[0].name == "tide"
