"""An app: a derived topic and a view of a stream of orders, declared by two small functions.

tidelog run examples/shop_app.py            keeps both up to date, with the view in ./tidelog-views/shop.db
tidelog plan examples/shop_app.py           shows what would run, without Spark
python examples/shop_app.py                 fills a topic of a broker of its own, and shows the view as a batch

Needs `pip install 'tidelog[spark]'` and nothing else but Java 17.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog import App

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

app = App("shop")
app.stream("orders", value="id long, product string, amount double")


@app.topic("big-orders", key="id")
def big_orders(orders: DataFrame) -> DataFrame:
    return orders.where("amount > 100")


@app.view("revenue", key="product")
def revenue(orders: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return orders.groupBy("product").agg(F.sum("amount").alias("revenue"), F.count("*").alias("orders"))


if __name__ == "__main__":
    import json

    import tidelog
    from tidelog.cli.main import main
    from tidelog.client import Cluster, Producer, topics

    with tidelog.Broker() as broker:
        with Cluster(broker.bootstrap) as cluster, Producer(cluster) as producer:
            topics.create(cluster, "orders", partitions=2)
            for number, (product, amount) in enumerate([("tea", 30.0), ("cup", 120.0), ("tea", 110.0)]):
                order = {"id": number, "product": product, "amount": amount}
                producer.send("orders", json.dumps(order).encode(), key=product.encode())
        main(["run", __file__, "--bootstrap", broker.bootstrap, "--batch", "--show", "--memory", "1g"])
