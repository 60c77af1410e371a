"""The catalog: which views and derived topics there are, and which generation of a view is live.

    topic    __tidelog.views, one partition, compacted
    key      {"v":1,"kind":"view","name":"revenue"}          or kind "topic", for a derived topic
    value    {"app":A,"sink":S,"topic":T,"inputs":[TOPIC,...],"at_ms":MS,"generations":[...]}                 of a topic
             {"app":A,"inputs":[...],"stores":[URL,...],"live":3,"newest":3,"at_ms":MS,"generations":[         of a view
               {"number":3,"topic":"revenue.v3","sink":"revenue.v3","fingerprint":F,"partitions":1,
                "declared":{...},"live":{"revenue.v3":{"0":12}}},...]}

Rules:
- One record is a whole view, so a switch is one append. Who writes it holds the view's transactional id
  (`tidelog.view.<name>`), read it after taking that, and so never writes over what it has not seen.
- What becomes of a view's generations is decided in `views/lifecycle.py`, and of a derived topic's in `derived.py`.
- "newest" is the last number that was given to a generation; a view without generations was taken out.
- A generation whose "sink" is empty has the topic of any producer, which has no marks. If its fingerprint is that of a
  fold, its rows are not in the topic: the program that has the fold makes them (`views/folding.py`).
- A record that is not an entry is passed over with a warning: anybody's may stand there, and one view's readers do
  not fail by it. One in a newer format is refused: what it says counts, and cannot be read.
- A URL of a store is kept as it was written, with `${NAME}` for a secret, never with the secret.
- The topic has a third kind: records that an output passes (`passed.py`).
- Most who read it never write: what an editor needs is loaded when there is one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from warnings import warn

from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.control import derived, offsets
from tidelog.control.derived import Derived
from tidelog.control.marks import Ends
from tidelog.control.reading import read_all
from tidelog.errors import OpenTransaction, UsageError
from tidelog.schema.declaration import Declaration, check_name, from_fields, to_fields

CATALOG = TopicPartition("__tidelog.views", 0)
VERSION = 1
VIEW, TOPIC = "view", "topic"
TAKEN_OUT = "taken out"  # of a view, in memory alone
FOLD = "fold:"  # what the fingerprint of a fold begins with
OWNER_PREFIX = "tidelog.view."
PATIENCE_S = 2.0
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
    captured: Any = None  # of a captured table, which no catalog has: how its envelopes say it (`views/captured.py`)
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
        from tidelog.control.starting import check_not_coming

        check_not_coming(cluster, name)
        names = ", ".join(sorted(n for kind, n in catalog if kind == VIEW)) or "none"
        raise UsageError(f"no view {name!r}; there are: {names}")
    return found


class Editor:
    """Who changes one view's record: everybody else who would is fenced."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.name = check_name(name)
        from tidelog.control.owner import Owner

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
    return Editor(cluster, of_topics(app))


def of_topics(app: str) -> str:
    """By which an app's derived topics are written to the catalog."""
    return f"{app}-topics"


def find_derived(catalog: Catalog, name: str) -> Derived | None:
    found = catalog.get((TOPIC, name))
    return found if isinstance(found, Derived) else None


def ensure_catalog(cluster: Cluster) -> None:
    from tidelog.client.admin import topics

    topics.ensure(cluster, CATALOG.topic, partitions=1, configs={"cleanup.policy": "compact"})
