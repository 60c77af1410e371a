"""What a consumer of committed records makes of a captured database: its tables, the order of changes, transactions."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from capture.captured import State, records
from capture.databases import Shop
from tidelog.capture.change import DELETE, READ, TRUNCATE, UNAVAILABLE
from tidelog.record.columns import Row as Record

NEW_KEY, OLD_KEY = "__debezium.newkey", "__debezium.oldkey"


class Told(NamedTuple):
    """One change, as its record has it."""

    record: Record
    change: dict[str, Any]


def told(bootstrap: str, topic: str, *, partitions: int = 1) -> list[Told]:
    found = records(bootstrap, topic, partitions=partitions)
    return [Told(one, json.loads(one.value)) for one in found if one.value is not None]


def replayed(changes: Iterable[Told], columns: Sequence[str], key: Sequence[str] = ("id",)) -> State:
    """The table. A large value that was not sent is the one that the row had, also under another key."""
    state: State = {}
    moved: dict[bytes, tuple[Any, ...]] = {}  # rows that are about to get this key
    for record, change in changes:
        headers = dict(record.headers)
        if change["op"] == TRUNCATE:
            state.clear()
        elif change["op"] == DELETE:
            gone = state.pop(tuple(change["before"][name] for name in key), None)
            if gone is not None and (new := headers.get(NEW_KEY)) is not None:
                moved[new] = gone
        else:
            row = change["after"]
            at = tuple(row[name] for name in key)
            old = state.get(at) or moved.pop(record.key or b"", None)
            state[at] = tuple(
                old[place] if row.get(name) == UNAVAILABLE and old is not None else row.get(name)
                for place, name in enumerate(columns)
            )
    return state


def check_order(shop: Shop, bootstrap: str, topic: str, *, partitions: int = 1) -> int:
    """That the changes of each partition are in the order of their commits, and none is there twice. How many."""
    orders: dict[int, list[tuple[int, ...]]] = defaultdict(list)
    for number in range(partitions):
        for _, change in of_partition(bootstrap, topic, number):
            if change["op"] != READ:
                orders[number].append(shop.commit_order(change["source"], change["transaction"]))
    for number, found in orders.items():
        assert found == sorted(set(found)), f"partition {number} of {topic}"
    return sum(map(len, orders.values()))


def of_partition(bootstrap: str, topic: str, number: int) -> list[Told]:
    from tidelog.client.cluster import Cluster
    from tidelog.client.metadata import TopicPartition
    from tidelog.control.reading import read, span

    at = TopicPartition(topic, number)
    with Cluster(bootstrap) as cluster:
        there = span(cluster, at)
        assert there is not None, f"there is no topic {topic}"
        found = [row for _, row in read(cluster, {at: there.start}, {at: there.end})]
    return [Told(one, json.loads(one.value)) for one in found if one.value is not None]


def transactions(bootstrap: str, topics: Sequence[str], *, partitions: int = 1) -> list[list[dict[str, Any]]]:
    """Whole ones, restored from several topics by their metadata, in the order in which they ended."""
    parts: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for topic in topics:
        for _, change in told(bootstrap, topic, partitions=partitions):
            # A truncate is one event, however many partitions tell it.
            if change["transaction"] is not None and (
                change["op"] != TRUNCATE or change not in parts[change["transaction"]["id"]]
            ):
                parts[change["transaction"]["id"]].append(change)
    begun: list[str] = []
    whole: list[list[dict[str, Any]]] = []
    for _, mark in told(bootstrap, "shop.transaction"):
        if mark["status"] == "BEGIN":
            begun.append(mark["id"])
            continue
        changes = sorted(parts.pop(mark["id"], []), key=lambda one: int(one["transaction"]["total_order"]))
        assert [one["transaction"]["total_order"] for one in changes] == list(range(1, mark["event_count"] + 1)), mark
        counts: dict[str, int] = defaultdict(int)
        for one in changes:
            counts[one["source"]["table"]] += 1
            assert one["transaction"]["data_collection_order"] == counts[one["source"]["table"]]
        said = {one["data_collection"].rpartition(".")[2]: one["event_count"] for one in mark["data_collections"]}
        assert said == counts, mark
        assert begun.pop(0) == mark["id"], "BEGIN and END of one stand together"
        whole.append(changes)
    assert not begun and not parts, (begun, list(parts)[:3])
    return whole
