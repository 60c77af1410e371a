"""Who looks at a view's stores while everything about them is killed, and holds what they show against the input.

`Input` has every order that was written, by partition, in the order of its offsets; `after(sources)` is the batch query
over what a mark says was read. `Looker` reads each store again and again, in a thread of its own: whatever it sees must
be the view after exactly the mark that it sees with it, and no mark may go back.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from hashlib import sha256
from random import Random
from threading import Event, Thread

from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer
from tidelog.control.marks import Ends, Mark
from tidelog.errors import Disconnected, NotShown, StorageError
from tidelog.schema.declaration import Row
from tidelog.views.stores.opening import open_store, scheme_of
from tidelog.views.stores.store import PAGE_ROWS_MAX, Ask, Page, Store

TOPIC, VIEW = "orders", "sums"
SOURCES = 2
PRODUCTS = 12
BETWEEN_LOOKS_S = 0.02
WITHOUT_TRANSACTIONS = ("opensearch+http",)

Rows = dict[str, Row]
Where = tuple[tuple[TopicPartition, int], ...]


class Input:
    """Written by one thread, read by all: lists only grow."""

    def __init__(self, random: Random) -> None:
        self.orders: list[list[tuple[int, str, int]]] = [[] for _ in range(SOURCES)]
        self._random = random
        self._count = 0
        self.after = cache(self._after)

    def write(self, cluster: Cluster, count: int, *, product: str | None = None, amount: int | None = None) -> None:
        """To partitions by chance. It returns when all of them are there."""
        with Producer(cluster) as producer:
            for _ in range(count):
                at = self._random.randrange(SOURCES)
                name = product or f"p{self._random.randrange(PRODUCTS)}"
                order = (self._count, name, self._random.randrange(100) if amount is None else amount)
                value = dict(zip(("id", "product", "amount"), order, strict=True))
                self.orders[at].append(order)  # first: it may be in the view before this goes on
                producer.send(TOPIC, json.dumps(value).encode(), partition=at)
                self._count += 1

    @property
    def ends(self) -> Where:
        return tuple((TopicPartition(TOPIC, at), len(orders)) for at, orders in enumerate(self.orders))

    def _after(self, sources: Where) -> Rows:
        rows: Rows = {}
        for at, end in sources:
            for number, product, amount in self.orders[at.partition][:end]:
                if amount > 0:
                    _add(rows, number, product, amount)
        return rows


def _add(rows: Rows, number: int, product: str, amount: int) -> None:
    row: dict[str, int | str] = rows.setdefault(product, {"product": product, "revenue": 0, "orders": 0, "newest": 0})  # type: ignore[assignment]
    row["revenue"] = int(row["revenue"]) + amount
    row["orders"] = int(row["orders"]) + 1
    row["newest"] = max(int(row["newest"]), number)


def in_order(offsets: Ends) -> Where:
    return tuple(sorted(offsets.items()))


def rows_of(page: Page) -> Rows:
    return {str(row["product"]): dict(row) for row in page.rows}


def hash_of(rows: Mapping[str, Row]) -> str:
    return sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


class Looker:
    """`faults` has what must not be; `marks` at which each store was seen. Of a store that has no transactions part of
    a micro-batch may be seen: only its marks are looked at, and its rows when all has come to rest.
    """

    def __init__(self, given: Input, urls: Iterable[str]) -> None:
        self.faults: list[str] = []
        self.marks: dict[str, set[int]] = {url: set() for url in urls}
        self.newest: dict[str, Mark] = {}
        self.hashes: dict[Where, dict[str, str]] = {}
        self._given = given
        self._stores: dict[str, Store] = {}
        self._ended = Event()
        self._thread = Thread(target=self._look_on, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()
        for store in self._stores.values():
            store.close()

    def _look_on(self) -> None:
        while not self._ended.is_set():
            for url in self.marks:
                try:
                    self._look(url)
                except Exception as error:  # in a thread that nobody reads from
                    self.faults.append(f"{scheme_of(url)}: {error!r}")
                time.sleep(BETWEEN_LOOKS_S)

    def _look(self, url: str) -> None:
        if url not in self._stores:
            self._stores[url] = open_store(url, VIEW)
        with suppress(NotShown, Disconnected, StorageError):  # its server was killed
            self._check(url, self._stores[url].read(Ask(limit=PAGE_ROWS_MAX)))

    def _check(self, url: str, page: Page) -> None:
        mark, rows = page.place.mark, rows_of(page)
        sources = () if mark is None else in_order(mark.sources.offsets)
        if scheme_of(url) not in WITHOUT_TRANSACTIONS:
            if rows != self._given.after(sources):
                self.faults.append(f"{scheme_of(url)} at {mark} has {rows}, and not {self._given.after(sources)}")
            self.hashes.setdefault(in_order(page.place.ends), {})[url] = hash_of(rows)
        if mark is not None:
            before = self.newest.get(url)
            if before is not None and mark.batch_id < before.batch_id:
                self.faults.append(f"{scheme_of(url)} was at batch {before.batch_id}, and is at {mark.batch_id}")
            self.newest[url] = mark
            self.marks[url].add(mark.batch_id)

    @property
    def different(self) -> dict[Where, dict[str, str]]:
        """Stores that were seen at equal offsets with different rows."""
        return {where: seen for where, seen in self.hashes.items() if len(set(seen.values())) > 1}

    def reached(self, sources: Where) -> bool:
        return all(url in self.newest and in_order(self.newest[url].sources.offsets) == sources for url in self.marks)
