"""One program, any broker: Tidelog here, Apache Kafka there, and not a line of it differs.

python examples/any_broker.py                     a Tidelog of its own
python examples/any_broker.py broker.example:9092  whatever listens there
"""

import sys
import uuid
from contextlib import ExitStack

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

import tidelog


def count_words(bootstrap: str, text: str) -> dict[str, int]:
    """Sends the words, keyed by themselves, over three partitions, and counts what a group of one reads back."""
    topic = f"words-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=3, config={"retention.ms": "3600000"})])[topic].result()
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    words = text.split()
    for word in words:
        producer.produce(topic, key=word, value=b"1")
    producer.flush()

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    counts: dict[str, int] = {}
    for message in consumer.consume(len(words), timeout=60):
        word = message.key().decode()
        counts[word] = counts.get(word, 0) + 1
    consumer.close()
    admin.delete_topics([topic])[topic].result()
    return counts


with ExitStack() as stack:
    address = sys.argv[1] if len(sys.argv) > 1 else stack.enter_context(tidelog.Broker()).bootstrap
    for word, count in sorted(count_words(address, "the tide comes and the tide goes").items()):
        print(word, count)
