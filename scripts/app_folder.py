"""Writes what an app leaves behind, to be kept and gone on with by every later version.

    python scripts/app_folder.py tests/data/apps/0.1.0.tar.xz

The archive has `app.py`, and what it came to after two micro-batches of each query: `data`, the broker's folder, with
topics, marks and the catalog; `checkpoints`, with Spark's own state and that of our operators; `views.db`, the store of
its views; and `holds.json`: the version that wrote it, the folder in which it did, and the rows of each view as JSON.

Spark writes the path of a checkpoint into it, where state is `transformWithState`'s: who unpacks an archive puts the
path of now in its place.

Run it when a version is tagged. What is kept is never written anew.
"""

from __future__ import annotations

import argparse
import json
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from data_folder import add_file, without_lock

from pipelines.app.driven import Driven, make_topic, produce
from tidelog import __version__, spark_session
from tidelog.broker.embedded import Broker
from tidelog.client.cluster import Cluster
from tidelog.control.marks import read_mark
from tidelog.pipelines.loading import load_app
from tidelog.schema.declaration import row_to_json
from tidelog.views.applier import Applier
from tidelog.views.stores.opening import open_store
from tidelog.views.stores.store import Ask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: dict[str, object] = {"tidelog.log.level": "ERROR"}
APP = '''"""The app of a shop, as it was when this version was tagged."""

from tidelog import App
from tidelog.pipelines.operators.aggregates import count, sum
from tidelog.pipelines.operators.windows.tumbling import tumbling

app = App("shop")
app.stream("orders", value="id long, product string, amount double, at timestamp", event_time="at")
app.table("prices", key="product", value="product string, price double")


@app.topic("big-orders", key="id")
def big_orders(orders):
    return orders.where("amount > 5")


@app.view("revenue", key="product")
def revenue(orders):
    from pyspark.sql import functions as F

    return orders.groupBy("product").agg(F.sum("amount").alias("revenue"), F.count("*").alias("orders"))


@app.view("hours", key=["product", "window_start"])
def hours(orders):
    kept = {"orders": count(), "paid": sum("amount")}
    return orders.transform(tumbling("1 hour", by="product", aggregates=kept, early=True)).drop("window_time")


@app.view("current-prices", key="product")
def current_prices(prices):
    return prices
'''
VIEWS = ("revenue", "hours", "current-prices")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("archive", type=Path, help="the .tar.xz file to write")
    archive: Path = parser.parse_args().archive
    if archive.exists():
        print(f"{archive} is there already, and what is kept is never written anew", file=sys.stderr)
        return 1
    archive.parent.mkdir(exist_ok=True)
    spark = spark_session("app_folder", cores=2, memory="1g")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "app.py").write_text(APP)
        with going(folder, spark) as app:
            make_topics(app.cluster)
            for turn in range(2):
                step(app, folder, turn)
            views = {view: app.said(view, app.view(view)) for view in VIEWS}
        kept_views = {view: list(rows.values()) for view, rows in views.items()}
        holds = {"version": __version__, "folder": name, "views": kept_views}
        with tarfile.open(archive, "w:xz") as tar:
            for kept in ("app.py", "data", "checkpoints", "views.db"):
                tar.add(folder / kept, kept, filter=without_lock)
            add_file(tar, "holds.json", json.dumps(holds, indent=1).encode())
    spark.stop()
    print(f"{archive}: {archive.stat().st_size} bytes")
    return 0


def unpack(archive: Path, folder: Path) -> dict[str, Any]:
    """What the archive is said to hold."""
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    holds: dict[str, Any] = json.loads((folder / "holds.json").read_text())
    for path in folder.glob("checkpoints/**/_metadata/*/*"):
        path.write_text(path.read_text().replace(holds["folder"], str(folder)))
    return holds


@contextmanager
def going(folder: Path, spark: SparkSession) -> Iterator[Driven]:
    """The app of a folder, on the broker of a folder."""
    with Broker(folder / "data", settings=SETTINGS) as broker, Cluster(broker.bootstrap) as cluster:
        yield Driven(load_app(str(folder / "app.py")), spark, cluster, broker.bootstrap, folder)


def make_topics(cluster: Cluster) -> None:
    """Kept for ever: an archive may be opened years later."""
    make_topic(cluster, "orders", 2, {"retention.ms": "-1"})
    make_topic(cluster, "prices", 1, {"retention.ms": "-1", "cleanup.policy": "compact"})


def step(app: Driven, folder: Path, turn: int) -> None:
    """A micro-batch of every query, applied to the store."""
    products = ("tea", "cup", "tea", "pot")
    orders = [
        {"id": 10 * turn + n, "product": one, "amount": 2.5 * (n + turn), "at": f"2026-03-01T{10 + turn}:0{n}:00Z"}
        for n, one in enumerate(products)
    ]
    produce(app.cluster, "orders", orders, key=[str(order["id"]) for order in orders])
    said = [{"product": "tea", "price": 1.5 + turn}, {"product": "cup", "price": 4.0} if turn == 0 else None]
    produce(app.cluster, "prices", said, key=["tea", "cup"])
    app.step()
    for view in VIEWS:
        apply(app, folder, view)


def apply(app: Driven, folder: Path, view: str) -> None:
    mark = read_mark(app.cluster, app.targets[view].sink)
    assert mark is not None
    with closing(open_store(f"sqlite:///{folder}/views.db", view)) as store:
        applier = Applier(app.cluster, view, store, store_name="sqlite", max_wait_ms=20)
        while (shown := store.shown()) is None or (place := store.place(shown)) is None or place.ends != mark.ends:
            applier.step()


def rows_in_store(app: Driven, folder: Path, view: str) -> list[dict[str, Any]]:
    declared = app.targets[view].declared
    assert declared is not None
    with closing(open_store(f"sqlite:///{folder}/views.db", view)) as store:
        return [row_to_json(declared, row) for row in store.read(Ask(limit=1000)).rows]


if __name__ == "__main__":
    sys.exit(main())
