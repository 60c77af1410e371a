"""A read model: rows that follow the events of a store within milliseconds, folded by a function, kept in SQL.

    def project(rows, event, record):                       rows by key, as a dict; record says whose event, and when
        match event:
            case Reserved():
                rows[event.show] = {"sold": rows.get(event.show, {"sold": 0})["sold"] + 1}

    sold = ReadModel("sold", store, project, key="show", columns={"show": "string", "sold": "long"})
    with store, sold.following("sqlite:///shop.db") as model:
        receipt = store.send("A1", Reserve("anna"))
        model.wait(receipt)                                 or following(..., before_answer=True): `send` waits for it
        model.get("carmen")

It is a view: the applier of views applies it, `tidelog sql` and HTTP read it, `after=` waits for it. Its topic is that
of the events; there is no topic of its rows, so it has no feed.

    building    a generation that was folded by another version of `project` stays shown, and a new one is built beside
                it from the first event on
    live        it has all events that were there when it was begun: the catalog is written, and the store shows it

Rules:
- `version` is raised with `project` or the columns. Who has the old code goes on with the old rows until the switch.
- Events reach `project` as every reader has them: upcast, in clear where the store has a cipher. An erased value is
  null in a row.
- Order is that of the log within a partition. Events of entities in several partitions have none among them.
- `project` is pure: no effects. It is called again after a crash, and for all events in a rebuild.
- One process applies it. A second one finds the first at work, and ends with `AnotherApplier`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Condition, Event, Lock, Thread
from typing import Any

from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.control import catalog
from tidelog.control.catalog import FOLD, Editor, View
from tidelog.control.health import RETRYING
from tidelog.control.marks import Ends
from tidelog.errors import NotYetApplied, UnknownEvent, UsageError, ViewChanged
from tidelog.record.columns import Row as Record
from tidelog.schema.declaration import Declaration, Row, declare
from tidelog.sourcing.entity import SKIP, Folding
from tidelog.sourcing.event_record import EventRecord, decode
from tidelog.sourcing.personal import ERASED
from tidelog.sourcing.raised import told
from tidelog.sourcing.requests import Receipt
from tidelog.sourcing.store import EventStore
from tidelog.views import lifecycle
from tidelog.views.applier import Applier
from tidelog.views.changes import Change, NoChange
from tidelog.views.folding import FoldedRows, keyed
from tidelog.views.reading import Fold, reached
from tidelog.views.stores.opening import checked, name_of, open_store
from tidelog.views.stores.store import Ask, Store

FOR_EVER_MS = 100 * 365 * 24 * 3600 * 1000  # histories are kept for ever: nobody is away too long to go on
READY_S = 30.0
LOOK_S = 0.5  # a read model that failed is noticed by who waits within this time
FOLLOW_MS = 100  # a stop is heard within this time

log = logging.getLogger(__name__)

Project = Callable[[Any, Any, EventRecord], None]


class ReadModel:
    """Rows by key that `project(rows, event, record)` folds from the events of a store. They are kept in a SQL store,
    and are a view for all that reads views. `with model.following(url): ...` applies it in a thread of this process,
    `tidelog store follow` in one of its own.
    """

    def __init__(
        self,
        name: str,
        store: EventStore[Any],
        project: Project,
        *,
        key: str | Sequence[str],
        columns: Mapping[str, str],
        version: int = 1,
        unknown: str = "refuse",
    ) -> None:
        """Columns have the types of views: string, long, double, decimal, boolean, binary, date, timestamp, json.
        `unknown="skip"` passes events over that are not registered; otherwise they stop the read model.
        """
        names = (key,) if isinstance(key, str) else tuple(key)
        self.name, self.store, self.project = name, store, project
        self.declared = declare(columns, names, FOR_EVER_MS)
        self.fingerprint = f"{FOLD}{version}"
        self.version = version
        self._skips = unknown == SKIP

    # The fold

    def fold(self, declared: Declaration, store: Store, generation: int) -> Fold:
        """`views.folding.RowFolding`."""
        kept = keyed(store, f"read model {self.name}")

        def changes(taken: Sequence[tuple[TopicPartition, Sequence[Record]]]) -> list[Change]:
            rows = FoldedRows(declared, lambda key: kept.kept_row(generation, key), null=ERASED)
            for at, records in taken:
                for record in records:
                    rows.now_at(at, record.offset, record.timestamp)
                    self._project(rows, at, record)
            return rows.changes()

        return changes

    def _project(self, rows: FoldedRows, at: TopicPartition, row: Record) -> None:
        if Folding.parse(row) is None:
            return  # no store wrote it: `tidelog events check` tells of it
        types, what = self.store.decider.types, "a record"
        try:
            record, events = decode(row, types, self.store.cipher)
            for event in events:
                what = repr(event)
                self.project(rows, event, record)
        except UnknownEvent as error:
            if not self._skips:
                raise NoChange(f"{at}, offset {row.offset}: {error}") from error
        except Exception as error:  # of the user's function: the same again at each try
            raise NoChange(
                f"{at}, offset {row.offset}: read model {self.name} failed on {what:.200}: {told(error)}; mend"
                " project, and start it again"
            ) from error

    # Running

    @contextmanager
    def following(self, url: str, *, before_answer: bool = False) -> Iterator[FollowedModel]:
        """Beside the caller, once it shows all that was there. `before_answer`: `send` of this store object returns
        when the row is there, too.
        """
        model = FollowedModel(self, url)
        model.begin()
        if before_answer:
            self.store.before_answer.append(model.wait)
        try:
            yield model
        finally:
            if before_answer:
                self.store.before_answer.remove(model.wait)
            model.end()

    def part(self, url: str) -> ReadModelPart:
        """For `parts.run_part`, as a process of its own."""
        return ReadModelPart(self, url)


class ReadModelPart:
    """A blocking loop: `run` until it is told to stop."""

    kind = "read model"

    def __init__(self, model: ReadModel, url: str) -> None:
        self.model, self.name, self.url = model, model.name, checked(url)
        self._figures: Mapping[str, Any] = {}
        self._shown: Ends | None = None  # what readers of the store see by now
        self.worked = Event()
        self._moved = Condition()

    def figures(self) -> Mapping[str, Any]:
        found = {"inputs": [self.model.store.topics.events], "outputs": [self.name], **self._figures}
        if found.pop("error", None) is None:
            return found
        return {**found, "state": RETRYING, "error": self._figures["error"]}  # it runs, and tries one thing again

    def run(self, stopping: Event) -> None:
        with self.model.store.connect() as cluster:
            self._declare(cluster)
            store = open_store(self.url, self.name)
            applier = Applier(
                cluster,
                self.name,
                store,
                store_name=name_of(self.url),
                report=lambda figures: self._look(figures, applier, cluster, stopping),
                say=log.warning,
                max_wait_ms=FOLLOW_MS,
                folding=self.model,
            )
            try:
                applier.run()
            finally:
                self._figures = {**self._figures, "error": None}  # what it ended with is told by who supervises it
                store.close()

    def _declare(self, cluster: Cluster) -> None:
        editor = Editor(cluster, self.name)
        partitions = len(cluster.partitions(self.model.store.topics.events))
        before = editor.view()
        after = declared_view(self.model, before, self.url, partitions)
        if after != before:
            editor.write(after)

    def wait(self, after: Ends, timeout_s: float) -> bool:
        """Whether readers see all up to there within this time. For any thread."""
        with self._moved:
            return self._moved.wait_for(lambda: self._shown is not None and reached(after, self._shown), timeout_s)

    def _look(self, figures: Mapping[str, Any], applier: Applier, cluster: Cluster, stopping: Event) -> None:
        """After each step of the applier, in its thread."""
        self._figures = figures
        for number, ends in applier.caught_up().items():
            editor = Editor(cluster, self.name)  # each time: others change the record, too (`erasure/purging.py`)
            view = editor.view()
            if view is not None and view.building is not None and view.building.number == number:
                editor.write(lifecycle.switch(view, number, ends))
                log.info("read model %s: generation %d is live", self.name, number)
        if (shown := applier.shown_ends()) != self._shown:
            with self._moved:
                self._shown = shown
                self._moved.notify_all()
        if figures.get("error") is None:
            self.worked.set()
        if stopping.is_set():
            applier.stop()


def declared_view(model: ReadModel, before: View | None, url: str, partitions: int) -> View:
    """The record of the catalog with a generation for this version, begun where there is none. Pure."""
    topic, app = model.store.topics.events, f"store {model.store.name}"
    view = before
    if view is None or not view.generations:
        made = lifecycle.new_view(model.name, app=app, inputs=[topic], stores=[url])
        view = made if view is None else catalog.View(**{**_fields(made), "newest": view.newest})
    elif not all(one.is_folded and one.topic == topic for one in view.generations):
        raise UsageError(f"view {model.name} exists and is not a read model of {topic}; take another name")
    mine = [one for one in view.generations if one.fingerprint == model.fingerprint]
    if mine and mine[-1].declared != model.declared:
        raise ViewChanged(
            f"read model {model.name} has other columns or another key than version {model.version} of it was built"
            f" with; raise version= to {model.version + 1}, and it is built beside the old one"
        )
    if mine and view.live is not None and mine[-1].number < view.live:
        raise ViewChanged(
            f"read model {model.name}: version {model.version} of it was replaced, and generation {view.live} is live:"
            " nobody reads what this code would write. Start the newer code; or raise version=, and it is built again"
        )
    if not mine:
        if (building := view.building) is not None:
            view = lifecycle.forget(view, building.number)  # of a version that never came to be live
        view = lifecycle.begin(view, model.declared, model.fingerprint, partitions, folded_from=topic)
    stores = view.stores if url in view.stores else (*view.stores, url)
    return catalog.View(**{**_fields(view), "stores": stores})


def _fields(view: View) -> dict[str, Any]:
    return {name: getattr(view, name) for name in View.__slots__}


class FollowedModel:
    """A read model that is applied by a thread of this process. Reading it and waiting are for any thread."""

    def __init__(self, model: ReadModel, url: str) -> None:
        self.part = ReadModelPart(model, url)
        self._model = model
        self._stopping = Event()
        self._failed: BaseException | None = None
        self._thread = Thread(target=self._run, name=f"read-model-{model.name}", daemon=True)
        self._store = open_store(url, model.name)
        self._lock = Lock()  # a store belongs to one thread at a time

    def begin(self) -> None:
        self._thread.start()
        while self._thread.is_alive() and not self.part.wait({}, 0.05):
            pass
        self._raise_failed()

    def end(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._store.close()

    def get(self, *key: Any) -> Row | None:
        self._raise_failed()
        with self._lock:
            return self._store.get(key)[0]

    def rows(self, ask: Ask | None = None) -> list[Row]:
        """By order of key; the first hundred, unless more are asked for."""
        self._raise_failed()
        with self._lock:
            return list(self._store.read(ask or Ask()).rows)

    def wait(self, receipt: Receipt, timeout_s: float = READY_S) -> None:
        """Until the rows have what came of this command. `NotYetApplied` when the time is over."""
        if receipt.offset < 0:
            return  # it wrote nothing
        at = TopicPartition(self._model.store.topics.events, receipt.partition)
        deadline = time.monotonic() + timeout_s
        while not self.part.wait({at: receipt.offset + 1}, min(LOOK_S, max(0.0, deadline - time.monotonic()))):
            self._raise_failed()
            if time.monotonic() >= deadline:
                raise NotYetApplied(
                    f"read model {self._model.name} has not applied {at}, offset {receipt.offset}, within {timeout_s} s"
                )

    def _run(self) -> None:
        try:
            self.part.run(self._stopping)
        except BaseException as error:
            self._failed = error

    def _raise_failed(self) -> None:
        if self._failed is not None:
            raise self._failed
