"""How long an answer takes: of a view, whose store is read, and of the operator behind it, by its micro-batch.

    python -m bench.views.asking [--questions 200] [--items 1000] [--trigger "100 milliseconds"]

One app (`asked_app.py`) run by `tidelog run`, one broker with its HTTP server, one asker with one connection at a time.
Both are asked for the same keys, after all rows are in the view. Prints p50 and p99 in milliseconds, as JSON. Questions
to the operator come one after the other: each waits for the end of a micro-batch that runs, and for the next one.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import quantiles
from typing import Any

import tidelog
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer
from tidelog.views.asking import Pipeline, ask

APP = Path(__file__).parent / "asked_app.py"
PATIENCE_S = 600.0


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    words.add_argument("--questions", type=int, default=200)
    words.add_argument("--items", type=int, default=1000)
    words.add_argument("--trigger", default="100 milliseconds")
    given = words.parse_args()
    settings = {"tidelog.http.listener": "127.0.0.1:0"}
    with (
        tempfile.TemporaryDirectory() as folder,
        tidelog.Broker(settings=settings) as broker,
        Cluster(broker.bootstrap) as cluster,
    ):
        fill(cluster, given.items)
        run = started(broker.bootstrap, folder, given.trigger)
        try:
            found = measured(broker, cluster, given.questions, given.items)
        finally:
            run.terminate()
            run.wait()
    print(json.dumps({"cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1), **vars(given), **found}, indent=2))


def fill(cluster: Cluster, items: int) -> None:
    topics.create(cluster, "prices", partitions=1)
    with Producer(cluster) as producer:
        for number in range(items):
            producer.send("prices", json.dumps({"item": str(number), "price": number}).encode())


def started(bootstrap: str, folder: str, trigger: str) -> subprocess.Popen[bytes]:
    words = ["--bootstrap", bootstrap, "--memory", "1g", "--checkpoints", f"{folder}/checkpoints", "--trigger", trigger]
    words += ["--store", f"sqlite:///{folder}/views.db"]
    quiet = {"stderr": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    return subprocess.Popen([sys.executable, "-m", "tidelog", "run", str(APP), *words], **quiet)


def measured(broker: tidelog.Broker, cluster: Cluster, questions: int, items: int) -> dict[str, Any]:
    host = broker.http.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=PATIENCE_S)

    def view(number: int) -> int:
        connection.request("GET", f"/views/latest?key={number % items}")
        return _status(connection)

    def operator(number: int) -> int:
        body = json.dumps({"key": str(number % items)})
        connection.request("POST", "/pipelines/latest/ask?timeout=25", body, {"Content-Type": "application/json"})
        return _status(connection)

    def by_topics(number: int) -> int:
        ask(cluster, Pipeline("asked", "latest"), str(number % items), timeout_s=PATIENCE_S)
        return 200

    until(lambda: view(items - 1) == 200)
    until(lambda: operator(items - 1) == 200)
    few = max(questions // 4, 1)
    return {
        "view over HTTP": figures([taken(lambda n=n: view(n)) for n in range(questions)]),
        "operator over HTTP": figures([taken(lambda n=n: operator(n)) for n in range(few)]),
        "operator by topics": figures([taken(lambda n=n: by_topics(n)) for n in range(few)]),
    }


def _status(connection: http.client.HTTPConnection) -> int:
    answer = connection.getresponse()
    answer.read()
    return answer.status


def taken(asked: Callable[[], int]) -> float:
    begin = time.perf_counter()
    status = asked()
    assert status == 200, status
    return (time.perf_counter() - begin) * 1000


def figures(times: list[float]) -> dict[str, float]:
    cuts = quantiles(times, n=100, method="inclusive") if len(times) > 1 else times * 99
    return {"asked": len(times), "p50_ms": round(cuts[49], 1), "p99_ms": round(cuts[98], 1)}


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.5)


if __name__ == "__main__":
    main()
