"""Records with schemas: written and read by Confluent's serializers, refused when the schema does not get on.

pip install '/path/to/tidelog[http,schemas]' 'confluent-kafka[avro,schemaregistry]'
python examples/schemas.py
"""

import json

from confluent_kafka import DeserializingConsumer, SerializingProducer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError

import tidelog


def reading(*fields: dict) -> str:
    return json.dumps({"type": "record", "name": "Reading", "fields": list(fields)})


SENSOR = {"name": "sensor", "type": "string"}
FIRST = reading(SENSOR, {"name": "celsius", "type": "int"})
SECOND = reading(SENSOR, {"name": "celsius", "type": "double"}, {"name": "unit", "type": "string", "default": "C"})
WRONG = reading(SENSOR, {"name": "celsius", "type": "string"})

with tidelog.Broker(settings={"tidelog.http.listener": "127.0.0.1:0"}) as broker:
    registry = SchemaRegistryClient({"url": broker.http})
    kafka = {"bootstrap.servers": broker.bootstrap}

    def write(schema: str, **values: object) -> None:
        producer = SerializingProducer({**kafka, "value.serializer": AvroSerializer(registry, schema)})
        producer.produce("readings", value=values)
        producer.flush()

    write(FIRST, sensor="north", celsius=7)
    write(SECOND, sensor="south", celsius=7.5, unit="C")
    try:
        write(WRONG, sensor="west", celsius="warm")
    except Exception as error:
        refused = error if isinstance(error, SchemaRegistryError) else error.__cause__ or error
        print("refused:", "TYPE_MISMATCH" in str(refused))

    reader = {**kafka, "group.id": "readers", "auto.offset.reset": "earliest"}
    consumer = DeserializingConsumer({**reader, "value.deserializer": AvroDeserializer(registry, SECOND)})
    consumer.subscribe(["readings"])
    for _ in range(2):
        message = consumer.poll(30)
        assert message is not None
        print(f"offset {message.offset()}: {message.value()}")
    consumer.close()
    print("versions:", registry.get_versions("readings-value"))
