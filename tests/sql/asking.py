"""Records in, rows out: what every test of SQL does."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import tidelog
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer
from tidelog.record.columns import encode


class Ask:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def __call__(self, query: str, **options: Any) -> list[Any]:
        rows: list[Any] = tidelog.sql(query, bootstrap=self.bootstrap, **options).fetchall()
        return rows

    def one(self, query: str, **options: Any) -> Any:
        (row,) = self(query, **options)
        return row[0] if len(row) == 1 else row

    def columns(self, topic: str, **options: Any) -> dict[str, str]:
        return {row[0]: row[1] for row in self(f'describe "{topic}"', **options)}


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def write(cluster: Cluster, topic: str, values: Iterable[Any], *, key: Any = None) -> None:
    """Bytes and None as they are, anything else as JSON; `key` makes a key of a value."""
    with Producer(cluster) as producer:
        for value in values:
            data = value if value is None or isinstance(value, bytes) else as_json(value)
            producer.send(topic, data, key=key(value) if key is not None else None)


def write_batch(cluster: Cluster, topic: str, rows: Iterable[Any], compression: str = "none") -> None:
    with Producer(cluster) as producer:
        producer.send_batch(TopicPartition(topic, 0), encode(rows, compression=compression))
