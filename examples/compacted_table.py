"""A topic as a table: of every key the last record stays, and whoever reads from the beginning has the table.

Prices of three items change a thousand times; compaction leaves a few records. An item without a price is a tombstone:
a record with a null value. Times are short here so that there is something to see; by default compaction waits until
half of the topic is new.

    python examples/compacted_table.py
"""

from time import sleep

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import tidelog

QUICK = {"log.cleaner.backoff.ms": "100"}
TABLE = {"cleanup.policy": "compact", "max.compaction.lag.ms": "200", "min.cleanable.dirty.ratio": "0.01"}


def read(bootstrap: str) -> tuple[dict[str, str], int]:
    """The table, and how many records it took."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([TopicPartition("prices", 0, 0)])
    table, records = {}, 0
    while (message := consumer.poll(30)) is not None and message.error() is None:
        records += 1
        if message.value() is None:
            table.pop(message.key().decode(), None)
        else:
            table[message.key().decode()] = message.value().decode()
    consumer.close()
    return table, records


with tidelog.Broker(settings=QUICK) as broker:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("prices", 1, config=TABLE)])["prices"].result()

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for price in range(1000):
        producer.produce("prices", str(price), ("apple", "pear", "quince")[price % 3])
    producer.produce("prices", None, "quince")
    producer.flush()

    table, records = read(broker.bootstrap)
    print(f"before: {table} from {records} records")
    while records > 3:
        sleep(0.2)
        table, records = read(broker.bootstrap)
    print(f"after: {table} from {records} records")
