"""One view's changes to many who follow it over HTTP: `python -m bench.views.feed_fanout [--subscribers N] [...]`.

A broker, a gateway, a writer and one process that holds all subscribers' sockets, on one machine. A change carries the
time at which its micro-batch began to be written, so a delay has the transaction and its syncs in it. Printed as JSON:

    delivered_per_s    events that all subscribers got, by the time from the first to the last
    delay_ms           p50, p99 and worst of all events, from write to receipt
    gateway            CPU seconds, of the run alone, and resident memory before and after
"""

from __future__ import annotations

import argparse
import json
import re
import selectors
import socket
import tempfile
import time
from array import array
from multiprocessing import Pipe, Process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench.repository import find_parts_of_tests

SENT = re.compile(rb'"sent_us":(\d+)')
PATIENCE_S = 120.0
RECEIVE_BYTES = 256 << 10
FOLLOWED = "fanout"


def main() -> None:
    find_parts_of_tests()  # the view is written as the tests write it
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--subscribers", type=int, default=1000)
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--changes", type=int, default=10, help="in a micro-batch")
    parser.add_argument("--batches-per-s", type=float, default=10.0)
    parser.add_argument("--where", help="an expression that all follow")
    print(json.dumps(run(parser.parse_args()), indent=1))


def run(asked: argparse.Namespace) -> dict[str, Any]:
    import tidelog
    from gateway.serving import GatewayProcess

    with tempfile.TemporaryDirectory() as folder, tidelog.Broker(Path(folder) / "data") as broker:
        pipeline = _view(broker.bootstrap)
        gateway = GatewayProcess(broker.bootstrap, Path(folder) / "log")
        mine, theirs = Pipe()
        wanted = asked.subscribers * asked.batches * asked.changes
        reader = Process(target=_receive, args=(gateway.client.port, asked.subscribers, wanted, asked.where, theirs))
        reader.start()
        try:
            return _measured(asked, pipeline, gateway.process.pid, mine)
        finally:
            reader.join(PATIENCE_S)
            reader.kill()
            gateway.stop()


def _view(bootstrap: str) -> Any:
    from tidelog.client.cluster import Cluster
    from tidelog.schema.declaration import declare
    from views.writing import Pipeline, declare_view

    cluster = Cluster(bootstrap)
    view = declare_view(cluster, FOLLOWED, declare({"id": "long", "sent_us": "long"}, ("id",)))
    return Pipeline(cluster, view.generations[0])


def _measured(asked: argparse.Namespace, pipeline: Any, pid: int, results: Connection) -> dict[str, Any]:
    from bench.broker.process import cpu_seconds, resident_bytes

    from tidelog.views.changes import encode

    assert results.poll(PATIENCE_S) and results.recv() == "connected"
    before = cpu_seconds(pid), resident_bytes(pid)
    began = time.monotonic()
    for number in range(asked.batches):
        time.sleep(max(0.0, began + number / asked.batches_per_s - time.monotonic()))
        sent_us = time.time_ns() // 1000
        pipeline.owner.begin()
        rows = [{"id": one, "sent_us": sent_us} for one in range(asked.changes)]
        pipeline.last = pipeline.write_encoded([encode(pipeline.generation.declared, row) for row in rows])
        pipeline.owner.commit()
    assert results.poll(PATIENCE_S), "not all events came"
    count, seconds, delays = results.recv()
    return {
        "subscribers": asked.subscribers,
        "events": count,
        "delivered_per_s": round(count / seconds),
        "written_per_s": round(asked.batches * asked.changes / seconds, 1),
        "delay_ms": delays,
        "gateway": {
            "cpu_s": round(cpu_seconds(pid) - before[0], 2),
            "cpu_us_per_event": round((cpu_seconds(pid) - before[0]) / count * 1e6, 2),
            "resident_mb_before": before[1] >> 20,
            "resident_mb_after": resident_bytes(pid) >> 20,
        },
    }


def _receive(port: int, subscribers: int, wanted: int, where: str | None, results: Connection) -> None:
    from urllib.parse import quote

    query = f"?where={quote(where)}" if where else ""
    request = f"GET /views/{FOLLOWED}/changes{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    selector = selectors.DefaultSelector()
    for _ in range(subscribers):
        connected = socket.create_connection(("127.0.0.1", port))
        connected.sendall(request)
        head = connected.recv(RECEIVE_BYTES)
        assert head.startswith(b"HTTP/1.1 200"), head
        selector.register(connected, selectors.EVENT_READ, bytearray())
    results.send("connected")
    delays, first, last = array("d"), 0, 0
    while len(delays) < wanted:
        for key, _ in selector.select():
            delays.extend(_delays(key.fileobj, key.data))  # type: ignore[arg-type]
        last = time.monotonic_ns()
        first = first or (last if delays else 0)
    ordered = sorted(delays)
    shown = {name: round(ordered[int(share * (len(ordered) - 1))], 1) for name, share in SHARES.items()}
    results.send((len(delays), max(last - first, 1) / 1e9, shown))


SHARES = {"p50": 0.5, "p99": 0.99, "worst": 1.0}


def _delays(connected: socket.socket, held: bytearray) -> list[float]:
    """In milliseconds, of the events that have come whole."""
    held += connected.recv(RECEIVE_BYTES)
    now = time.time_ns() // 1000
    whole = held.rfind(b"\n\n")
    found = [(now - int(sent)) / 1000 for sent in SENT.findall(held, 0, max(whole, 0))]
    del held[: max(whole, 0)]
    return found


if __name__ == "__main__":
    main()
