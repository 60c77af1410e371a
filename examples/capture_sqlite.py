"""A database becomes topics: every row that is there, then every change, once and in order.

The database is a SQLite file, so nothing has to be installed or started. A program writes to it as it always did. The
capture reads its rows, and follows its changes; a second one goes on where the first has ended.

    python examples/capture_sqlite.py
"""

import json
import sqlite3
import tempfile

import tidelog
from tidelog.client import EARLIEST, LATEST, Cluster, Consumer, TopicPartition, list_offsets

folder = tempfile.mkdtemp()
shop = sqlite3.connect(f"{folder}/shop.db", isolation_level=None)
shop.execute("PRAGMA journal_mode = WAL")
shop.execute("CREATE TABLE stock (product TEXT PRIMARY KEY, count INTEGER)")
shop.execute("INSERT INTO stock VALUES ('rum', 3), ('tea', 7)")


def captured(bootstrap: str) -> None:
    tidelog.capture(f"sqlite:///{folder}/shop.db", prefix="shop", bootstrap=bootstrap).catch_up()


def changes(bootstrap: str) -> list[dict]:
    """What any consumer of committed records sees."""
    with Cluster(bootstrap) as cluster:
        at = TopicPartition("shop.main.stock", 0)
        consumer = Consumer(cluster, read_committed=True)
        consumer.assign({at: list_offsets(cluster, {at: EARLIEST})[at].offset})
        end, found = list_offsets(cluster, {at: LATEST})[at].offset, []
        while consumer.positions[at] < end:
            found += [row.value for fetched in consumer.fetch() for row in fetched.rows()]
        return [json.loads(value) for value in found if value is not None]


with tidelog.Broker(f"{folder}/data") as broker:
    captured(broker.bootstrap)
    with shop:
        shop.execute("BEGIN")
        shop.execute("UPDATE stock SET count = count - 1 WHERE product = 'tea'")
        shop.execute("INSERT OR REPLACE INTO stock VALUES ('milk', 12)")
        shop.execute("DELETE FROM stock WHERE product = 'rum'")
    captured(broker.bootstrap)

    table = {}
    for change in changes(broker.bootstrap):
        before, after = change["before"], change["after"]
        print(change["op"], before, "->", after)
        if before is not None:
            del table[before["product"]]
        if after is not None:
            table[after["product"]] = after["count"]
    print("the topic:", table)
    print("the table:", dict(shop.execute("SELECT * FROM stock ORDER BY product")))
