"""A broker from Python, one topic, one producer, one consumer: the shortest way from nothing to a record read back.

pip install /path/to/tidelog confluent-kafka
python examples/hello_broker.py
"""

from confluent_kafka import Consumer, Producer

import tidelog

with tidelog.Broker() as broker:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for word in ("hello", "durable", "world"):
        producer.produce("greetings", word.encode())
    producer.flush()  # returns when all three are on disk: that is what an ack means here

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["greetings"])
    for message in consumer.consume(3, timeout=30):
        print(f"offset {message.offset()}: {message.value().decode()}")
    consumer.close()
