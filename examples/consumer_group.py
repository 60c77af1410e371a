"""Load balancing and fan-out at once: two workers of one group share the partitions, a second group sees everything.

The first worker leaves half way; the group gives its partitions to the one that stays, which goes on from the offsets
that were committed. Nothing is lost, and nothing that was committed is seen again.

    python examples/consumer_group.py
"""

from collections import Counter

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

import tidelog

COUNT = 40


def member(bootstrap: str, group: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["jobs"])
    return consumer


def work(consumer: Consumer, seen: Counter, name: str) -> None:
    """Takes one record, if there is one just now, and commits it once it is done."""
    message = consumer.poll(0.1)
    if message is not None and message.error() is None:
        seen[name, message.value()] += 1
        consumer.commit(message, asynchronous=False)


with tidelog.Broker() as broker:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("jobs", num_partitions=4)])["jobs"].result()
    seen: Counter = Counter()
    first, second, audit = (member(broker.bootstrap, group) for group in ("workers", "workers", "audit"))
    while not first.assignment() or not second.assignment():
        work(first, seen, "workers")
        work(second, seen, "workers")
    print(f"shared: {len(first.assignment())} + {len(second.assignment())} partitions")

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(COUNT):
        producer.produce("jobs", f"job {number}", partition=number % 4)
    producer.flush()
    for _ in range(5):
        work(first, seen, "workers")
        work(second, seen, "workers")

    first.close()
    while len(seen) < 2 * COUNT or len(second.assignment()) < 4:
        work(second, seen, "workers")
        work(audit, seen, "audit")
    print(f"after one left: {len(second.assignment())} partitions")
    print(f"workers and audit have each seen {COUNT} jobs, none twice: {set(seen.values()) == {1}}")
    second.close()
    audit.close()
