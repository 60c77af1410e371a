"""How the tests use share groups: settings of a group, a consumer, and reading so many messages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaException, Message, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from against.confluent import SECONDS, dotted

EARLIEST = {"share.auto.offset.reset": "earliest"}
EXPLICIT = {"share.acknowledgement.mode": "explicit"}


def configure(bootstrap: str, name: str, kind: ResourceType = ResourceType.GROUP, **settings: str) -> None:
    """Settings of a group, or of a topic."""
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in dotted(settings).items()
    ]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resource = ConfigResource(kind, name, incremental_configs=entries)
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(SECONDS)


@contextmanager
def share_consumer(bootstrap: str, group: str, topic: str, **settings: Any) -> Iterator[ShareConsumer]:
    consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 3, **dotted(settings)})
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def polled(consumer: ShareConsumer, seconds: float = SECONDS) -> list[Message]:
    """What one poll gives that gives something."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        messages = []
        for message in consumer.poll(0.2):
            if (error := message.error()) is not None:
                raise KafkaException(error)
            messages.append(message)
        if messages:
            return messages
    raise AssertionError(f"nothing within {seconds} s")


def offsets(messages: list[Message]) -> list[int | None]:
    return [one.offset() for one in messages]
