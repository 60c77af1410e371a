"""Going back: a group that has read everything is put back to a moment, and reads the same records again.

Reading does not remove anything, so a replay harms nobody: other groups keep their own offsets.

    python examples/replay_from_time.py
"""

from time import time

from confluent_kafka import Consumer, Producer, TopicPartition

import tidelog

START = int(time() * 1000) - 60_000  # a minute ago, in milliseconds; each record below is a second later

with tidelog.Broker() as broker:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for second in range(10):
        producer.produce("readings", f"reading {second}", partition=0, timestamp=START + second * 1000)
    producer.flush()

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "report", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("readings", 0, 0)])
    first_time = [message.value().decode() for message in consumer.consume(10, timeout=30)]
    consumer.commit(asynchronous=False)
    print(f"read {len(first_time)}, last: {first_time[-1]}")

    [found] = consumer.offsets_for_times([TopicPartition("readings", 0, START + 7000)], timeout=30)
    consumer.seek(found)
    again = [message.value().decode() for message in consumer.consume(3, timeout=30)]
    print(f"from seven seconds past, offset {found.offset}: {', '.join(again)}")
    consumer.close()
