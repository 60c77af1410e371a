"""Waiting until a view has what was written: from the topic that was written to, hop by hop, by the marks of sinks.

    shop@0/16B3748 ->  capture of shop: a mark whose position reaches it; its ends are what is asked for next
    orders[0] 41  -->  sink of big-orders: a mark whose sources reach 42; its ends are what is asked for next
                  -->  sink of revenue.v3: a mark whose sources reach those; its ends are what the store must have
                  -->  the store's place has reached them

Rules:
- A record counts as applied when every hop has read past it: filtered, late and dropped rows too.
- Any mark that reaches what is asked for will do; a later one only waits longer.
- Where there are several ways from the topic to the view, all of them are waited for. So are all places that are asked
  for, also where one lies on the way from another.
- What a store shows is what is waited for: during a switch that may be either generation, and either is right.
- A source of positions is an input like a topic, under its name: a capture writes marks as sinks do, whose sources are
  the database's position. A position is compared as its kind is (`control/positions.py`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from tidelog.client.backoff import waits
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.control.captures import Captured, read_captures, sink_of
from tidelog.control.marks import FIRST_LOOK, Ends, Mark, decode, partition_of_marks
from tidelog.control.positions import check, is_at_least
from tidelog.control.reading import follow, span
from tidelog.errors import NotYetApplied, UsageError
from tidelog.views.catalog import Catalog, Derived, Generation, View, read_catalog
from tidelog.views.not_yet import reports_of, sink_behind, store_behind
from tidelog.views.reading import reached
from tidelog.views.stores.store import Place, generation_of

LOOK_EVERY_S = 0.05  # at most, at a store
NUMBER = re.compile(r"[0-9]{1,19}")  # Python itself refuses to read one of thousands of digits


@dataclass(frozen=True, slots=True)
class After:
    """What must have been read: the next offset by partition, or a database's position by source."""

    offsets: Ends = field(default_factory=dict)
    positions: Mapping[str, str] = field(default_factory=dict)

    def of(self, inputs: Iterable[str]) -> After:
        """What of it a sink can have read that has these inputs."""
        offsets = {at: end for at, end in self.offsets.items() if at.topic in inputs}
        return After(offsets, {source: text for source, text in self.positions.items() if source in inputs})

    def __str__(self) -> str:
        offsets = [f"{at.topic}:{at.partition}:{end - 1}" for at, end in sorted(self.offsets.items())]
        return ", ".join([*offsets, *(f"{source}@{text}" for source, text in sorted(self.positions.items()))])


class Showing(Protocol):
    """What is looked at of a store."""

    def shown(self) -> int | None: ...

    def place(self, generation: int) -> Place | None: ...


class Hop(NamedTuple):
    """A sink: what it reads, and where it writes."""

    sink: str
    topic: str
    inputs: tuple[str, ...]


# Decisions ------------------------------------------------------------------------------------------------------------


def parse_after(text: str) -> After:
    """`TOPIC:PARTITION:OFFSET`, the offset of a record, as a producer was told it; or `CAPTURE@POSITION`, the position
    of a database after a commit. Several with commas.
    """
    offsets: dict[TopicPartition, int] = {}
    positions: dict[str, str] = {}
    for one in text.split(","):
        source, at_sign, position = one.strip().partition("@")
        topic, _, rest = one.strip().partition(":")
        index, _, offset = rest.partition(":")
        if at_sign and source:
            known = positions.get(source)
            positions[source] = check(position) if known is None else f"{known},{check(position)}"
        elif topic and NUMBER.fullmatch(index) and NUMBER.fullmatch(offset):
            at = TopicPartition(topic, int(index))
            offsets[at] = max(offsets.get(at, 0), int(offset) + 1)
        else:
            raise UsageError(
                f"{one!r} is not a position to wait for; write TOPIC:PARTITION:OFFSET, or CAPTURE@POSITION"
            )
    return After(offsets, positions)


def has_read(mark: Mark, after: After) -> bool:
    """Whether the sink had read that far."""
    there = mark.sources.positions
    return reached(after.offsets, mark.sources.offsets) and all(
        source in there and is_at_least(there[source], text) for source, text in after.positions.items()
    )


def hops(catalog: Catalog) -> dict[str, Hop]:
    """By the topic that they write."""
    found = {}
    for entry in catalog.values():
        if isinstance(entry, View):
            for one in entry.generations:
                found[one.topic] = Hop(one.sink, one.topic, _read_by(entry, catalog))
        else:
            found[entry.topic] = Hop(entry.sink, entry.topic, _read_by(entry, catalog))
    return found


def captured_hops(captures: Mapping[str, Captured]) -> dict[str, Hop]:
    """Of captures: what each reads is its database, under its name."""
    return {
        table.topic: Hop(sink_of(capture.name), table.topic, (capture.name,))
        for capture in captures.values()
        for table in capture.tables.values()
    }


def _read_by(entry: View | Derived, catalog: Catalog) -> tuple[str, ...]:
    """Topics. A view that is read has its own name in the catalog: what is read is the live generation, which cannot
    change while it has readers. A topic may have the same name, so that counts too.
    """
    views = [catalog.get(("view", name)) for name in entry.inputs if name != entry.name]
    live = [one.current.topic for one in views if isinstance(one, View) and one.current is not None]
    return tuple(dict.fromkeys([*entry.inputs, *live]))


def upstream(known: Mapping[str, Hop], topic: str, asked: Iterable[str]) -> list[str]:
    """Topics on a way from one of `asked` to `topic`, itself left out, those that are read first coming first. One that
    is asked for is among them where it comes from another one that is.
    """
    wanted, ordered, seen = set(asked), list[str](), set[str]()

    def leads(name: str) -> bool:
        if name in seen:
            return name in ordered or name in wanted
        seen.add(name)
        above = [leads(one) for one in (known[name].inputs if name in known else ()) if one != name]
        if any(above):
            ordered.append(name)
        return name in ordered or name in wanted

    if not leads(topic):
        return []
    return [name for name in ordered if name != topic]


# The shell ------------------------------------------------------------------------------------------------------------


def wait(cluster: Cluster, view: str, after: After, timeout_s: float, *, store: Showing) -> Place:
    """Until the view, as `store` shows it, has all that `after` names. `NotYetApplied` when the time is over."""
    deadline = time.monotonic() + timeout_s
    known: dict[int, Ends] = {}
    catalog = read_catalog(cluster)
    for pause in waits():
        shown, place, number = store.shown(), None, 0
        if shown is not None:
            number = generation_of(shown)
            if number not in known:
                found = _generation(catalog, view, number)
                if found is None:
                    catalog = read_catalog(cluster)
                    found = _generation(catalog, view, number)
                if found is not None:
                    known[number] = ends_of(cluster, catalog, found, after, deadline)
            place = store.place(shown)
            if place is not None and number in known and reached(known[number], place.ends):
                return place
        if time.monotonic() > deadline:
            wanted, at = known.get(number, {}), {} if place is None else place.ends
            raise NotYetApplied(store_behind(view, after, wanted, at, reports_of(cluster), time.time() * 1000))
        time.sleep(min(pause, LOOK_EVERY_S))
    raise AssertionError("waits never end")


def ends_of(cluster: Cluster, catalog: Catalog, generation: Generation, after: After, deadline: float) -> Ends:
    """Where the generation's topic has all of it. Waits until each sink on the way has read that far."""
    asked = {at.topic for at in after.offsets} | set(after.positions)
    if asked == {generation.topic}:
        return after.offsets
    known = hops(catalog)
    if after.positions:
        captures = read_captures(cluster)
        if unknown := sorted(set(after.positions) - set(captures)):
            names = ", ".join(sorted(captures)) or "none"
            raise UsageError(f"no capture is called {unknown[0]!r}; there are: {names}")
        known |= captured_hops(captures)
    through = upstream(known, generation.topic, asked)
    reads = known[generation.topic].inputs
    if not through and not asked & set(reads):
        raise UsageError(
            f"{generation.topic} does not come from {', '.join(sorted(asked))}; it is made of {', '.join(reads) or '-'}"
        )
    offsets = dict(after.offsets)
    for topic in (*through, generation.topic):
        hop = known[topic]
        mark = _mark(cluster, hop, After(offsets, after.positions).of(hop.inputs), deadline)
        offsets |= {at: max(end, offsets.get(at, 0)) for at, end in mark.ends.items() if at.topic == topic}
    return {at: end for at, end in offsets.items() if at.topic == generation.topic}


def _generation(catalog: Catalog, name: str, number: int) -> Generation | None:
    view = catalog.get(("view", name))
    generations: Sequence[Generation] = view.generations if isinstance(view, View) else ()
    return next((one for one in generations if one.number == number), None)


def _mark(cluster: Cluster, hop: Hop, after: After, deadline: float) -> Mark:
    """The first one from now on, or the last one by now, that has read that far."""
    at = partition_of_marks(hop.sink)
    last: Mark | None = None
    there = span(cluster, at, committed=True)
    if there is None:
        raise NotYetApplied(f"{at.topic} is not there: the pipeline or the capture that writes it has not begun")
    for _, row in follow(cluster, {at: max(there.start, there.end - FIRST_LOOK)}, deadline):
        mark = None if row.value is None else decode(row.value)
        if mark is not None and has_read(mark, after):
            return mark
        last = mark or last
    raise NotYetApplied(sink_behind(hop, after, last, reports_of(cluster), time.time() * 1000))
