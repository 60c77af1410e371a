"""What Delta stores have of their own: commits that carry the place, and readers that know nothing of Tidelog."""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from proving import proves
from tidelog.errors import AnotherApplier, UsageError
from tidelog.views.stores import delta, delta_compaction
from tidelog.views.stores.delta import DeltaStore
from tidelog.views.stores.opening import open_store
from views.stores.applied import AT, Applied, put, row, stretch
from views.stores.contract.test_crash import KILLS, applier, is_whole, told_by


@proves("P3", "eo.21", "F4")
def test_other_programs_read_the_table_that_current_leads_to(tmp_path: Path) -> None:
    store = DeltaStore(tmp_path, "revenue")
    old = Applied(store)
    old.put(row("tea"), row("rum", 2.0))
    new = Applied(store, generation=2)
    new.put(row("gin", 4.0), show=False)
    current = tmp_path / "revenue" / "current"
    assert current.resolve().name == "v1"
    rows = DeltaTable(str(current)).to_pyarrow_table()
    found = duckdb.sql("SELECT product, revenue FROM rows ORDER BY 1").fetchall()
    assert (rows.num_rows, found) == (2, [("rum", 2.0), ("tea", 1.5)])
    new.put(row("gin", 5.0))
    frame: Any = DeltaTable(str(current)).to_pandas()
    assert frame[["product", "revenue"]].to_dict("records") == [{"product": "gin", "revenue": 5.0}]


@proves("P3", "eo.16")
def test_the_ends_are_delta_transactions_too(tmp_path: Path) -> None:
    one = Applied(DeltaStore(tmp_path, "revenue"))
    one.put(row("tea"))
    one.apply({})
    table = DeltaTable(str(tmp_path / "revenue" / "v1"))
    assert table.transaction_version(f"tidelog:{AT.topic}:{AT.partition}") == one.end
    assert table.version() == 2


@proves("P3", "eo.16")
def test_commits_of_others_neither_hide_the_place_nor_stop_the_applier(tmp_path: Path) -> None:
    one = Applied(DeltaStore(tmp_path, "revenue"))
    for number in range(4):
        one.put(row(f"product {number}"))
    table = DeltaTable(str(tmp_path / "revenue" / "v1"))
    assert table.optimize.compact()["numFilesRemoved"] > 1
    one.is_equal()
    one.put(row("tea"))
    one.is_equal()


@proves("P3", "eo.17")
def test_of_two_that_read_one_place_and_commit_at_once_one_is_refused(tmp_path: Path) -> None:
    """Also where the library could put one behind the other: both only add rows."""
    one = Applied(DeltaStore(tmp_path, "revenue"))
    one.put(row("tea"))
    end, refused = one.end or 0, []
    ready = threading.Barrier(2)

    def apply(name: str) -> None:
        store = DeltaStore(tmp_path, "revenue")
        ready.wait()
        try:
            store.apply(1, stretch([put(one.declared, row(name))], end + 1), before={AT: end})
        except AnotherApplier as error:
            refused.append(error)

    threads = [threading.Thread(target=apply, args=(name,)) for name in ("gin", "rum")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(refused), DeltaTable(str(tmp_path / "revenue" / "v1")).count()) == (1, 2)


@proves("P3")
def test_small_files_are_made_one_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "TIDY_COMMITS", 5)
    one = Applied(DeltaStore(tmp_path, "revenue"))
    for number in range(11):
        one.put(row(f"product {number:02}"))
    one.is_equal()
    assert len(DeltaTable(str(tmp_path / "revenue" / "v1")).file_uris()) < 5


@proves("P3", "eo.17", "F2")
def test_who_is_stopped_before_it_tidies_sets_nothing_back_when_it_wakes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta, "TIDY_COMMITS", 3)
    stopped = DeltaStore(tmp_path, "revenue")
    one, last = Applied(stopped), Applied(DeltaStore(tmp_path, "revenue"))
    one.put(row("tea"), show=False)
    one.put(row("rum"), show=False)
    tidy = stopped._tidy

    def overtaken(*told: Any) -> None:
        last.rows, last.end = {("tea",): row("tea"), ("rum",): row("rum"), ("gin",): row("gin")}, (one.end or 0) + 2
        last.put(row("ale"), show=True)
        tidy(*told)

    monkeypatch.setattr(stopped, "_tidy", overtaken)
    one.put(row("gin"), show=False)
    assert stopped.shown() == 1
    last.is_equal()
    last.put(row("tea", 2.0))
    last.is_equal()


@proves("P3", "eo.17")
def test_who_is_stopped_while_it_compacts_changes_nothing_when_it_wakes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library's own compaction doubles every row here."""
    one = Applied(DeltaStore(tmp_path, "revenue"))
    for number in range(4):
        one.put(row(f"product {number}"))
    path = tmp_path / "revenue" / "v1"
    bring_over = delta_compaction.bring_over
    done = []

    def overtaken(*told: Any) -> bool:
        monkeypatch.setattr(delta_compaction, "bring_over", bring_over)
        done.append(delta_compaction.compact(DeltaTable(str(path)), path))
        return bring_over(*told)

    monkeypatch.setattr(delta_compaction, "bring_over", overtaken)
    assert not delta_compaction.compact(DeltaTable(str(path)), path)
    assert done == [True]
    table = DeltaTable(str(path))
    assert (table.version(), len(table.file_uris()), table.to_pyarrow_table().num_rows) == (5, 1, 4)
    assert sorted(path.glob("*.parquet")) == sorted(files_of_all_versions(path))
    assert [one.name for one in path.parent.iterdir() if one.name.startswith(".")] == []
    one.is_equal()
    one.put(row("tea"))
    one.is_equal()


def files_of_all_versions(path: Path) -> set[Path]:
    return {Path(uri) for version in range(6) for uri in DeltaTable(str(path), version=version).file_uris()}


@proves("P3")
def test_a_folder_that_the_library_would_misread_is_refused() -> None:
    with pytest.raises(UsageError, match="percent"):
        open_store("delta:///100%25/x", "revenue")


# Killed ---------------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for a process that ends: nothing that was to be done then is."""


@proves("P3", "eo.24", "F2")
def test_who_slept_before_it_set_the_link_leaves_it_at_what_is_shown_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = DeltaStore(tmp_path, "revenue")
    old, new = Applied(slept), Applied(DeltaStore(tmp_path, "revenue"), generation=2)
    shown, current = slept.shown, tmp_path / "revenue" / "current"
    seen: list[tuple[int | None, str]] = []

    def late() -> int | None:
        found = shown()
        if found == 1 and new.end is None:
            new.put(row("gin"))
        seen.append((found, current.resolve().name))
        return found

    monkeypatch.setattr(slept, "shown", late)
    old.put(row("tea"))
    assert seen[-3:] == [(1, "v2"), (2, "v1"), (2, "v2")], "it was set back, and that was seen"
    assert current.readlink() == Path("v2")


@proves("P3", "eo.24", "F2")
def test_a_link_that_its_applier_was_killed_before_is_set_by_who_opens_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed, current = DeltaStore(tmp_path, "revenue"), tmp_path / "revenue" / "current"
    Applied(killed).put(row("tea"))
    new = Applied(killed, generation=2)
    monkeypatch.setattr(killed, "_follow", dying())
    with pytest.raises(Killed):
        new.put(row("gin"))
    assert (killed.shown(), current.readlink()) == (2, Path("v1"))
    DeltaStore(tmp_path, "revenue").prepare(2, new.declared)
    assert current.readlink() == Path("v2")


def dying() -> Callable[..., Any]:
    def die(*_: object, **__: object) -> None:
        raise Killed

    return die


@proves("P3", "F2", "eo.16")
@pytest.mark.slow
def test_a_compaction_that_is_killed_at_any_step_changes_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Applied(DeltaStore(tmp_path / "made", "revenue"))
    for number in range(3):
        made.put(row(f"product {number}"))
    for step in count(1):
        shutil.copytree(tmp_path / "made", tmp_path / str(step), symlinks=True)
        one, path = Applied(DeltaStore(tmp_path / str(step), "revenue")), tmp_path / str(step) / "revenue" / "v1"
        one.rows, one.end = dict(made.rows), made.end
        with monkeypatch.context() as patched, suppress(Killed):
            killed_at(step, patched)
            assert delta_compaction.compact(DeltaTable(str(path)), path)
            break
        one.is_equal()
        one.put(row("tea"))
        one.is_equal()
        assert delta_compaction.compact(DeltaTable(str(path)), path)
        one.is_equal()
    one.is_equal()
    assert step > 8


@proves("P3", "F1", "eo.16")
def test_what_a_compaction_brings_over_is_synced_before_it_is_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut leaves a commit that names files without their rows."""
    made, synced = Applied(DeltaStore(tmp_path, "revenue")), set[int]()
    for number in range(3):
        made.put(row(f"product {number}"))
    path, link, fsync = tmp_path / "revenue" / "v1", os.link, os.fsync

    def noted(opened: int) -> None:
        fsync(opened)
        synced.add(os.fstat(opened).st_ino)

    def linked(source: Path, target: Path) -> None:
        is_new = source.is_relative_to(path.parent) and not source.is_relative_to(path)
        assert not is_new or source.stat().st_ino in synced, f"{target.name} was not synced"
        link(source, target)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(os, "link", linked)
    assert delta_compaction.compact(DeltaTable(str(path)), path)
    assert path.stat().st_ino in synced and (path / "_delta_log").stat().st_ino in synced
    made.is_equal()


def killed_at(step: int, patched: pytest.MonkeyPatch) -> None:
    """Of what changes the disk. What a process does not come to when it is killed is not done here either."""
    left = [step]

    def counted(do: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*given: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            return None if left[0] < 0 else do(*given, **named)

        return counting

    patched.setattr(os, "link", counted(os.link))
    patched.setattr(os, "fsync", counted(os.fsync))
    patched.setattr(shutil, "rmtree", counted(shutil.rmtree))


@proves("P3", "F2")
def test_what_killed_appliers_have_left_is_deleted_a_day_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that was compacted, a generation that was being forgotten, a link that was not renamed."""
    folder, path, store = tmp_path / "revenue", tmp_path / "revenue" / "v2", DeltaStore(tmp_path, "revenue")
    one, old = Applied(store, generation=2), Applied(store, generation=1)
    one.put(row("tea"))
    one.put(row("rum"))
    old.put(row("tea"), show=False)
    (folder / "current").unlink()
    for where, what, attempt in (
        (shutil, "rmtree", lambda: delta_compaction.compact(DeltaTable(str(path)), path)),
        (shutil, "rmtree", lambda: store.forget(1)),
        (Path, "replace", store._follow),
    ):
        with monkeypatch.context() as patched, pytest.raises(Killed):
            patched.setattr(where, what, dying())
            attempt()
    left = sorted(folder.glob(".*"))
    assert len(left) == 3 and list(store.generations()) == [2]
    delta_compaction.delete_left(folder)
    assert sorted(folder.glob(".*")) == left, "somebody may be at it"
    for old_one in left:
        os.utime(old_one, (0, 0), follow_symlinks=False)
    delta_compaction.delete_left(folder)
    assert sorted(folder.glob(".*")) == []
    one.is_equal()


@pytest.mark.full
@proves("P3", "F2", "eo.16")
def test_an_applier_that_is_killed_while_it_tidies_leaves_all_of_a_stretch_or_nothing(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    url = f"delta:///{tmp_path}/warehouse"
    reader = open_store(url, "numbers")
    for _ in range(KILLS):
        with applier(url, "", "2") as child:
            told = told_by(child, chance.randint(1, 4))
            time.sleep(chance.random() * 0.1)
            child.send_signal(signal.SIGKILL)
            child.wait()
        assert is_whole(reader) >= told
    assert DeltaTable(f"{tmp_path}/warehouse/numbers/v1").history(1000)[-1]["operation"] == "CREATE TABLE"
