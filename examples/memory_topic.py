"""What an ack means is chosen per topic: on disk, which is the default, or in memory.

A topic with `tidelog.durability=memory` acks from the page cache, as Apache Kafka does on one node. It survives a crash
of the broker but not a power cut. The setting is shown by DescribeConfigs, and by `tidelog topics describe`.

    python examples/memory_topic.py
"""

from time import perf_counter

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

import tidelog

with tidelog.Broker() as broker:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = [NewTopic("payments", 1), NewTopic("clicks", 1, config={"tidelog.durability": "memory"})]
    for created in admin.create_topics(topics).values():
        created.result()

    for topic in ("payments", "clicks"):
        resource = ConfigResource("topic", topic)
        durability = admin.describe_configs([resource])[resource].result()["tidelog.durability"].value
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
        producer.produce(topic, b"warm up")
        producer.flush()
        started = perf_counter()
        for _ in range(100):
            producer.produce(topic, b"one record, one ack")
            producer.flush()
        print(f"{topic}: an ack means {durability}, {(perf_counter() - started) * 10:.2f} ms each, one at a time")
