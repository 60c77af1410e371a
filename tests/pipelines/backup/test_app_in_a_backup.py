"""An app's part of a backup and of a restore, over a log that a test writes; without Spark."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

import pytest

from pipelines.backup.test_as_of_mark import heap, query
from proving import proves
from tidelog.control import catalog, marks
from tidelog.control.catalog import CATALOG, View
from tidelog.control.derived import Derived
from tidelog.control.marks import Mark, Sources, topic_of
from tidelog.errors import UsageError
from tidelog.pipelines.backup.restoring import apps_in, stores_in
from tidelog.pipelines.backup.stores import copy_store
from tidelog.pipelines.backup.taking import AppPlaces, AppsBackup
from tidelog.schema.declaration import declare
from tidelog.views import lifecycle
from tidelog.views.stores.opening import open_store

DECLARED = declare({"product": "string", "sold": "long"}, ("product",))


class Entry(NamedTuple):
    key: bytes | None
    value: bytes | None
    is_decided: bool = True


class Written:
    """A log in memory."""

    def __init__(self) -> None:
        self.records: dict[str, list[Entry]] = {}

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(self.records)

    def entries(self, topic: str) -> list[Entry]:
        return self.records.get(topic, [])

    def last(self, topic: str) -> list[Entry]:
        return self.entries(topic)[-1:]

    def enter(self, entry: View | Derived) -> None:
        self.records.setdefault(CATALOG.topic, []).append(Entry(*catalog.encode(entry)))

    def mark(self, sink: str, query_id: str, batch: int, *, is_decided: bool = True) -> None:
        key, value = marks.encode(Mark(sink, query_id, batch, Sources(), {}, 0))
        self.records.setdefault(topic_of(sink), []).append(Entry(key, value, is_decided))


def view_of(name: str, *stores: str) -> View:
    return lifecycle.begin(lifecycle.new_view(name, app="shop", inputs=["orders"], stores=stores), DECLARED, "f", 1)


def store_at(path: Path, view: str) -> str:
    """A store as an applier makes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    url = f"sqlite:///{path}"
    with closing(open_store(url, view)) as store:
        store.prepare(1, DECLARED)
    return url


@pytest.fixture
def taking(tmp_path: Path) -> AppsBackup:
    url = store_at(tmp_path / "views" / "shop.db", "sums")
    for name, batches in (("sums.v1", 8), ("large", 5), ("old.v1", 3), ("unknown", 3)):
        folder = query(tmp_path / "checkpoints" / "shop" / name, range(batches), range(batches))
        (folder / "metadata").write_text(f'{{"id":"{name}"}}')
        heap(folder, range(1, batches + 1))
    return AppsBackup([AppPlaces("shop", str(tmp_path / "checkpoints"), (url,), url)])


@pytest.fixture
def log(tmp_path: Path) -> Written:
    made = Written()
    made.enter(view_of("sums", f"sqlite:///{tmp_path}/views/shop.db"))
    made.enter(Derived("large", "shop", "large", "shop.large", ("orders",)))
    made.enter(Derived("others", "another", "others", "another.others", ("orders",)))
    made.mark("sums.v1", "sums.v1", 7)
    made.mark("shop.large", "large", 4)
    made.mark("old.v1", "old.v1", 2)
    return made


def round_of(taking: AppsBackup, log: Written, scratch: Path):  # type: ignore[no-untyped-def]
    taking.before_cut(str(scratch))
    taking.after_cut()
    return taking.belonging(log)


@proves("P3")
def test_a_backup_has_what_a_run_would_go_on_with(taking: AppsBackup, log: Written, tmp_path: Path) -> None:
    found = round_of(taking, log, tmp_path / "scratch")
    assert found.missing == ""
    folders = {name.split("/")[2] for name in found.files if name.startswith("tidelog-checkpoints/shop/")}
    assert folders == {"sums.v1", "large"}, "not a generation that is old, nor what nobody has declared"
    assert "tidelog-views/shop.db" in found.files
    (told,) = found.about["apps"]
    assert {one["sink"]: (one["batch"], one["again"]) for one in told["queries"]} == {
        "sums.v1": (7, False),
        "shop.large": (4, False),
    }
    assert told["left_out"] == []
    (app,) = apps_in(str(tmp_path / "new"), found.about)
    assert app.store == f"sqlite:///{tmp_path}/new/tidelog-views/shop.db" and app.left_out == ()
    taking.release()


@proves("P3")
def test_a_mark_without_its_checkpoint_is_told_and_a_query_without_a_mark_begins_anew(
    taking: AppsBackup, log: Written, tmp_path: Path
) -> None:
    log.mark("sums.v1", "another query", 7)
    del log.records[topic_of("shop.large")]
    found = round_of(taking, log, tmp_path / "scratch")
    (told,) = found.about["apps"]
    assert (told["queries"], told["left_out"], found.missing) == ([], ["sums.v1"], "")
    taking.release()


@proves("P3")
def test_a_store_that_only_the_catalog_knows_is_copied_before_a_newer_cut(
    taking: AppsBackup, log: Written, tmp_path: Path
) -> None:
    other = store_at(tmp_path / "elsewhere" / "shop.db", "more")
    log.enter(view_of("more", other, "redis://127.0.0.1/3", "sqlite:///not-yet.db"))
    found = round_of(taking, log, tmp_path / "scratch")
    assert "was not copied before the log" in found.missing
    found = round_of(taking, log, tmp_path / "scratch")
    assert found.missing == ""
    files = {one.url: one.file for one in stores_in("/new", found.about)}
    assert files["redis://127.0.0.1/3"] is None and files["sqlite:///not-yet.db"] is None
    assert files[f"sqlite:///{tmp_path}/views/shop.db"] == "/new/tidelog-views/shop.db", "the app's own"
    assert (files[other] or "").startswith("/new/tidelog-views/shop-"), "two names for two files"
    taking.release()


@proves("P3")
def test_checkpoints_that_are_not_on_this_machine_are_refused() -> None:
    with pytest.raises(UsageError, match="only local ones are backed up"):
        AppsBackup([AppPlaces("shop", "hdfs://host/checkpoints", ())])


@proves("P3")
def test_a_store_is_copied_in_whole_transactions_while_its_applier_writes(tmp_path: Path) -> None:
    url, ending = store_at(tmp_path / "views.db", "sums"), Event()

    def write() -> None:
        """Two rows that are always equal."""
        with closing(sqlite3.connect(tmp_path / "views.db", timeout=30, isolation_level=None)) as writing:
            number = 0
            while not ending.is_set():
                number += 1
                writing.execute("BEGIN IMMEDIATE")
                for product in "ab":
                    writing.execute("INSERT OR REPLACE INTO _tidelog_sums_v1 VALUES (?, ?)", (product, number))
                writing.execute("COMMIT")

    thread = Thread(target=write)
    thread.start()
    try:
        seen = []
        for number in range(20):
            assert copy_store(url, tmp_path / f"{number}.copy")
            with closing(sqlite3.connect(tmp_path / f"{number}.copy")) as reading:
                seen.append([row[1] for row in reading.execute("SELECT * FROM _tidelog_sums_v1 ORDER BY 1")])
            assert not list(tmp_path.glob(f"{number}.copy-*")), "all of it is in the one file"
    finally:
        ending.set()
        thread.join()
    assert all(len(set(row)) <= 1 for row in seen) and any(seen)
