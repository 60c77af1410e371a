"""Read models: rows that follow the events of a store, right after any crash, rebuilt beside the old ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import tidelog
from against.patience import eventually
from postgres_server import postgres, postgres_url
from proving import proves
from sourcing.follower_process import start
from sourcing.seats import Cancel, Reserve, Reserved, Seat, seats
from tidelog.client.cluster import Cluster
from tidelog.control.catalog import find_view
from tidelog.errors import AnotherApplier, UsageError, ViewChanged
from tidelog.sourcing import EventStore, ReadModel, Receipt
from tidelog.testing.broker import TestBroker
from tidelog.views import Applier, parse_after, wait
from tidelog.views.as_of import as_of
from tidelog.views.changes import NoChange
from tidelog.views.feed_reading import oldest
from tidelog.views.stores.opening import open_store

__all__ = ["postgres", "postgres_url"]

COLUMNS = {"who": "string", "seats": "long"}


def held(rows: Any, event: Any, record: Any) -> None:
    """How many seats each person has."""
    before = rows.get(event.who, {"seats": 0})["seats"]
    now = before + (1 if isinstance(event, Reserved) else -1)
    if now:
        rows[event.who] = {"seats": now}
    else:
        del rows[event.who]


@pytest.fixture
def store(tidelog_broker: TestBroker) -> Iterator[EventStore[Seat]]:
    with EventStore("seats", seats(), bootstrap=tidelog_broker.bootstrap, partitions=2) as running:
        yield running


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/models.db"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def any_url(request: pytest.FixtureRequest, url: str) -> str:
    return url if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


def model(store: EventStore[Seat], project: Any = held, **more: Any) -> ReadModel:
    return ReadModel("held", store, project, **{"key": "who", "columns": COLUMNS, **more})


def by_replay(store: EventStore[Seat], entities: list[str]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for entity in entities:
        for _, events in store.history(entity):
            for event in events:
                found[event.who] += 1 if isinstance(event, Reserved) else -1
    return {who: count for who, count in found.items() if count}


@proves("E3", "D8", "es.14")
def test_rows_follow_events_and_a_receipt_is_waited_for(store: EventStore[Seat], any_url: str) -> None:
    store.send("A1", Reserve("anna"))
    with model(store).following(any_url) as followed:
        assert followed.get("anna") == {"who": "anna", "seats": 1}  # what was there when it began
        followed.wait(store.send("A2", Reserve("anna")))
        assert followed.get("anna") == {"who": "anna", "seats": 2}
        followed.wait(store.send("A1", Cancel("anna")))
        followed.wait(store.send("A2", Cancel("anna")))
        assert followed.get("anna") is None
        followed.wait(store.send("A3", Reserve("bob")))
        assert followed.rows() == [{"who": "bob", "seats": 1}]


@proves("E3", "D8")
def test_a_command_is_answered_when_its_row_is_there_where_that_was_asked_for(
    store: EventStore[Seat], url: str
) -> None:
    with model(store).following(url, before_answer=True) as followed:
        for number in range(20):
            store.send(f"A{number}", Reserve("anna"))
            assert followed.get("anna") == {"who": "anna", "seats": number + 1}


def wait_for(bootstrap: str, url: str, receipt: Receipt) -> None:
    """As a reader in another process does."""
    with Cluster(bootstrap) as cluster, closing(open_store(url, "held")) as reader:
        after = parse_after(f"seats.events:{receipt.partition}:{receipt.offset}")
        wait(cluster, "held", after, 60.0, store=reader)


@proves("D8", "E3")
def test_another_process_waits_by_the_receipt_as_for_any_view(store: EventStore[Seat], url: str) -> None:
    with model(store).following(url):
        wait_for(store.bootstrap, url, store.send("A1", Reserve("anna")))
        with closing(open_store(url, "held")) as reader:
            assert reader.get(("anna",))[0] == {"who": "anna", "seats": 1}


@proves("E3", "es.15")
def test_a_new_version_is_built_beside_the_old_rows_and_switched_to(
    tidelog_broker: TestBroker, store: EventStore[Seat], any_url: str
) -> None:
    def names(rows: Any, event: Any, record: Any) -> None:
        rows[event.who] = {"last": record.entity}

    with model(store).following(any_url) as old:
        old.wait(store.send("A1", Reserve("anna")))
        new = model(store, names, columns={"who": "string", "last": "string"}, version=2)
        with new.following(any_url, before_answer=True) as followed:
            assert followed.get("anna") == {"who": "anna", "last": "A1"}
            store.send("B7", Reserve("anna"))
            assert followed.get("anna") == {"who": "anna", "last": "B7"}
    with Cluster(tidelog_broker.bootstrap) as cluster:
        view = find_view(cluster, "held")
    assert view.live == 2
    assert [one.fingerprint for one in view.generations] == ["fold:1", "fold:2"]


@proves("E3", "es.15")
def test_old_code_that_is_started_again_after_the_switch_says_that_nobody_reads_it(
    store: EventStore[Seat], url: str
) -> None:
    with model(store).following(url), model(store, version=2).following(url):
        pass
    with pytest.raises(ViewChanged, match="version 1 of it was replaced, and generation 2 is live"):
        model(store).following(url).__enter__()
    with model(store, version=3).following(url) as followed:
        followed.wait(store.send("A1", Reserve("anna")))
        assert followed.get("anna") == {"who": "anna", "seats": 1}


@proves("E3")
def test_other_columns_under_the_same_version_are_refused(store: EventStore[Seat], url: str) -> None:
    with model(store).following(url):
        pass
    changed = model(store, columns={"who": "string", "count": "long"})
    with pytest.raises(ViewChanged, match=r"raise version= to 2"), changed.following(url):
        pass


@proves("E3")
@pytest.mark.parametrize(
    ("project", "why"),
    [
        (lambda rows, event, record: rows["x"], r"failed on Reserved\(who='anna'\): KeyError\('x'\)"),
        (lambda rows, event, record: rows.update({"x": {"seats": "two"}}), r"column 'seats' is a long, and 'two' is a"),
        (lambda rows, event, record: rows.update({"x": {"sets": 2}}), r"a row has 'sets', and the columns are who, "),
        (lambda rows, event, record: rows.update({None: {"seats": 2}}), r"column 'who' is of the key, and cannot"),
    ],
)
def test_a_function_that_fails_is_named_with_its_event(
    store: EventStore[Seat], url: str, project: Any, why: str
) -> None:
    store.send("A1", Reserve("anna"))
    with pytest.raises(NoChange, match=why), model(store, project).following(url):
        pass


@proves("E3", "eo.17")
def test_of_two_that_apply_one_read_model_one_ends(store: EventStore[Seat], url: str) -> None:
    with model(store).following(url) as first, model(store).following(url) as second:
        failed = []
        for number in range(50):
            receipt = store.send(f"A{number}", Reserve("anna"))
            for one in (first, second):
                try:
                    one.wait(receipt)
                except AnotherApplier:
                    failed.append(one)
            if failed:
                break
        assert len(failed) == 1, "they have met, and one of them goes on"
        left = second if failed == [first] else first
        left.wait(store.send("B1", Reserve("bob")))
        assert left.get("anna") == {"who": "anna", "seats": number + 1}


@proves("E3")
def test_a_name_that_is_another_view_s_is_refused(store: EventStore[Seat], url: str) -> None:
    with model(store).following(url):
        pass
    with EventStore("others", seats(), bootstrap=store.bootstrap, partitions=1) as others:
        mine = ReadModel("held", others, held, key="who", columns=COLUMNS)
        with pytest.raises(UsageError, match=r"is not a read model of others\.events"), mine.following(url):
            pass


@proves("E3", "F3", "es.14")
@pytest.mark.slow
def test_killed_at_any_moment_rows_are_the_fold_of_the_log(store: EventStore[Seat], url: str) -> None:
    entities = [f"A{number}" for number in range(10)]
    for turn in range(8):
        child = start("model", store.bootstrap, url)
        for number in range(30):
            who, entity = f"p{(turn * 7 + number) % 5}", entities[number % 10]
            holder = store.state(entity).state.holder
            receipt = store.send(entity, Reserve(who) if holder is None else Cancel(holder))
            if number == 10:  # it is at work, and in the middle of it when it dies
                wait_for(store.bootstrap, url, receipt)
        child.kill()
        child.wait()
    with model(store).following(url) as followed:
        expected = by_replay(store, entities)
        eventually(lambda: {row["who"]: row["seats"] for row in followed.rows()}, lambda rows: rows == expected)


@proves("E3", "D7")
def test_a_read_model_is_read_as_a_view_and_has_no_feed_and_no_past(
    tidelog_broker: TestBroker, store: EventStore[Seat], url: str
) -> None:
    with model(store).following(url, before_answer=True), Cluster(tidelog_broker.bootstrap) as cluster:
        store.send("A1", Reserve("anna"))
        assert tidelog.sql("SELECT who, seats FROM held", bootstrap=store.bootstrap).fetchall() == [("anna", 1)]
        with pytest.raises(UsageError, match=r"its rows are in no topic: it has no feed"):
            oldest(cluster, find_view(cluster, "held"))
        with pytest.raises(UsageError, match=r"it has no past"):
            as_of(cluster, "held", 0)
        with pytest.raises(UsageError, match=r"is a read model of seats\.events; the program that has it applies it"):
            Applier(cluster, "held", open_store(url, "held"), store_name="other").step()
