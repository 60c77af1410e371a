"""Each view against its batch query: the log read once more, up to where the view says that it is, without Spark.

    view         rows of the store, and the mark that they are at: which offsets of which topics went into them
    batch        the records of the topics up to these offsets, folded by a few lines of plain Python
    differences  keys whose rows are not the same, each with both rows; none: the view is equal

It reads a log from its beginning; where retention has cut the past it says so instead of comparing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.client.offsets import EARLIEST, list_offsets
from tidelog.control.marks import Ends
from tidelog.control.reading import read
from tidelog.demo.shop import DELIVERIES, LATENESS_S, ORDERS
from tidelog.errors import NotShown, UsageError
from tidelog.schema.declaration import Declaration, Key, row_to_json
from tidelog.views.stores.opening import open_store
from tidelog.views.stores.store import PAGE_ROWS_MAX, Ask, Place, Store

Row = dict[str, Any]


class DemoRecord(NamedTuple):
    topic: str
    value: Row
    timestamp_ms: int


class Difference(NamedTuple):
    key: str  # as JSON
    view: Row | None
    batch: Row | None


class Checked(NamedTuple):
    view: str
    rows: int
    records: int  # that went into it
    differences: tuple[Difference, ...]

    @property
    def equal(self) -> bool:
        return not self.differences


# The batch queries ----------------------------------------------------------------------------------------------------


def revenue(records: Iterable[DemoRecord]) -> list[Row]:
    found: dict[str, Row] = {}
    for one in records:
        row = found.setdefault(one.value["product"], {"product": one.value["product"], "cents": 0, "orders": 0})
        row["cents"] += one.value["cents"]
        row["orders"] += 1
    return list(found.values())


def minutes(records: Iterable[DemoRecord]) -> list[Row]:
    found: dict[str, Row] = {}
    for one in records:
        at = datetime.fromisoformat(one.value["at"])
        minute = at.replace(second=0, microsecond=0).isoformat(timespec="microseconds").replace("+00:00", "Z")
        row = found.setdefault(minute, {"minute": minute, "cents": 0, "orders": 0, "late": 0})
        row["cents"] += one.value["cents"]
        row["orders"] += 1
        row["late"] += one.timestamp_ms - round(at.timestamp() * 1000) > LATENESS_S * 1000
    return list(found.values())


def stock(records: Iterable[DemoRecord]) -> list[Row]:
    found: dict[str, int] = {}
    for one in records:
        moved = one.value["quantity"] if one.topic == DELIVERIES else -one.value["quantity"]
        found[one.value["product"]] = found.get(one.value["product"], 0) + moved
    return [{"product": product, "quantity": quantity} for product, quantity in found.items()]


class ShopQuery(NamedTuple):
    topics: tuple[str, ...]
    batch: Callable[[Iterable[DemoRecord]], list[Row]]


QUERIES: Mapping[str, ShopQuery] = {
    "revenue": ShopQuery((ORDERS,), revenue),
    "minutes": ShopQuery((ORDERS,), minutes),
    "stock": ShopQuery((ORDERS, DELIVERIES), stock),
}


# Comparing ------------------------------------------------------------------------------------------------------------


def check(cluster: Cluster, view: str, url: str) -> Checked:
    """The view that a store shows, while nobody changes it."""
    store = open_store(url, view)
    try:
        declared, rows, place = _shown(store, view)
    finally:
        store.close()
    query = QUERIES[view]
    assert place.mark is not None, "a view that is shown was applied up to a mark"
    records = read_log(cluster, place.mark.sources.offsets, query.topics)
    return compare(view, declared, rows, records, query.batch(records))


def compare(view: str, declared: Declaration, rows: list[Row], records: list[DemoRecord], batch: list[Row]) -> Checked:
    have, expected = _by_key(declared, rows), _by_key(declared, batch)
    wrong = [
        Difference(json.dumps(key), have.get(key), expected.get(key))
        for key in sorted({**have, **expected}, key=str)
        if have.get(key) != expected.get(key)
    ]
    return Checked(view, len(rows), len(records), tuple(wrong))


def _by_key(declared: Declaration, rows: list[Row]) -> dict[Key, Row]:
    return {declared.key_of(row): row for row in rows}


def _shown(store: Store, view: str) -> tuple[Declaration, list[Row], Place]:
    shown = store.shown()
    if shown is None:
        raise NotShown(f"view {view} is not shown by its store yet; its applier is still building it")
    declared, rows, after = store.generations()[shown], [], None
    while True:
        page = store.read(Ask(after=after, limit=PAGE_ROWS_MAX))
        rows += [row_to_json(declared, row) for row in page.rows]
        if not page.more:
            return declared, rows, page.place
        after = declared.key_of(page.rows[-1])


def read_log(cluster: Cluster, ends: Ends, topics: Iterable[str]) -> list[DemoRecord]:
    """All committed records of these topics below `ends`."""
    wanted = {at: end for at, end in ends.items() if at.topic in topics and end > 0}
    starts = list_offsets(cluster, dict.fromkeys(wanted, EARLIEST))
    if cut := [at for at in wanted if starts[at].offset > 0]:
        raise UsageError(f"the past of {cut[0]} is cut, so nothing can be compared with it; begin with a new --folder")
    rows = read(cluster, dict.fromkeys(wanted, 0), wanted)
    return [DemoRecord(at.topic, json.loads(row.value or b"null"), row.timestamp) for at, row in rows]
