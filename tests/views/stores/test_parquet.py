"""What Parquet stores have of their own: files by day, manifests, and readers that know nothing of Tidelog."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pandas
import pytest
from pyarrow import parquet as arrow_parquet

from proving import proves
from tidelog.errors import AnotherApplier, StorageError, UsageError
from tidelog.schema.declaration import Row, declare
from tidelog.views.stores import parquet
from tidelog.views.stores.parquet import ParquetStore
from tidelog.views.stores.parquet_manifest import ParquetManifest
from tidelog.views.stores.store import Ask
from views.stores.applied import AT, REVENUE, Applied, put, row, stretch

ORDERS = declare({"id": "long", "day": "date", "amount": "double"}, ("id",))


def order(number: int, day: int | None, amount: float = 1.0) -> Row:
    return {"id": number, "day": None if day is None else date(2026, 1, day), "amount": amount}


def files(store: ParquetStore) -> dict[str, int]:
    """Rows by file, each read by itself."""
    return {path.name: arrow_parquet.read_metadata(path).num_rows for path in store.files()}


def age(folder: Path) -> None:
    """All of it is 2,000 seconds old."""
    long_ago = time.time() - 2000
    for path in folder.rglob("*"):
        os.utime(path, (long_ago, long_ago))


@proves("P3", "eo.21")
def test_rows_are_in_files_of_their_day_and_only_those_with_a_changed_key_are_written_anew(tmp_path: Path) -> None:
    store = ParquetStore(tmp_path, "orders", day="day")
    one = Applied(store, ORDERS)
    one.put(order(1, 1), order(2, 1), order(3, 2), order(4, 3), order(5, None))
    before = files(store)
    assert sorted(name.rpartition("-")[0] for name in before) == ["2026-01-01", "2026-01-02", "2026-01-03", "none"]
    one.put(order(3, 2, 9.0), order(6, 3))
    one.is_equal()
    after = files(store)
    assert {name.rpartition("-")[0] for name in before.keys() - after.keys()} == {"2026-01-02", "2026-01-03"}
    assert len(after.keys() & before.keys()) == 2


@proves("P3", "eo.21")
def test_a_row_whose_day_changes_moves_and_an_emptied_day_has_no_file(tmp_path: Path) -> None:
    store = ParquetStore(tmp_path, "orders", day="day")
    one = Applied(store, ORDERS)
    one.put(order(1, 1), order(2, 2))
    one.put(order(1, 2))
    one.is_equal()
    assert list(files(store).values()) == [2]
    one.put(order(2, None))
    one.delete((1,))
    one.is_equal()
    assert [name.rpartition("-")[0] for name in files(store)] == ["none"]


@proves("P3")
def test_a_time_is_of_its_day_in_utc_and_a_day_column_must_be_a_date(tmp_path: Path) -> None:
    declared = declare({"id": "long", "at": "timestamp"}, ("id",))
    store = ParquetStore(tmp_path, "events", day="at")
    one = Applied(store, declared)
    one.put({"id": 1, "at": datetime(2026, 1, 31, 23, 59, 59, 999999, tzinfo=UTC)})
    assert [name.rpartition("-")[0] for name in files(store)] == ["2026-01-31"]
    with pytest.raises(UsageError, match="day=revenue"):
        ParquetStore(tmp_path, "other", day="revenue").prepare(1, REVENUE)


@proves("P3")
def test_a_day_of_many_rows_has_several_files_that_follow_one_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "FILE_ROWS", 100)
    monkeypatch.setattr(parquet, "GROUP_ROWS", 30)
    store = ParquetStore(tmp_path, "orders", day="day")
    one = Applied(store, ORDERS)
    one.put(*(order(number, 1 + number % 2) for number in range(0, 1000, 2)))
    one.put(*(order(number, 1 + number % 3) for number in range(0, 1000, 3)))
    one.is_equal()
    assert max(files(store).values()) <= 100
    before = files(store)
    one.put(order(0, 1, 7.0))
    assert len(before.keys() - files(store).keys()) == 1
    one.is_equal()


@proves("P3")
def test_an_applier_remembers_keys_of_the_files_that_there_are_and_no_more_than_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ParquetStore(tmp_path, "orders", day="day")
    one = Applied(store, ORDERS)
    one.put(*(order(number, 1 + number % 10) for number in range(100)))
    for number in range(20):
        one.put(order(number, 1 + number % 10, 2.0))
    assert set(store._keys) == {str(path.relative_to(store.folder)) for path in store.files()}
    monkeypatch.setattr(parquet, "KNOWN_ROWS", 25)
    one.put(*(order(number, 1 + number % 10, 3.0) for number in range(100)))
    assert sum(map(len, store._keys.values())) <= 25
    one.is_equal()


@proves("P3", "F4")
def test_other_programs_read_what_latest_json_names(tmp_path: Path) -> None:
    store = ParquetStore(tmp_path, "orders", day="day")
    one = Applied(store, ORDERS)
    one.put(*(order(number, 1 + number % 28, number / 4) for number in range(500)))
    one.delete((7,))
    latest = json.loads((tmp_path / "orders" / "latest.json").read_text())
    assert (latest["generation"], latest["ends"]) == (1, {AT.topic: {"0": one.end}})
    expected = sum(float(str(found["amount"])) for found in one.rows.values())
    other = duckdb.connect()
    other.execute(f"SET VARIABLE files = (SELECT files FROM read_json('{tmp_path}/orders/latest.json'))")
    found = other.execute("SELECT count(*), sum(amount), min(day) FROM read_parquet(getvariable('files'))").fetchone()
    assert found == (499, expected, date(2026, 1, 1))
    frame: Any = pandas.read_parquet(latest["files"])
    assert (len(frame), float(frame["amount"].sum())) == (499, expected)


@proves("P3", "eo.21")
def test_files_stay_for_the_grace_period_and_then_go(tmp_path: Path) -> None:
    store = ParquetStore(tmp_path, "orders", day="day", grace_s=1000)
    one = Applied(store, ORDERS)
    one.put(order(1, 1))
    old = store.files()
    one.put(order(1, 1, 2.0))
    reader = ParquetStore(tmp_path, "orders")
    assert old[0].exists() and reader.files() != old
    age(tmp_path / "orders")
    one.store = ParquetStore(tmp_path, "orders", day="day", grace_s=1000)
    one.put(order(2, 1))
    assert not old[0].exists()
    one.is_equal()
    left = {path for path in (tmp_path / "orders").rglob("*.json") if path.parent.name == "manifests"}
    assert len(left) == 2


@proves("P3", "eo.17")
def test_who_slept_for_longer_than_the_grace_period_publishes_nothing(tmp_path: Path) -> None:
    """Its number is free again by then."""
    store = ParquetStore(tmp_path, "orders")
    one = Applied(store, ORDERS)
    sleeper = ParquetStore(tmp_path, "orders")
    asleep = sleeper._manifests.newest()
    for number in range(4):
        one.put(order(number, 1))
    (tmp_path / "orders" / "manifests" / f"{asleep.number:020}.json").unlink()
    (tmp_path / "orders" / "manifests" / f"{asleep.number + 1:020}.json").unlink()
    sleeper._manifests.newest = lambda: asleep  # type: ignore[method-assign]
    with pytest.raises(AnotherApplier):
        sleeper.apply(1, stretch([], 1), before={}, show=True)
    one.is_equal()


@proves("P3", "eo.17", "F2")
def test_who_is_stopped_after_it_has_published_deletes_nothing_of_its_successor_when_it_wakes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Applied(ParquetStore(tmp_path, "orders", grace_s=1000), ORDERS)
    one.put(order(1, 1))
    stopped, successor = (ParquetStore(tmp_path, "orders", grace_s=1000) for _ in range(2))
    one.store = stopped
    check_awake = stopped._manifests._check_awake

    def overtaken(number: int) -> None:
        last = Applied(successor, ORDERS)
        last.end = (one.end or 0) + 2
        last.put(order(1, 1, 3.0))
        age(tmp_path / "orders")  # and nobody publishes for longer than the grace period
        check_awake(number)

    monkeypatch.setattr(stopped._manifests, "_check_awake", overtaken)
    one.put(order(1, 1, 2.0))
    page = ParquetStore(tmp_path, "orders").read(Ask())
    assert [found["amount"] for found in page.rows] == [3.0]
    latest = json.loads((tmp_path / "orders" / "latest.json").read_text())
    assert latest["files"] == [str(path) for path in successor.files()]


@proves("P3", "eo.17", "F2")
def test_files_that_were_deleted_before_they_were_published_are_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = ParquetStore(tmp_path, "orders", grace_s=1000)
    one, beside = Applied(stopped, ORDERS, 2), Applied(ParquetStore(tmp_path, "orders", grace_s=1000), ORDERS, 1)
    publish = stopped._manifests._publish

    def late(manifest: ParquetManifest) -> bool:
        monkeypatch.setattr(stopped._manifests, "_publish", publish)
        age(tmp_path / "orders")
        beside.store = ParquetStore(tmp_path, "orders", grace_s=1000)
        beside.put(order(1, 1))
        return publish(manifest)

    monkeypatch.setattr(stopped._manifests, "_publish", late)
    one.put(order(2, 2))
    one.is_equal()


@proves("P3")
def test_a_file_that_somebody_deleted_is_named(tmp_path: Path) -> None:
    store = ParquetStore(tmp_path, "revenue")
    Applied(store).put(row("tea"))
    store.files()[0].unlink()
    with pytest.raises(StorageError, match="grace"):
        ParquetStore(tmp_path, "revenue").read(Ask())


@proves("P3", "F2")
@pytest.mark.parametrize(("which", "said"), [("v1/*.parquet", "is damaged"), ("manifests/*.json", "is not a manifest")])
def test_a_file_that_is_damaged_is_named_with_what_to_do(tmp_path: Path, which: str, said: str) -> None:
    one = Applied(ParquetStore(tmp_path, "revenue"))
    one.put(row("tea"))
    damaged = max((tmp_path / "revenue").glob(which))
    damaged.write_bytes(damaged.read_bytes()[:-9])
    more = stretch([put(REVENUE, row("rum"), 3)], 4)
    for fail in (lambda store: store.read(Ask()), lambda store: store.apply(1, more, before=one.before)):
        with pytest.raises(StorageError, match=rf"^{damaged} {said}.*; delete {tmp_path}/revenue: it is built again"):
            fail(ParquetStore(tmp_path, "revenue"))
