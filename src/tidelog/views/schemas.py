"""The schemas of a registry, read from its topic `_schemas`: what the frame of a value stands for.

A registry is a fold of that topic (Confluent's records: SCHEMA by subject and version, DELETE_SUBJECT), so that no
registry needs to run, and who may read the topic may read the schemas. It is read once for a question, and only when
a value has a frame.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.client.metadata import TopicPartition
from tidelog.control.reading import read, span
from tidelog.errors import InvalidSchema
from tidelog.schema import formats

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.schema.schema import Schema

TOPIC = TopicPartition("_schemas", 0)
REFERENCES_DEEP = 20


class Registered(NamedTuple):
    id: int
    format: str
    text: str
    references: tuple[tuple[str, str, int], ...]  # name, subject, version
    deleted: bool


class Schemas:
    def __init__(self) -> None:
        self.versions: dict[tuple[str, int], Registered] = {}
        self._parsed: dict[int, Schema | str] = {}

    def note(self, key: bytes | None, value: bytes | None) -> None:
        """One record of the topic. What does not look like a registry's is passed over."""
        try:
            named, held = json.loads(key or b""), None if value is None else json.loads(value)
            at = (str(named["subject"]), int(named.get("version", 0)))
            if named["keytype"] == "SCHEMA" and held is None:
                self.versions.pop(at, None)
            elif named["keytype"] == "SCHEMA" and held is not None:
                self.versions[at] = _registered(held)
            elif named["keytype"] == "DELETE_SUBJECT" and held is not None:
                for subject, version in list(self.versions):
                    if subject == at[0] and version <= int(held["version"]):
                        self.versions[subject, version] = self.versions[subject, version]._replace(deleted=True)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return

    def newest(self, subject: str) -> Registered | None:
        there = [version for (name, version), one in self.versions.items() if name == subject and not one.deleted]
        return self.versions[subject, max(there)] if there else None

    def with_id(self, number: int) -> Registered | None:
        return next((one for one in self.versions.values() if one.id == number), None)

    def schema_of(self, number: int) -> Schema | str:
        """Or why there is none."""
        if number not in self._parsed:
            self._parsed[number] = self._parse(number)
        return self._parsed[number]

    def _parse(self, number: int) -> Schema | str:
        found = self.with_id(number)
        if found is None:
            return f"{TOPIC.topic} has no schema {number}"
        try:
            return formats.parse(found.format, found.text, self.texts(found))
        except InvalidSchema as error:
            return f"schema {number}: {error}"

    def texts(self, of: Registered, depth: int = 0) -> dict[str, str]:
        """What it refers to, each after those that it refers to itself."""
        found: dict[str, str] = {}
        for name, subject, version in of.references if depth < REFERENCES_DEEP else ():
            there = self.versions.get((subject, version))
            if there is not None:
                found |= self.texts(there, depth + 1)
                found[name] = there.text
        return found


def _registered(held: dict[str, Any]) -> Registered:
    references = tuple(
        (str(one["name"]), str(one["subject"]), int(one["version"])) for one in held.get("references") or ()
    )
    kind = str(held.get("schemaType") or "AVRO")
    return Registered(int(held["id"]), kind, str(held["schema"]), references, bool(held.get("deleted")))


def read_schemas(cluster: Cluster) -> Schemas:
    """All that is there by now; none where there is no such topic."""
    found = Schemas()
    there = span(cluster, TOPIC, committed=True)
    if there is not None:
        for _, row in read(cluster, {TOPIC: there.start}, {TOPIC: there.end}):
            found.note(row.key, row.value)
    return found
