"""Notification, not polling: a consumer at the end of a topic waits in the broker, and the next record wakes it.

Its request lies in the broker until there is something to answer, so waiting costs next to nothing, and a record is
seen as soon as it is on disk.

    python examples/waiting_consumer.py
"""

from statistics import median
from threading import Thread
from time import perf_counter, sleep

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import tidelog

COUNT = 20


def wait_for_alarms(bootstrap: str, waited_ms: list[float]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "watch"})
    consumer.assign([TopicPartition("alarms", 0, 0)])
    while len(waited_ms) < COUNT:
        message = consumer.poll(30)
        if message is not None and message.error() is None:
            waited_ms.append((perf_counter() - float(message.value())) * 1000)
    consumer.close()


with tidelog.Broker() as broker:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("alarms", 1)])["alarms"].result()
    waited_ms: list[float] = []
    watcher = Thread(target=wait_for_alarms, args=(broker.bootstrap, waited_ms))
    watcher.start()

    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for _ in range(COUNT):
        sleep(0.05)
        producer.produce("alarms", str(perf_counter()))
        producer.flush()
    watcher.join()
    print(f"woken {len(waited_ms)} times, {median(waited_ms):.1f} ms after the record was sent (median)")
