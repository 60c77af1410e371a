"""An app's part of a backup: what `broker/backup` asks of whoever goes with a log (`companion.py` there).

    before the cut    embedded stores are copied; checkpoints are held
    behind it         checkpoints are held as they are then
    of the log        the catalog says which queries and stores there are; the last mark of each sink, which micro-batch
                      its checkpoint is wanted of (`as_of_mark.py`)

What is in the backup lies as a run from one folder would have it:

    tidelog-checkpoints/<app>/<query>/...
    tidelog-views/<file>

Rules:
- A query without a mark in the log has written nothing: it begins anew, and its checkpoint is left out.
- A checkpoint that is of another query than the mark, or is not there, cannot be gone on with: told (`left_out`).
- A store that the catalog names and nobody has copied yet needs another round: it must be older than the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Protocol

from tidelog.control import catalog, marks
from tidelog.control.catalog import CATALOG, Catalog, View
from tidelog.control.derived import Derived
from tidelog.control.marks import TOPIC_PREFIX, Mark
from tidelog.errors import UsageError
from tidelog.pipelines.backup.as_of_mark import LastNumbers, chosen, query_id
from tidelog.pipelines.backup.holding import HeldCheckpoints
from tidelog.pipelines.backup.stores import copy_store, file_of

CHECKPOINTS, STORES = "tidelog-checkpoints", "tidelog-views"


class LogEntry(Protocol):
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def is_decided(self) -> bool: ...


class LogOfCut(Protocol):
    @property
    def topics(self) -> frozenset[str]: ...
    def entries(self, topic: str) -> Sequence[LogEntry]: ...
    def last(self, topic: str) -> Sequence[LogEntry]: ...


class AppPlaces(NamedTuple):
    """Where an app keeps what is its own, as its run has it."""

    name: str
    checkpoints: str
    stores: tuple[str, ...]  # URLs that its views would have
    default: str = ""  # that of views which do not say so themselves


@dataclass(slots=True)
class AppFiles:
    files: dict[str, str] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    missing: str = ""


class LastMark(NamedTuple):
    mark: Mark
    is_decided: bool


class AppsBackup:
    def __init__(self, apps: Sequence[AppPlaces]) -> None:
        for one in apps:
            if "://" in one.checkpoints:
                raise UsageError(
                    f"checkpoints of app {one.name} are at {one.checkpoints}, and only local ones are backed up: back"
                    " up the log alone, without --app; after a restore `tidelog rebuild` rebuilds the views"
                )
        self._apps = apps
        self._holdings = {one.name: HeldCheckpoints(Path(one.checkpoints), one.name) for one in apps}
        self._wanted = {url for one in apps for url in one.stores}
        self._copied: dict[str, str] = {}  # by URL: the copy's path; empty where there was nothing to copy

    # What a backup asks -----------------------------------------------------------------------------------------------

    def before_cut(self, scratch: str) -> None:
        for one in self._holdings.values():
            one.lock()
        for url in sorted(self._wanted - set(self._copied)):
            Path(scratch).mkdir(mode=0o700, exist_ok=True)
            target = Path(scratch, f"{len(self._copied)}.db")
            self._copied[url] = str(target) if copy_store(url, target) else ""
        for one in self._holdings.values():
            one.begin()

    def after_cut(self) -> None:
        for one in self._holdings.values():
            one.finish()

    def belonging(self, log: LogOfCut) -> AppFiles:
        known = catalog_of(log)
        made = AppFiles()
        views = [one for one in known.values() if isinstance(one, View) and one.app in self._holdings]
        unknown = {url for view in views for url in view.stores if file_of(url) is not None} - set(self._copied)
        if unknown:
            self._wanted |= unknown
            made.missing = made.missing or f"the store {min(unknown)} was not copied before the log"
        stores = made.about["stores"] = self._stores(views, made)
        files = {one["url"]: one["file"] for one in stores}
        apps = [self._app(one, known, log, made) | {"store": files.get(one.default)} for one in self._apps]
        made.about["apps"] = apps
        return made

    def release(self) -> None:
        for one in self._holdings.values():
            one.release()

    # Checkpoints ------------------------------------------------------------------------------------------------------

    def _app(self, app: AppPlaces, known: Catalog, log: LogOfCut, made: AppFiles) -> dict[str, Any]:
        queries, held = [], self._holdings[app.name]
        by_query = _last_marks(log, sinks_of(known, app.name))
        for folder in held.queries:
            found = by_query.pop(query_id(folder) or "", None)
            if found is None:
                continue
            committed = held.committed.get(folder.name, -1)
            bounds = LastNumbers.of(found.mark, is_decided=found.is_decided, committed=committed)
            picked = chosen(folder, bounds)
            if picked.missing:
                made.missing = f"{app.checkpoints}/{app.name}/{folder.name} no longer has {picked.missing}"
            below = f"{CHECKPOINTS}/{app.name}/{folder.name}"
            made.files |= {f"{below}/{name}": str(folder / name) for name in picked.names}
            batch = {"batch": bounds.offsets, "again": picked.bounds.commits < bounds.offsets}
            queries.append({"folder": folder.name, "sink": found.mark.sink, **batch})
        left_out = sorted(one.mark.sink for one in by_query.values())
        return {"name": app.name, "checkpoints": app.checkpoints, "queries": queries, "left_out": left_out}

    # Stores -----------------------------------------------------------------------------------------------------------

    def _stores(self, views: Iterable[View], made: AppFiles) -> list[dict[str, Any]]:
        by_url: dict[str, list[str]] = {}
        for view in views:
            for url in view.stores:
                by_url.setdefault(url, []).append(view.name)
        told = []
        for url, names in sorted(by_url.items()):
            copy = self._copied.get(url)
            file = f"{STORES}/{self._name_of(url, by_url)}" if copy else None
            if copy and file:
                made.files[file] = copy
            told.append({"url": url, "views": sorted(names), "file": file})
        return told

    def _name_of(self, url: str, others: Iterable[str]) -> str:
        """As it is called; with a digest where another one is called the same, unless it is an app's default."""
        path = file_of(url)
        assert path is not None
        others = [one for one in others if one != url and self._copied.get(one)]
        is_alone = all((file_of(one) or path).name != path.name for one in others)
        is_default = [one.default for one in self._apps if Path(one.default).name == path.name] == [url]
        digest = "" if is_alone or is_default else f"-{sha256(url.encode()).hexdigest()[:8]}"
        return f"{PurePosixPath(path.name).stem}{digest}{path.suffix}"


# Of the log -----------------------------------------------------------------------------------------------------------


def catalog_of(log: LogOfCut) -> Catalog:
    found: Catalog = {}
    for entry in log.entries(CATALOG.topic):
        if entry.is_decided:
            catalog.note(found, entry.key or b"", entry.value)
    return found


def sinks_of(known: Catalog, app: str) -> list[str]:
    """Of what a run of the app may go on with: generations that are live or being built, and derived topics."""
    found = []
    for one in known.values():
        if isinstance(one, View | Derived) and one.app == app:
            found += [each.sink for each in (one.current, one.building) if each is not None]
    return found


def _last_marks(log: LogOfCut, sinks: Iterable[str]) -> dict[str, LastMark]:
    """By query."""
    found: dict[str, LastMark] = {}
    for sink in sinks:
        topic = TOPIC_PREFIX + sink
        for entry in log.last(topic) if sink and topic in log.topics else ():
            if entry.value is not None:
                mark = marks.decode(entry.value)
                found[mark.query_id] = LastMark(mark, entry.is_decided)
    return found
