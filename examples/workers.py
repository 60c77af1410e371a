"""Workers: jobs are done by three threads, one is tried again, one is given up, and one comes later.

A worker calls a function for each job. A function that returns has done its job; one that raises gets it again, here
at once; one that raises Reject gives it up, and it is kept as a dead letter.

    python examples/workers.py
"""

from threading import Lock

import tidelog
from tidelog.client import Cluster, Consumer

said: list[str] = []
lock = Lock()


def deliver(job: tidelog.Job) -> None:
    person = (job.value or b"").decode()
    if person == "nobody":
        raise tidelog.Reject("there is no such person")
    if person == "Bob" and job.delivery_count == 1:
        raise ConnectionError("the mail server is away")
    with lock:
        said.append(f"{person}, delivery {job.delivery_count}")


with tidelog.Broker() as broker:
    with tidelog.JobSender(broker.bootstrap) as jobs:
        jobs.send("mail", "Eve", delay_s=1)
        for person in ("Ada", "Bob", "nobody", "Cleo"):
            jobs.send("mail", person)

    workers = tidelog.worker(
        deliver,
        topic="mail",
        group="mailers",
        workers=3,
        backoff_s=0,
        dead_letters="dlq.mail",
        bootstrap=broker.bootstrap,
    )
    workers.drain()  # a service calls run(), which ends with SIGTERM
    print("delivered:", "; ".join(sorted(said)))
    print("the last one:", said[-1])

    with Cluster(broker.bootstrap) as cluster:
        consumer = Consumer(cluster)
        consumer.assign(dict.fromkeys(cluster.partitions("dlq.mail"), 0))
        letters = [row.value for fetched in consumer.fetch() for row in fetched.rows()]
    print("dead letters:", letters)
