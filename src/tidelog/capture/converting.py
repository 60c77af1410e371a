"""Keys and values in a schema registry's formats, as Debezium writes them with Confluent's converters.

    avro           0, the schema's id in four bytes, Avro's binary form (AvroConverter)
    json-schema    0, the id, the JSON that is written without a registry (JsonSchemaConverter)

    subjects       TOPIC-key and TOPIC-value

Rules:
- A schema is registered before the first record that needs it, and once in a session. The registry knows it by its
  text, so a restart gets the same id. One that was registered by a transaction which then failed does no harm.
- A registry that is away is waited for, as a database is. One that refuses a schema, since it does not fit the one
  before, stops the capture with the reason: nothing was written that readers could not read.
- Column names in Avro are Avro's (`schema/connect_avro.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tidelog.capture.envelope import compact
from tidelog.control.captures import AVRO, JSON_SCHEMA
from tidelog.control.registry import RegistryAddress, frame, register
from tidelog.schema.avro.values import encoder
from tidelog.schema.connect_avro import avro_of
from tidelog.schema.connect_json import json_schema_of

Encode = Callable[[bytes], bytes]
KEY, VALUE = "key", "value"
FORMATS = {AVRO: "AVRO", JSON_SCHEMA: "JSON"}  # as registries name them


class Converter:
    def __init__(self, registry: RegistryAddress, format: str) -> None:
        self.registry, self.format = registry, format
        self._made: dict[tuple[str, str], Encode] = {}  # by subject and schema

    def encode(self, topic: str, side: str, schema: Mapping[str, Any]) -> Encode:
        """For what stands in JSON, of this Connect schema. Registers it, if that was not done."""
        subject = f"{topic}-{side}"
        known = self._made.get((subject, said := compact(schema)))
        if known is None:
            known = self._made[subject, said] = self._encode(subject, schema)
        return known

    def _encode(self, subject: str, schema: Mapping[str, Any]) -> Encode:
        shaped = avro_of(schema) if self.format == AVRO else json_schema_of(schema)
        start = frame(register(self.registry, subject, FORMATS[self.format], compact(shaped)))
        if self.format == JSON_SCHEMA:
            return start.__add__
        write = encoder(shaped)
        return lambda text: start + write(json.loads(text))

    def pair(self, topic: str, key: bytes, value: bytes) -> tuple[bytes, bytes]:
        """Of a record that has Connect's schemas inside."""
        made = []
        for side, text in ((KEY, key), (VALUE, value)):
            held = json.loads(text)
            made.append(self.encode(topic, side, held["schema"])(compact(held["payload"]).encode()))
        return made[0], made[1]
