"""Two stores, written by hand, and through the log: a table and a full-text index that are to hold the same.

First two programs write to both, and their writes cross: each store has the last one that came, and that is not the
same one. Then a write fails half way. Nothing will ever repair either. At last the same changes go to a topic, which
both stores follow, each at its own pace: whatever happens on the way, they end equal.

    python examples/dual_writes.py

For PostgreSQL in place of the table give its URL: python examples/dual_writes.py 'postgresql://me:${PASSWORD}@host/db'
"""

import sqlite3
import sys
import tempfile

import tidelog
from tidelog.client import Cluster, Producer, topics
from tidelog.views import Applier, Ask, Editor, declare, encode, of_topic, open_store

STOCK = declare({"product": "string", "text": "string"}, ("product",))


# By hand --------------------------------------------------------------------------------------------------------------


def by_hand(folder: str) -> None:
    table = sqlite3.connect(f"{folder}/table.db", isolation_level=None)
    index = sqlite3.connect(f"{folder}/index.db", isolation_level=None, timeout=0)
    table.execute("CREATE TABLE stock (product PRIMARY KEY, text)")
    index.execute("CREATE VIRTUAL TABLE stock USING fts5(product UNINDEXED, text)")

    def to_table(product: str, text: str) -> None:
        table.execute("INSERT OR REPLACE INTO stock VALUES (?, ?)", (product, text))

    def to_index(product: str, text: str) -> None:
        index.execute("DELETE FROM stock WHERE product = ?", (product,))
        index.execute("INSERT INTO stock VALUES (?, ?)", (product, text))

    def show(what: str) -> None:
        rows = [dict(store.execute("SELECT product, text FROM stock ORDER BY 1")) for store in (table, index)]
        print(f"{what}: table {rows[0]}, index {rows[1]}, equal: {rows[0] == rows[1]}")

    to_table("tea", "green, says Ada")
    to_table("tea", "black, says Bob")
    to_index("tea", "black, says Bob")
    to_index("tea", "green, says Ada")  # hers was under way for longer
    show("a race")

    somebody = sqlite3.connect(f"{folder}/index.db", isolation_level=None)
    somebody.execute("BEGIN EXCLUSIVE")
    to_table("rum", "brown")
    try:
        to_index("rum", "brown")
    except sqlite3.OperationalError as error:
        print(f"the index says: {error}")
    somebody.execute("ROLLBACK")
    show("half a write")


# Through the log ------------------------------------------------------------------------------------------------------


def through_the_log(folder: str, table_url: str) -> None:
    index_url = f"sqlite+fts:///{folder}/views_index.db?columns=text"
    with tidelog.Broker() as broker, Cluster(broker.bootstrap) as cluster:
        topics.create(cluster, "stock", partitions=1)
        Editor(cluster, "stock").write(of_topic("stock", "stock", STOCK, 1, [table_url, index_url]))
        stores = {"table": open_store(table_url, "stock"), "index": open_store(index_url, "stock")}
        appliers = {name: Applier(cluster, "stock", store, store_name=name) for name, store in stores.items()}

        with Producer(cluster) as ada, Producer(cluster) as bob:
            for producer, product, text in (
                (bob, "tea", "black, says Bob"),
                (ada, "tea", "green, says Ada"),
                (ada, "rum", "brown"),
            ):
                key, value = encode(STOCK, {"product": product, "text": text})
                producer.send("stock", value, key=key)
                producer.flush()

        def catch_up(name: str) -> dict:
            while stores[name].shown() is None or len(stores[name].read(Ask()).rows) < 2:
                appliers[name].step()
            return {row["product"]: row["text"] for row in stores[name].read(Ask()).rows}

        table = catch_up("table")  # the index is away meanwhile, and comes later
        index = catch_up("index")
        print(f"through the log: table {table}, index {index}, equal: {table == index}")
        found = stores["index"].read(Ask(match="green"))
        print(f"green: {[row['product'] for row in found.rows]}, as of {dict(found.place.ends)}")
        for store in stores.values():
            store.close()


with tempfile.TemporaryDirectory() as folder:
    by_hand(folder)
    through_the_log(folder, sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/views_table.db")
