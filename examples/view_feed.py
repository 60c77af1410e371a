"""A view over HTTP: read once, then kept up to date by its changes, with a connection that breaks in between.

Whoever shows a view on a screen reads it, and follows its changes from the `cursor` that came with the rows. Each event
has a place of its own; a browser's EventSource sends the last one by itself when it comes back. Nothing is missed,
nothing comes twice.

    python examples/view_feed.py
"""

import json
import tempfile
import urllib.request
from collections.abc import Iterator

import tidelog
from tidelog.client import Cluster, Producer, topics
from tidelog.views import Applier, Editor, declare, encode, of_topic, open_store

STOCK = declare({"product": "string", "count": "long"}, ("product",))


def write(cluster: Cluster, **counts: int) -> None:
    with Producer(cluster) as producer:
        for product, count in counts.items():
            key, value = encode(STOCK, {"product": product, "count": count})
            producer.send("stock", value, key=key)


def events(url: str, last: str) -> Iterator[tuple[str, str, dict]]:
    """Place, kind and content of each event, as a browser's EventSource has them."""
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Last-Event-ID": last})) as answer:
        fields: dict[str, str] = {}
        for line in answer:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                fields[name] = value
            elif "data" in fields:
                yield fields["id"], fields["event"], json.loads(fields["data"])
                fields = {}


with tempfile.TemporaryDirectory() as folder:
    store_url = f"sqlite:///{folder}/stock.db"
    settings = {"tidelog.http.listener": "127.0.0.1:0"}
    with tidelog.Broker(settings=settings) as broker, Cluster(broker.bootstrap) as cluster:
        topics.create(cluster, "stock", partitions=1)
        Editor(cluster, "stock").write(of_topic("stock", "stock", STOCK, 1, [store_url]))
        write(cluster, tea=3, rum=1)
        applier = Applier(cluster, "stock", open_store(store_url, "stock"), store_name="example")
        while applier.figures()["rows"] < 2:
            applier.step()

        view = f"{broker.http}/views/stock"
        with urllib.request.urlopen(view) as answer:
            page = json.load(answer)
        shown = {row["product"]: row["count"] for row in page["rows"]}
        print("read:", shown)

        write(cluster, tea=2, milk=7)
        place, kind, content = next(events(f"{view}/changes", page["cursor"]))
        print(kind, content["row"])
        shown[content["row"]["product"]] = content["row"]["count"]

        # The connection was lost, in the middle of it. Here is another.
        write(cluster, tea=1)
        for _, kind, content in events(f"{view}/changes", place):
            print(kind, content["row"])
            shown[content["row"]["product"]] = content["row"]["count"]
            if shown["tea"] == 1:
                break
        print("shown:", dict(sorted(shown.items())))

        # Of a query: a row that does not match leaves, also where it never was one. Who does not have it ignores that.
        many = events(f"{view}/changes?where=count%20%3E%205", page["cursor"])
        for _, kind, content in (next(many), next(many)):
            print("above 5:", kind, content["key"]["product"])
