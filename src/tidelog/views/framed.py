"""Keys and values that have a schema registry's frame, as the JSON that they would be without one.

Schemas are those of the topic `_schemas` of the same cluster (`schemas.py`): no registry is asked, and who may read
that topic may read the values. A value whose schema is not there cannot be read.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tidelog.client.cluster import Cluster
from tidelog.errors import InvalidSchema, UndecodableValue
from tidelog.schema.avro.values import decoder
from tidelog.views.schemas import TOPIC, read_schemas

FRAME = 5  # a zero, and the id in four bytes


class FramedValues:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[int, Callable[[bytes], Any]] = {}

    def __call__(self, data: bytes) -> Any:
        """`UndecodableValue` where there is no frame, no such schema, or no such value."""
        if len(data) < FRAME or data[0] != 0:
            raise UndecodableValue("it has no frame of a schema registry: a zero, and the schema's id in four bytes")
        number = int.from_bytes(data[1:FRAME], "big")
        known = self._known.get(number)
        if known is None:
            known = self._known[number] = self._reader(number)
        return known(data[FRAME:])

    def _reader(self, number: int) -> Callable[[bytes], Any]:
        found = read_schemas(self._cluster).with_id(number)
        if found is None:
            raise UndecodableValue(
                f"topic {TOPIC.topic} of this cluster has no schema {number}; a registry elsewhere is not asked here:"
                " read the topic by a consumer of your own, or let the gateway's registry have the schemas"
            )
        try:
            return json.loads if found.format == "JSON" else decoder(json.loads(found.text))
        except (ValueError, InvalidSchema, KeyError, TypeError) as error:
            raise UndecodableValue(f"schema {number} has no values in JSON: {error}") from error
