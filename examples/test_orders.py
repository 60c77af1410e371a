"""Testing code that talks to Kafka, with a real broker per test and no container.

The fixture `tidelog_broker` comes with the package: a fresh broker in a temporary folder, ready when the test begins.

    pip install /path/to/tidelog confluent-kafka pytest
    pytest examples/test_orders.py
"""

import json

from confluent_kafka import Consumer, Producer


def place_order(bootstrap: str, order: dict[str, object]) -> None:
    """The code under test, as it may stand in any application."""
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("orders", key=str(order["id"]), value=json.dumps(order))
    assert producer.flush(30) == 0


def read_orders(bootstrap: str, count: int) -> list[dict[str, object]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    try:
        return [json.loads(message.value()) for message in consumer.consume(count, timeout=30)]
    finally:
        consumer.close()


def test_an_order_reaches_billing(tidelog_broker):
    place_order(tidelog_broker.bootstrap, {"id": 7, "item": "lamp"})
    assert read_orders(tidelog_broker.bootstrap, 1) == [{"id": 7, "item": "lamp"}]


def test_each_test_has_a_broker_of_its_own(tidelog_broker):
    place_order(tidelog_broker.bootstrap, {"id": 8, "item": "chair"})
    assert read_orders(tidelog_broker.bootstrap, 1) == [{"id": 8, "item": "chair"}]
