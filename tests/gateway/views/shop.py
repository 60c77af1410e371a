"""A view of a small shop, as in life: a pipeline that writes its topic, an applier with a SQLite file, and readers."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from gateway.serving import SECONDS, Client
from tidelog.client.cluster import Cluster
from tidelog.client.security import Security
from tidelog.control.catalog import View
from tidelog.control.marks import Mark
from tidelog.schema.declaration import Declaration
from tidelog.views.applier import Applier
from tidelog.views.stores.opening import open_store
from views.writing import REVENUE, Pipeline, Rows, declare_view


class Shop:
    def __init__(self, cluster: Cluster, view: View, url: str) -> None:
        self.cluster = cluster
        self.view = view
        self.name = view.name
        self.url = url
        self.pipeline = Pipeline(cluster, view.generations[-1])
        self.now: dict[str, int] = {}

    def batch(self, rows: Rows) -> Mark:
        mark = self.pipeline.batch(rows)
        for product, revenue in rows.items():
            if revenue is None:
                self.now.pop(product, None)
            else:
                self.now[product] = revenue
        return mark

    def applied(self, mark: Mark) -> None:
        store = open_store(self.url, self.name)
        try:
            wait_for(lambda: store.shown() is not None and store.place(store.shown() or 0).ends == mark.ends)  # type: ignore[union-attr]
        finally:
            store.close()


@contextmanager
def shop(
    bootstrap: str,
    folder: Path,
    name: str,
    declared: Declaration = REVENUE,
    *,
    partitions: int = 1,
    applied: bool = True,
    security: Security | None = None,
    url: str | None = None,
    inputs: tuple[str, ...] = ("orders",),
) -> Iterator[Shop]:
    url = url or f"sqlite:///{folder}/{name}.db"
    with Cluster(bootstrap, security=security) as connected, Cluster(bootstrap, security=security) as appliers:
        view = declare_view(connected, name, declared, partitions=partitions, stores=(url,), inputs=inputs)
        made = Shop(connected, view, url)
        if not applied:
            yield made
            return
        applier = Applier(appliers, name, open_store(url, name), store_name="test", max_wait_ms=50)
        thread = threading.Thread(target=applier.run)
        thread.start()
        try:
            yield made
        finally:
            applier.stop()
            thread.join(SECONDS)


def wait_for(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.01)


class Event(NamedTuple):
    event: str
    data: Any
    id: str | None


class Follower:
    """Reads /changes as a browser would: events, and the last id that was seen, with or without one."""

    def __init__(
        self,
        client: Client,
        name: str,
        last_id: str | None = None,
        *,
        auth: str | None = None,
        patient: bool = True,
        room: str = "views",
        **query: str,
    ) -> None:
        self.last_id = last_id
        self.comments = 0
        self.connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=SECONDS)
        if not patient:
            # One whose own buffer is small, so that what it does not read stays with the gateway.
            self.connection.sock = socket.socket()
            self.connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            self.connection.sock.connect(("127.0.0.1", client.port))
            self.connection.sock.settimeout(SECONDS)
        headers = {} if last_id is None else {"Last-Event-ID": last_id}
        if auth is not None:
            headers["Authorization"] = auth
        path = f"/{room}/{name}/changes" + (f"?{urlencode(query)}" if query else "")
        self.connection.request("GET", path, headers=headers)
        self.answer = self.connection.getresponse()
        self.status = self.answer.status
        if self.status == 200:
            assert self.answer.getheader("Content-Type", "").startswith("text/event-stream")
            assert self.block() is None, "it says first where it begins"

    def block(self) -> Event | None:
        """The next one that is ended by an empty line; None of one without an event. EOFError at the end."""
        fields: dict[str, str] = {}
        while True:
            line = self.answer.readline()
            if not line:
                raise EOFError
            text = line.decode().rstrip("\n")
            if not text:
                break
            name, _, value = text.partition(":")
            self.comments += not name
            fields[name] = value.removeprefix(" ")
        if "id" in fields:
            self.last_id = fields["id"]
        if "data" not in fields:
            return None
        return Event(fields.get("event", "message"), json.loads(fields["data"]), fields.get("id"))

    def next(self) -> Event:
        while True:
            if (found := self.block()) is not None:
                return found

    def take(self, count: int) -> list[Event]:
        return [self.next() for _ in range(count)]

    def close(self) -> None:
        self.answer.close()
        self.connection.close()

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def fold(rows: dict[str, int], events: list[Event]) -> dict[str, int]:
    """What a reader has who puts and takes away as it is told."""
    for event in events:
        product = event.data["key"]["product"]
        if event.event == "leave":
            rows.pop(product, None)
        else:
            rows[product] = event.data["row"]["revenue"]
    return rows
