"""Read models of a store, after a key was destroyed: built anew without what is erased, and the old rows overwritten.

    begin      one more generation of the view, of the same version: the program that has the read model folds all
               events anew, in which the fields are ERASED by now
    wait       until it is shown, and the catalog and the store have forgotten the old ones
    overwrite  SQLite: what was deleted is overwritten in the file, and its write-ahead log is cut to nothing

Rules:
- The rows are what a function of the app made of the events, so nobody else can say which of them have the person: all
  are made anew. Readers have the old rows until the new ones are whole.
- What cannot be done from here is told, with what to do: a program that does not run, a file that is elsewhere, a store
  that is not SQLite. It can be run again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.control.catalog import VIEW, Editor, View, read_catalog
from tidelog.control.urls import redacted
from tidelog.errors import TidelogError
from tidelog.views import lifecycle
from tidelog.views.stores.allowing import Allowed, allowed_stores, open_recorded
from tidelog.views.stores.opening import scheme_of
from tidelog.views.stores.sqlite import SqliteStore
from tidelog.views.stores.store import Store, generation_of

REBUILT_S = 60.0
LOOK_S = 0.1

LEFT = {
    "postgresql": "VACUUM FULL its tables; its write-ahead log, replicas and backups have the old rows for a while",
    "redis": "BGREWRITEAOF, or SAVE: its files have the old rows until then",
    "opensearch": "force a merge with only_expunge_deletes; its snapshots have the old rows",
    "parquet": "delete old files of the folder, and its backups",
    "delta": "VACUUM the table with RETAIN 0 HOURS, and delete its backups",
}


class PurgedModels(NamedTuple):
    done: list[str]  # names
    left: list[str]  # what the operator must still do


def purge_read_models(
    cluster: Cluster, topic: str, *, within_s: float = REBUILT_S, allowed: Allowed = allowed_stores
) -> PurgedModels:
    """Of all read models of a topic of events."""
    done: list[str] = []
    left: list[str] = []
    deadline = time.monotonic() + within_s
    begun = [_begin(cluster, name) for name in read_models(cluster, topic)]
    for view in begun:
        faults = _purge(cluster, view, allowed, deadline)
        left += faults
        if not faults:
            done.append(view.name)
    return PurgedModels(done, left)


def read_models(cluster: Cluster, topic: str) -> list[str]:
    found = [one for (kind, _), one in read_catalog(cluster).items() if kind == VIEW and isinstance(one, View)]
    return sorted(one.name for one in found if any(gen.is_folded and gen.topic == topic for gen in one.generations))


def _begin(cluster: Cluster, name: str) -> View:
    """The record of the view with a generation that begins now; one that was being built has what must go, too."""
    editor = Editor(cluster, name)
    view = editor.view()
    assert view is not None and view.current is not None, "it was in the catalog"
    current = view.current
    if view.building is not None:
        current = view.building
        view = lifecycle.forget(view, view.building.number)
    view = lifecycle.begin(view, current.declared, current.fingerprint, current.partitions, folded_from=current.topic)
    editor.write(view)
    return view


def _purge(cluster: Cluster, view: View, allowed: Allowed, deadline: float) -> list[str]:
    number = view.generations[-1].number
    said = f"read model {view.name}"
    if not _wait(lambda: _live(cluster, view.name) >= number, deadline):
        return [f"{said} is not applied by anybody now: run the program that has it, then erase again"]
    _forget_old(cluster, view.name, number)
    left = []
    for url in view.stores:
        kind = scheme_of(url).partition("+")[0]
        if kind != "sqlite":
            advice = LEFT.get(kind.removesuffix("s") if kind == "rediss" else kind, "clear what it has deleted")
            left.append(f"{said} is built again in {redacted(url)}; {advice}")
            continue
        try:
            with closing(open_recorded(url, view.name, allowed)) as store:
                fault = _overwrite(store, number, deadline)
        except TidelogError as error:
            fault = str(error)
        if fault is not None:
            left.append(f"{said} in {redacted(url)}: {fault}")
    return left


def _overwrite(store: Store, number: int, deadline: float) -> str | None:
    assert isinstance(store, SqliteStore), "its URL says so"
    if store.shown() is None:
        return "nothing of it is there; is the file on another machine, or in another folder? erase there as well"
    if not _wait(lambda: {generation_of(one) for one in store.generations()} == {number}, deadline):
        return "its old rows are still there; run the program that applies it, then erase again"
    store.overwrite()
    return None


def _live(cluster: Cluster, name: str) -> int:
    found = read_catalog(cluster).get((VIEW, name))
    return (found.live or 0) if isinstance(found, View) else 0


def _forget_old(cluster: Cluster, name: str, number: int) -> None:
    editor = Editor(cluster, name)
    view = editor.view()
    assert view is not None, "it was there a moment ago"
    for one in view.generations:
        if one.number < number and one.number != view.live:
            view = lifecycle.forget(view, one.number)
    editor.write(view)


def _wait(true: Callable[[], bool], deadline: float) -> bool:
    while not true():
        if time.monotonic() >= deadline:
            return False
        time.sleep(LOOK_S)
    return True
