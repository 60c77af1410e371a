"""Exactly once: orders become invoices in transactions, by a program that dies half way and is started again.

The first instance dies with a transaction open: its successor takes the id, which aborts what was left. The second one
lives on as a zombie and tries to commit when a third is at work already: it is fenced. Whoever reads committed records
finds one invoice for every order.

    python examples/exactly_once.py
"""

from collections import Counter

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import tidelog

ORDERS = 30
BATCH = 4
SECONDS = 30


class Instance:
    """Reads orders, writes invoices, and commits how far it has read together with them."""

    def __init__(self, bootstrap: str) -> None:
        self.producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "invoicing-0", "log_level": 0})
        self.producer.init_transactions(SECONDS)
        self.consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "invoicing", "enable.auto.commit": False})
        [committed] = self.consumer.committed([TopicPartition("orders", 0)], SECONDS)
        self.next = max(committed.offset, 0)
        self.consumer.assign([TopicPartition("orders", 0, self.next)])

    def begin(self) -> None:
        """A transaction with the invoices of some orders. It is not committed yet."""
        self.producer.begin_transaction()
        for order in self.consumer.consume(min(BATCH, ORDERS - self.next), SECONDS):
            self.producer.produce("invoices", b"invoice for " + order.value())
            self.next = order.offset() + 1
        read = [TopicPartition("orders", 0, self.next)]
        self.producer.send_offsets_to_transaction(read, self.consumer.consumer_group_metadata(), SECONDS)
        self.producer.flush(SECONDS)

    def run(self, until: int) -> None:
        while self.next < until:
            self.begin()
            self.producer.commit_transaction(SECONDS)


def invoices(bootstrap: str, isolation: str) -> Counter:
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "audit",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    reader.assign([TopicPartition("invoices", 0, 0)])
    found: Counter = Counter()
    while (message := reader.poll(SECONDS)) is not None and message.error() is None:
        found[message.value()] += 1
    reader.close()
    return found


with tidelog.Broker() as broker:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made in admin.create_topics([NewTopic("orders", 1), NewTopic("invoices", 1)]).values():
        made.result()
    shop = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(ORDERS):
        shop.produce("orders", f"order {number}")
    shop.flush()

    first = Instance(broker.bootstrap)
    first.run(until=8)
    first.begin()
    print("the first instance dies with a transaction open")

    zombie = Instance(broker.bootstrap)
    zombie.run(until=16)
    zombie.begin()

    third = Instance(broker.bootstrap)
    third.run(until=ORDERS)
    try:
        zombie.producer.commit_transaction(SECONDS)
    except KafkaException as error:
        print(f"the second instance is a zombie, and fenced: {error.args[0].fatal()}")

    written = invoices(broker.bootstrap, "read_uncommitted")
    counted = invoices(broker.bootstrap, "read_committed")
    print(f"{sum(written.values())} invoices were written for {ORDERS} orders")
    print(f"committed: {len(counted)}, each once: {set(counted.values()) == {1}}")
    for instance in (first, zombie, third):
        instance.consumer.close()
