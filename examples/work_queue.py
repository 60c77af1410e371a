"""A queue: three workers share the jobs of one partition, one of them fails at a job, and every job is done.

Each job is given to one worker at a time. Who accepts it is done with it; who releases it gives it to the next one.

    python examples/work_queue.py
"""

from threading import Event, Thread

from confluent_kafka import AcknowledgeType, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

import tidelog

JOBS = 30
done: dict[str, str] = {}
released: list[str] = []
all_done = Event()


def work(worker: str, bootstrap: str) -> None:
    settings = {"bootstrap.servers": bootstrap, "group.id": "workers", "share.acknowledgement.mode": "explicit"}
    with ShareConsumer(settings) as consumer:
        consumer.subscribe(["jobs"])
        while not all_done.is_set():
            for message in consumer.poll(0.2):
                job = message.value().decode()
                if job == "job 7" and message.delivery_count() == 1:
                    released.append(job)
                    consumer.acknowledge(message, AcknowledgeType.RELEASE)  # not now; somebody will try again
                else:
                    done[job] = worker
                    consumer.acknowledge(message)
            consumer.commit_sync()
            if len(done) == JOBS:
                all_done.set()


with tidelog.Broker() as broker:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("jobs", 1)])["jobs"].result()
    # A share group begins with what comes after its first fetch, unless it is told otherwise.
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    group = ConfigResource(ResourceType.GROUP, "workers", incremental_configs=[entry])
    admin.incremental_alter_configs([group])[group].result()

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(JOBS):
        producer.produce("jobs", f"job {number}")
    producer.flush()

    workers = [Thread(target=work, args=(f"worker {number}", broker.bootstrap)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(f"{len(done)} jobs done, released and done by the next: {', '.join(released)}")
