"""One member of a consumer group in a process of its own, so that it can leave (SIGTERM) or crash (SIGKILL).

    python member.py CLIENT SETTINGS

CLIENT is confluent_kafka, kafka_python or aiokafka; SETTINGS is JSON: bootstrap, group, topic (a name, or a pattern
when it starts with ^) and `client`, the library's own settings. It says what happens to it as JSON lines on stdout:
`assigned` (all it owns now), `records` (what it has read) and then `committed`. Each poll is committed before the next.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from typing import Any

POLL_SECONDS = 0.2
LONG_POLL_SECONDS = 2.0  # kafka-python: a join that outlasts a poll may be forgotten (see `test_kafka_python`)


def say(event: str, what: Any) -> None:
    print(json.dumps({"event": event, "what": what}), flush=True)


def record(message: Any) -> list[Any]:
    return [message.topic, message.partition, message.offset, message.value.decode()]


class Leaving:
    """Set by SIGTERM."""

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, *_: Any) -> None:
        self.asked = True


def run_confluent_kafka(settings: dict[str, Any]) -> None:
    from confluent_kafka import Consumer

    leaving = Leaving()
    consumer = Consumer(
        {
            "bootstrap.servers": settings["bootstrap"],
            "group.id": settings["group"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 500,
            **settings["client"],
        }
    )
    consumer.subscribe([settings["topic"]])
    owned: list[Any] = []
    while not leaving.asked:
        messages = [m for m in consumer.consume(100, POLL_SECONDS) if m.error() is None]
        now = sorted([p.topic, p.partition] for p in consumer.assignment())
        if now != owned:
            owned = now
            say("assigned", owned)
        if messages:
            say("records", [[m.topic(), m.partition(), m.offset(), m.value().decode()] for m in messages])
            consumer.commit(asynchronous=False)
            say("committed", len(messages))
    consumer.close()


def run_kafka_python(settings: dict[str, Any]) -> None:
    from kafka import KafkaConsumer

    leaving = Leaving()
    consumer = KafkaConsumer(
        bootstrap_servers=settings["bootstrap"],
        group_id=settings["group"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        metadata_max_age_ms=500,
        **assignors("kafka.coordinator.assignors", settings["client"]),
    )
    name = settings["topic"]
    which = {"pattern": name} if name.startswith("^") else {"topics": [name]}
    consumer.subscribe(**which, listener=assignments_of(consumer))
    while not leaving.asked:
        messages = [m for batch in consumer.poll(LONG_POLL_SECONDS * 1000).values() for m in batch]
        if messages:
            say("records", [record(m) for m in messages])
            consumer.commit()
            say("committed", len(messages))
    consumer.close()


def assignments_of(consumer: Any) -> Any:
    """A listener that tells at once what kafka-python's consumer owns now, however long it polls."""
    from kafka import ConsumerRebalanceListener

    class Assignments(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Any) -> None:
            say("assigned", sorted([p.topic, p.partition] for p in consumer.assignment()))

        def on_partitions_assigned(self, assigned: Any) -> None:
            say("assigned", sorted([p.topic, p.partition] for p in consumer.assignment()))

    return Assignments()


def assignors(package: str, client: dict[str, Any]) -> dict[str, Any]:
    """`partition_assignment_strategy` names classes as `module.Class` of the library's package of assignors."""
    import importlib

    strategy = client.pop("partition_assignment_strategy", None)
    if strategy is not None:
        module, name = strategy.rsplit(".", 1)
        client["partition_assignment_strategy"] = (getattr(importlib.import_module(f"{package}.{module}"), name),)
    return client


async def run_aiokafka(settings: dict[str, Any]) -> None:
    from aiokafka import AIOKafkaConsumer

    leaving = Leaving()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=settings["bootstrap"],
        group_id=settings["group"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        metadata_max_age_ms=500,
        **assignors("aiokafka.coordinator.assignors", settings["client"]),
    )
    name = settings["topic"]
    consumer.subscribe(pattern=name) if name.startswith("^") else consumer.subscribe([name])
    await consumer.start()
    owned: list[Any] = []
    while not leaving.asked:
        got = await consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000))
        messages = [m for batch in got.values() for m in batch]
        now = sorted([p.topic, p.partition] for p in consumer.assignment())
        if now != owned:
            owned = now
            say("assigned", owned)
        if messages:
            say("records", [record(m) for m in messages])
            await consumer.commit()
            say("committed", len(messages))
    await consumer.stop()


def main() -> None:
    client, settings = sys.argv[1], json.loads(sys.argv[2])
    if client == "aiokafka":
        asyncio.run(run_aiokafka(settings))
    elif client == "kafka_python":
        run_kafka_python(settings)
    else:
        run_confluent_kafka(settings)


if __name__ == "__main__":
    main()
