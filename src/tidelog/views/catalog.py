"""The catalog: which views and derived topics there are, and which generation of a view is live. Decisions are pure.

    topic    __tidelog.views, one partition, compacted
    key      {"v":1,"kind":"view","name":"revenue"}          or kind "topic", for a derived topic
    value    {"app":A,"sink":S,"topic":T,"inputs":[TOPIC,...],"at_ms":MS,"generations":[...]}                 of a topic
             {"app":A,"inputs":[...],"stores":[URL,...],"live":3,"newest":3,"at_ms":MS,"generations":[         of a view
               {"number":3,"topic":"revenue.v3","sink":"revenue.v3","fingerprint":F,"partitions":1,
                "declared":{...},"live":{"revenue.v3":{"0":12}}},...]}

States of a generation, and who sets them:

    building    `begin`, by a run that declares the view for the first time, or by a rebuild; "live" is null
    live        `switch`, once it has caught up: "live" is where its topic ended then. This record is the switch
    old         `switch` to the next one; stores and feeds leave it
    gone        `forget`, after the feed horizon, or by command

Rules:
- One record is a whole view, so a switch is one append. Who writes it holds the view's transactional id
  (`tidelog.view.<name>`), read it after taking that, and so never writes over what it has not seen.
- The first generation of a view is live as soon as it is begun: nobody has another one to look at.
- A declaration that has changed may go on only if it grew (`declaration.grows_to`) and its plan is otherwise the same;
  otherwise the error names `tidelog rebuild`.
- A number is never given twice ("newest" is the last one that was): stores and checkpoints of a generation that was
  given up may still be there. So a view that is taken out leaves a record without generations: nobody is shown it, and
  if it is declared again, it goes on after its last number.
- A generation whose "sink" is empty has the topic of any producer, which has no marks. If its
  fingerprint is that of a fold, its rows are not in the topic: the program that has the fold makes them (`folding.py`).
- A record that is not an entry is passed over with a warning: anybody's may stand there, and one view's readers do
  not fail by it. One in a newer format is refused: what it says counts, and cannot be read.
- A URL of a store is kept as it was written, with `${NAME}` for a secret, never with the secret.
- Derived topics have generations, too: `derived.py`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from warnings import warn

from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.control import offsets
from tidelog.control.marks import Ends
from tidelog.control.owner import Owner
from tidelog.control.reading import read_all
from tidelog.errors import OpenTransaction, UsageError, ViewChanged
from tidelog.views import derived
from tidelog.views.declaration import Declaration, check_name, from_fields, grows_to, to_fields
from tidelog.views.derived import Derived
from tidelog.views.not_yet import check_not_coming
from tidelog.views.stores.opening import checked

CATALOG = TopicPartition("__tidelog.views", 0)
VERSION = 1
VIEW, TOPIC = "view", "topic"
TAKEN_OUT = "taken out"  # of a view, in memory alone
FOLD = "fold:"  # what the fingerprint of a fold begins with
OWNER_PREFIX = "tidelog.view."
PATIENCE_S = 2.0
NOTHING: Mapping[str, Any] = {}
NO_ENTRY = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Generation:
    number: int
    topic: str
    sink: str
    fingerprint: str  # of the plan that fills it
    partitions: int
    declared: Declaration
    live: Ends | None = None
    captured: Any = None  # of a captured table, which no catalog has: how its envelopes say it (`captured.py`)
    code: Mapping[str, str] = field(default_factory=dict)  # a digest for each part of what fills it; none: not known
    reads: Mapping[str, int] = field(default_factory=dict)  # generations of derived topics that it was begun with

    @property
    def is_folded(self) -> bool:
        """Whether its topic has what its rows are made of, and not its rows."""
        return not self.sink and self.fingerprint.startswith(FOLD)


@dataclass(frozen=True, slots=True)
class View:
    name: str
    app: str
    inputs: tuple[str, ...]
    stores: tuple[str, ...]
    generations: tuple[Generation, ...]
    live: int | None
    at_ms: int = 0
    newest: int = 0  # the last number that was given, also to a generation that is forgotten

    def generation(self, number: int) -> Generation:
        return next(one for one in self.generations if one.number == number)

    @property
    def current(self) -> Generation | None:
        """The live one."""
        return None if self.live is None else self.generation(self.live)

    @property
    def building(self) -> Generation | None:
        """The one that will be live next."""
        newest = self.generations[-1] if self.generations else None
        return newest if newest is not None and newest.live is None else None


# Decisions ------------------------------------------------------------------------------------------------------------


def new_view(name: str, *, app: str, inputs: Sequence[str], stores: Sequence[str]) -> View:
    return View(check_name(name), app, tuple(inputs), tuple(map(checked, stores)), (), None)


def of_topic(name: str, topic: str, declared: Declaration, partitions: int, stores: Sequence[str] = ()) -> View:
    """A view of a topic that any producer fills with changes. It has no marks: its own offsets are its place."""
    made = Generation(1, topic, "", "", partitions, declared, {})
    return View(check_name(name), "", (), tuple(map(checked, stores)), (made,), 1, newest=1)


def begin(
    view: View,
    declared: Declaration,
    fingerprint: str,
    partitions: int,
    folded_from: str | None = None,
    *,
    code: Mapping[str, str] = NOTHING,
    reads: Mapping[str, int] = NOTHING,
) -> View:
    """One more generation, to be built; from the rows of a topic of its own, or folded from another one."""
    if view.building is not None:
        raise UsageError(
            f"generation {view.building.number} of view {view.name} is being built; wait for it, or give it up with"
            f" `tidelog views forget {view.name} --generation {view.building.number}`"
        )
    number = max([view.newest, *(one.number for one in view.generations)]) + 1
    topic = f"{view.name}.v{number}"
    first = view.live is None
    sink = topic if folded_from is None else ""
    made = Generation(number, folded_from or topic, sink, fingerprint, partitions, declared, {} if first else None)
    made = replace(made, code=dict(code), reads=dict(reads))
    return replace(view, generations=(*view.generations, made), live=number if first else view.live, newest=number)


def go_on(
    view: View, declared: Declaration, fingerprint: str, code: Mapping[str, str] = NOTHING, what: str = ""
) -> View:
    """The live generation with today's declaration and code; refused where it is not the same, or that and more
    columns. `what` says what has changed in the code, where that is known.
    """
    current = view.current
    assert current is not None, "a view that was begun has a live generation"
    is_same = current.fingerprint == fingerprint
    if not grows_to(current.declared, declared) or (not is_same and current.declared == declared):
        raise ViewChanged(
            f"view {view.name} is declared otherwise than generation {current.number} was built"
            f" ({_difference(current, declared, what)}); `tidelog rebuild {view.name} --app FILE` builds a new one"
            " beside it"
        )
    grown = replace(current, declared=declared, fingerprint=fingerprint, code=dict(code or current.code))
    return view if grown == current else with_current(view, grown)


def with_current(view: View, current: Generation) -> View:
    """The live generation, said otherwise."""
    return replace(view, generations=tuple(current if one.number == view.live else one for one in view.generations))


def _difference(current: Generation, declared: Declaration, what: str) -> str:
    if current.declared.key != declared.key:
        return f"its key was {', '.join(current.declared.key)} and is {', '.join(declared.key)}"
    if current.declared.columns != declared.columns:
        return f"its columns were {_columns(current.declared)} and are {_columns(declared)}"
    if current.declared.horizon_ms != declared.horizon_ms:
        return f"its horizon was {current.declared.horizon_ms} ms and is {declared.horizon_ms}"
    return f"what computes it has changed{f': {what}' if what else ''}"


def _columns(declared: Declaration) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in declared.columns)


def check_own_rows(view: View, what: str) -> None:
    """`what` is told from the rows of a view's topic, which a view that is folded has not."""
    folded = next((one for one in view.generations if one.is_folded), None)
    if folded is not None:
        raise UsageError(
            f"view {view.name} is a read model of {folded.topic}, and its rows are in no topic: it has no {what}; read"
            f" {folded.topic} itself, or declare the view in an app"
        )


def switch(view: View, number: int, ends: Ends) -> View:
    """Generation `number` is live from these ends of its topic on."""
    if view.building is None or view.building.number != number:
        raise UsageError(f"generation {number} of view {view.name} is not being built; nothing to switch to")
    built = replace(view.building, live=dict(ends))
    return replace(view, generations=(*view.generations[:-1], built), live=number)


def forget(view: View, number: int) -> View:
    if number == view.live:
        raise UsageError(f"generation {number} of view {view.name} is live; it cannot be forgotten")
    return replace(view, generations=tuple(one for one in view.generations if one.number != number))


def take_out(view: View) -> View:
    """What is left of a view in the catalog: which number was its last."""
    newest = max([view.newest, *(one.number for one in view.generations)])
    return View(view.name, "", (), (), (), None, newest=newest)


# Bytes ----------------------------------------------------------------------------------------------------------------


def encode(entry: View | Derived) -> tuple[bytes, bytes]:
    kind = VIEW if isinstance(entry, View) else TOPIC
    fields: dict[str, Any] = {"app": entry.app, "inputs": list(entry.inputs), "at_ms": entry.at_ms}
    if isinstance(entry, View):
        fields |= {"stores": list(entry.stores), "live": entry.live, "newest": entry.newest}
        fields |= {"generations": [_generation_fields(one) for one in entry.generations]}
    else:
        fields |= derived.to_fields(entry)
    return _text({"v": VERSION, "kind": kind, "name": entry.name}), _text(fields)


def decode(key: bytes, value: bytes) -> View | Derived | None:
    """None for a kind that is newer than this version; a newer version of a known kind is refused. One of NO_ENTRY for
    what is not an entry.
    """
    named, fields = json.loads(key), json.loads(value)
    if named["kind"] not in (VIEW, TOPIC):
        return None
    if named["v"] > VERSION:
        raise UsageError(
            f"{named['kind']} {named['name']} is written in format {named['v']}, and this Tidelog knows {VERSION};"
            " use the newer one"
        )
    try:
        return _entry(named, fields)
    except UsageError as error:  # of a declaration that nobody could have made
        raise ValueError(str(error)) from error


def _entry(named: Mapping[str, Any], fields: Mapping[str, Any]) -> View | Derived:
    told = (str(named["name"]), str(fields["app"]))
    inputs, at_ms = tuple(map(str, fields["inputs"])), int(fields["at_ms"])
    if named["kind"] == TOPIC:
        return derived.from_fields(*told, inputs, at_ms, fields)
    generations = tuple(_generation(one) for one in fields["generations"])
    numbers, live = [one.number for one in generations], fields["live"]
    if live is not None and live not in numbers:
        raise ValueError(f"generation {live!r} is live, and there are {numbers}")
    newest = max([int(fields.get("newest", 0)), *numbers])
    return View(*told, inputs, tuple(map(str, fields["stores"])), generations, live, at_ms, newest)


def _generation_fields(one: Generation) -> dict[str, Any]:
    return {
        "number": one.number,
        "topic": one.topic,
        "sink": one.sink,
        "fingerprint": one.fingerprint,
        "partitions": one.partitions,
        "declared": to_fields(one.declared),
        "live": None if one.live is None else offsets.to_fields(one.live),
        **({"code": dict(one.code)} if one.code else {}),
        **({"reads": dict(one.reads)} if one.reads else {}),
    }


def _generation(fields: Mapping[str, Any]) -> Generation:
    return Generation(
        int(fields["number"]),
        str(fields["topic"]),
        str(fields["sink"]),
        str(fields["fingerprint"]),
        int(fields["partitions"]),
        from_fields(fields["declared"]),
        None if fields["live"] is None else offsets.from_fields(fields["live"]),
        code=derived.texts(fields.get("code", {})),
        reads=derived.numbers(fields.get("reads", {})),
    )


def _text(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


# The topic ------------------------------------------------------------------------------------------------------------

Catalog = dict[tuple[str, str], View | Derived]  # by kind and name


def read_catalog(cluster: Cluster, *, patience_s: float = PATIENCE_S) -> Catalog:
    """All that is committed by now; empty where there is no such topic yet.

    A commit is answered before it can be read, and somebody's open transaction holds back what lies behind it: so this
    reads up to the very end, and goes without what is still open there after `patience_s`.
    """
    found: Catalog = {}
    try:
        _read(cluster, found, patience_s)
    except OpenTransaction:
        warn(f"{CATALOG} could not be read up to its end: a transaction is open there", stacklevel=2)
    return found


def _read(cluster: Cluster, catalog: Catalog, patience_s: float) -> None:
    for row in read_all(cluster, CATALOG, within_s=patience_s):
        note(catalog, row.key or b"", row.value)


def note(catalog: Catalog, key: bytes, value: bytes | None) -> None:
    """One record of the topic, applied."""
    try:
        if value is None:
            named = json.loads(key)
            catalog.pop((named["kind"], named["name"]), None)
            if named["kind"] == VIEW:
                catalog.pop((TAKEN_OUT, named["name"]), None)
        elif (entry := decode(key, value)) is not None:
            _enter(catalog, entry)
    except NO_ENTRY as error:
        warn(
            f"{CATALOG} has a record that is not an entry of the catalog (key {key[:80]!r}: {error!r:.80}); it is"
            " passed over; who else writes there?",
            stacklevel=2,
        )


def _enter(catalog: Catalog, entry: View | Derived) -> None:
    if not isinstance(entry, View):
        catalog[TOPIC, entry.name] = entry
        return
    here, elsewhere = (VIEW, TAKEN_OUT) if entry.generations else (TAKEN_OUT, VIEW)
    catalog[here, entry.name] = entry
    catalog.pop((elsewhere, entry.name), None)


def find_view(cluster: Cluster, name: str, *, whole: bool = False) -> View:
    """`whole`: as it is and not as it was, for who drops what the record does not name; `OpenTransaction` where
    somebody's hides it.
    """
    catalog: Catalog = {} if whole else read_catalog(cluster)
    if whole:
        _read(cluster, catalog, cluster.timeout_s)
    found = catalog.get((VIEW, name))
    if not isinstance(found, View):
        check_not_coming(cluster, name)
        names = ", ".join(sorted(n for kind, n in catalog if kind == VIEW)) or "none"
        raise UsageError(f"no view {name!r}; there are: {names}")
    return found


class Editor:
    """Who changes one view's record: everybody else who would is fenced."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.name = check_name(name)
        ensure_catalog(cluster)
        self._owner = Owner(cluster, OWNER_PREFIX + name)
        self._owner.begin()

    def view(self) -> View | None:
        """As it is now, and will be until this editor writes it; without generations where it was taken out."""
        catalog = self._catalog()
        found = catalog.get((VIEW, self.name)) or catalog.get((TAKEN_OUT, self.name))
        return found if isinstance(found, View) else None

    def derived(self, name: str) -> Derived | None:
        """A topic of the app whose topics this one edits (`topics_editor`), as it is now."""
        found = self._catalog().get((TOPIC, name))
        return found if isinstance(found, Derived) else None

    def _catalog(self) -> Catalog:
        catalog: Catalog = {}
        for row in self._owner.rows(CATALOG):
            note(catalog, row.key or b"", row.value)
        return catalog

    def write(self, entry: View | Derived) -> None:
        now_ms = int(time.time() * 1000)
        with self._owner.transaction() as outgoing:
            outgoing.send(CATALOG, [(*encode(replace(entry, at_ms=now_ms)), (), now_ms)])


def topics_editor(cluster: Cluster, app: str) -> Editor:
    """Who changes the records of an app's derived topics, all of them."""
    return Editor(cluster, f"{app}-topics")


def find_derived(catalog: Catalog, name: str) -> Derived | None:
    found = catalog.get((TOPIC, name))
    return found if isinstance(found, Derived) else None


def ensure_catalog(cluster: Cluster) -> None:
    topics.ensure(cluster, CATALOG.topic, partitions=1, configs={"cleanup.policy": "compact"})
