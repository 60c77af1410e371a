"""Producers that are faster than their consumers, three ways: keep all, drop the oldest, or wait for a group.

The topics differ in one setting, `tidelog.overload.policy`. What `drop` took from each group is counted. Under `block`
the producer sends as fast as it likes, and is slowed down to the group `billing` without an error.

    python examples/overload.py
"""

import json
import time
from threading import Thread

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import tidelog

RECORDS = 3000
DROP = {"tidelog.overload.policy": "drop", "tidelog.overload.records": "1000"}
BLOCK = {
    "tidelog.overload.policy": "block",
    "tidelog.overload.records": "500",
    "tidelog.overload.groups": "billing",
}


def write(bootstrap: str, topic: str) -> int:
    """Sends all of them, and returns how many were not acked."""
    failed = []
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 100, "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce(topic, str(number), on_delivery=lambda error, _: failed.append(error) if error else None)
        producer.poll(0)
    producer.flush()
    return len(failed)


def lost(bootstrap: str) -> str:
    """What the broker tells of it in a topic of its own."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    reader.assign([TopicPartition("__tidelog.warnings", 0, 0)])
    told = {}
    while told.get("records") != RECORDS - 1000:
        message = reader.poll(1)
        if message is not None and message.error() is None and message.value() is not None:
            told = json.loads(message.value())
    reader.close()
    return ", ".join(f"{group} lost {loss[0]}" for group, loss in told["lost"].items())


def main() -> None:
    with tidelog.Broker(settings={"tidelog.log.level": "ERROR"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        topics = [NewTopic("all", 1), NewTopic("latest", 1, config=DROP), NewTopic("orders", 1, config=BLOCK)]
        for created in admin.create_topics(topics).values():
            created.result()
        billing = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"}
        )
        billing.commit(offsets=[TopicPartition("latest", 0, 0)], asynchronous=False)

        for topic in ("all", "latest"):
            print(f"{topic}: {write(broker.bootstrap, topic)} of {RECORDS} failed")
        print(f"latest: {lost(broker.bootstrap)}")

        billing.subscribe(["orders"])
        most, stop = 0, False

        def read_slowly() -> None:
            nonlocal most
            while not stop:
                messages = billing.consume(100, 0.1)
                if messages:
                    billing.commit(asynchronous=False)
                    behind = billing.get_watermark_offsets(TopicPartition("orders", 0), cached=True)[1]
                    most = max(most, behind - (messages[-1].offset() or 0))
                    time.sleep(0.1)  # the work

        reading = Thread(target=read_slowly)
        reading.start()
        failed = write(broker.bootstrap, "orders")
        stop = True
        reading.join()
        billing.close()
        print(f"orders: {failed} of {RECORDS} failed, and billing was never more than {most // 1000 + 1},000 behind")


if __name__ == "__main__":
    main()
