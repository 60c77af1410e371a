"""SQL over live topics, without a JVM: DuckDB reads what the broker has, as the codec decodes it.

Orders are JSON, so their fields are columns. Profiles are a table in a topic: of every key the latest record counts.

    pip install 'tidelog[sql]' confluent-kafka
    python examples/sql_over_topics.py
"""

import json

from confluent_kafka import Producer

import tidelog

ORDERS = [
    {"user": "ann", "product": "tea", "amount": 12.5},
    {"user": "bob", "product": "cup", "amount": 7.0},
    {"user": "ann", "product": "tea", "amount": 3.5},
    {"user": "eve", "product": "pot", "amount": 30.0},
]
PROFILES = [("ann", "Bonn"), ("bob", "Rome"), ("eve", "Oslo"), ("ann", "Lima"), ("eve", None)]


def main() -> None:
    with tidelog.Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for order in ORDERS:
            producer.produce("orders", json.dumps(order), key=order["user"])
        for user, city in PROFILES:
            producer.produce("profiles", None if city is None else json.dumps({"city": city}), key=user)
        producer.flush()

        by_product = tidelog.sql(
            "select product, sum(amount) as total from orders group by 1 order by 1", bootstrap=broker.bootstrap
        )
        print("by product:", by_product.fetchall())

        by_city = tidelog.sql(
            "select city, sum(amount) from orders join latest('profiles') p on p.key = user group by 1 order by 1",
            bootstrap=broker.bootstrap,
        )
        print("by city:", by_city.fetchall())

        first = tidelog.sql('select user, "offset" from orders where "offset" < 2', bootstrap=broker.bootstrap)
        print("the first two:", first.fetchall())


if __name__ == "__main__":
    main()
