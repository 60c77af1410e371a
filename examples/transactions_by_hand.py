"""Transactions without a Kafka client: debits and credits that count together, written by several processes at once.

One process owns the transaction. It hands its identity to two workers, each of which writes to a partition of its own,
and commits when both are done. A transfer that fails half way leaves nothing behind, and an owner that another one has
replaced is told so.

    python examples/transactions_by_hand.py
"""

from concurrent.futures import ProcessPoolExecutor

import tidelog
from tidelog.client import LATEST, Cluster, Consumer, ProducerIdentity, Transactions, join, list_offsets, topics
from tidelog.errors import ProducerFenced


def write_interest(bootstrap: str, identity: ProducerIdentity, partition: int) -> int:
    """In a worker: part of a transaction that somebody else begins and ends."""
    with Cluster(bootstrap) as cluster, join(cluster, identity) as producer:
        for account in range(100):
            producer.send("credits", f"account {account}: interest".encode(), partition=partition)
    return 100


def committed(cluster: Cluster, topic: str) -> int:
    """How many records are there up to the present end, once nothing is open before it."""
    ends = list_offsets(cluster, dict.fromkeys(cluster.partitions(topic), LATEST))
    consumer = Consumer(cluster, read_committed=True)
    consumer.assign(dict.fromkeys(ends, 0))
    count = 0
    while any(consumer.positions[at] < end.offset for at, end in ends.items()):
        count += sum(len(list(fetched.rows())) for fetched in consumer.fetch())
    return count


def main() -> None:
    with tidelog.Broker() as broker, Cluster(broker.bootstrap) as cluster:
        topics.create(cluster, "debits", partitions=1)
        topics.create(cluster, "credits", partitions=2)
        bank = Transactions(cluster, "bank-1")
        bank.start()

        with bank.transaction() as producer:
            producer.send("debits", b"account 1: 100")
            producer.send("credits", b"account 2: 100")
        try:
            with bank.transaction() as producer:
                producer.send("debits", b"account 1: 999999")
                producer.flush()
                raise ValueError("account 1 has not so much")
        except ValueError as error:
            print(f"not transferred: {error}")

        bank.begin()
        identity = bank.hand_over()
        with ProcessPoolExecutor(2) as workers:
            written = sum(workers.map(write_interest, [broker.bootstrap] * 2, [identity] * 2, [0, 1]))
        bank.commit()
        print(f"two workers wrote {written} credits in one transaction")

        bank.begin()
        bank.producer.send("debits", b"account 3: 5")
        successor = Transactions(cluster, "bank-1")
        successor.start()
        try:
            bank.commit()
        except ProducerFenced:
            print("the old owner is fenced")
        with successor.transaction() as producer:
            producer.send("debits", b"account 3: 5")

        print(f"debits: {committed(cluster, 'debits')}, credits: {committed(cluster, 'credits')}")


if __name__ == "__main__":
    main()
