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
- A wait for a time takes of every hop a mark whose watermark is at or above it; a hop that holds nothing back needs to
  have read what the one before it wrote (`docs/decisions/watermarks_in_marks.md`). Where an input that is silent holds
  the watermark, and nothing but a record can move it, the wait is over at once (`HeldBack`).
- A source of positions is an input like a topic, under its name: a capture writes marks as sinks do, whose sources are
  the database's position. A position is compared as its kind is (`control/positions.py`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, Protocol

from tidelog.client.backoff import waits
from tidelog.client.cluster import UNKNOWN_TOPIC, Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import LATEST, READ_COMMITTED, list_offsets
from tidelog.control.captures import Captured, read_captures, sink_of
from tidelog.control.catalog import Catalog, Generation, View, read_catalog
from tidelog.control.derived import FIRST, Derived
from tidelog.control.marks import FIRST_LOOK, NOTHING_HELD, Ends, Mark, decode, partition_of_marks, read_mark
from tidelog.control.positions import check, is_at_least
from tidelog.control.reading import follow, span
from tidelog.control.starting import reports_of
from tidelog.errors import BrokerError, HeldBack, NotYetApplied, UsageError
from tidelog.views.awaited import Awaited, holding, is_at, milliseconds_of
from tidelog.views.not_yet import held_back, sink_behind, store_behind
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


NOTHING = After()


class Showing(Protocol):
    """What is looked at of a store."""

    def shown(self) -> int | None: ...

    def place(self, generation: int) -> Place | None: ...


class Hop(NamedTuple):
    """A sink: what it reads, and where it writes."""

    sink: str
    topic: str
    inputs: tuple[str, ...]
    aside: str = ""  # the topic that has its rows, while they are being put into `topic`


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


def roots(known: Mapping[str, Hop], topic: str) -> set[str]:
    """Topics that it is made of, over all hops, and that no sink writes."""
    found, seen, waiting = set[str](), set[str](), [topic]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in known:
            waiting += known[name].inputs
        else:
            found.add(name)
    return found


def hops(catalog: Catalog) -> dict[str, Hop]:
    """By the topic that they write."""
    found = {}
    for entry in catalog.values():
        if isinstance(entry, View):
            for one in entry.generations:
                found[one.topic] = Hop(one.sink, one.topic, _read_by(entry, one.reads, catalog))
        else:  # of two that have one topic the later is in place of the other
            for told in (*entry.generations, entry.current):
                found[told.topic] = Hop(told.sink, told.topic, _read_by(entry, told.reads, catalog), told.aside)
    return found


def captured_hops(captures: Mapping[str, Captured]) -> dict[str, Hop]:
    """Of captures: what each reads is its database, under its name."""
    return {
        table.topic: Hop(sink_of(capture.name), table.topic, (capture.name,))
        for capture in captures.values()
        for table in capture.tables.values()
    }


def _read_by(entry: View | Derived, reads: Mapping[str, int], catalog: Catalog) -> tuple[str, ...]:
    """Topics of one generation's inputs. Of a derived topic that is the generation with which it was begun: what others
    have does not come here. A view that is read has its own name in the catalog: what is read is its live generation,
    which cannot change while it has readers. A topic may have the same name, so that counts too.
    """
    found = list[str]()
    for name in entry.inputs:
        derived = catalog.get(("topic", name)) if name != entry.name else None
        found.append(derived.topic_of(reads.get(name, FIRST)) if isinstance(derived, Derived) else name)
    views = [catalog.get(("view", name)) for name in entry.inputs if name != entry.name]
    live = [one.current.topic for one in views if isinstance(one, View) and one.current is not None]
    return tuple(dict.fromkeys([*found, *live]))


def _has_written(hop: Hop, mark: Mark) -> bool:
    """Whether the mark tells of the hop's topic. While rows are put in place, the last one tells of where they are
    aside.
    """
    return not hop.aside or any(at.topic == hop.topic for at in mark.ends)


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


class WayToView(NamedTuple):
    """Where a generation's topic has what was asked for, and the marks that led there, by the topics written."""

    ends: Ends
    marks: Mapping[str, Mark]


def shown_place(store: Showing) -> Place | None:
    """How far what readers see is applied; None while there is nothing to see: its first micro-batch is to come."""
    shown = store.shown()
    return None if shown is None else store.place(shown)


def wait(
    cluster: Cluster,
    view: str,
    after: After | None = None,
    timeout_s: float = 10.0,
    *,
    store: Showing,
    event_time: datetime | int | None = None,
) -> Awaited:
    """Until the view, as `store` shows it, has all that `after` names: by default what is in its inputs now. With
    `event_time` (milliseconds since 1970, or a datetime), until all that waits for the watermark is shown up to then.

    `NotYetApplied` when the time is over; `HeldBack`, at once, where an input that is silent holds the watermark.
    """
    deadline = time.monotonic() + timeout_s
    at_ms = None if event_time is None else milliseconds_of(event_time)
    known: dict[int, WayToView] = {}
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
                    known[number] = way_to(cluster, catalog, found, after, deadline, at_ms)
            place = shown_place(store)
            number = number if place is None else generation_of(place.generation)
            if place is not None and number in known and reached(known[number].ends, place.ends):
                return Awaited(place, known[number].marks)
        if time.monotonic() > deadline:
            wanted, at = known[number].ends if number in known else {}, {} if place is None else place.ends
            told = "what is in its inputs" if after is None else after
            raise NotYetApplied(store_behind(view, told, wanted, at, reports_of(cluster), time.time() * 1000))
        time.sleep(min(pause, LOOK_EVERY_S))
    raise AssertionError("waits never end")


def way_to(
    cluster: Cluster,
    catalog: Catalog,
    generation: Generation,
    after: After | None,
    deadline: float,
    event_time_ms: int | None = None,
) -> WayToView:
    """Where the generation's topic has all of it. Waits until each sink on the way has read that far, and is at the
    time. Without `after` that is what is in the inputs now, or, for a time, whatever they have.
    """
    known = hops(catalog)
    timed, first = frozenset(known), roots(known, generation.topic) if generation.sink else {generation.topic}
    first -= _other_names(catalog)
    if event_time_ms is not None and not generation.sink:
        raise UsageError(f"{generation.topic} is written by others, who tell no watermark; wait without a time")
    if after is None:
        after = NOTHING if event_time_ms is not None else inputs_now(cluster, first)
    asked = {at.topic for at in after.offsets} | set(after.positions)
    if asked == {generation.topic} and event_time_ms is None:
        return WayToView(after.offsets, {})
    if after.positions:
        known |= _captured(cluster, after)
    through = upstream(known, generation.topic, asked if event_time_ms is None else asked | first)
    reads = known[generation.topic].inputs
    if asked and not through and not asked & set(reads):
        raise UsageError(
            f"{generation.topic} does not come from {', '.join(sorted(asked))}; it is made of {', '.join(reads) or '-'}"
        )
    offsets, marks = dict(after.offsets), dict[str, Mark]()
    for topic in (*through, generation.topic):
        hop = known[topic]
        time_ms = event_time_ms if topic in timed else None  # a capture holds nothing back
        wanted = WantedOfHop(After(offsets, after.positions).of(hop.inputs), time_ms)
        if wanted.is_nothing:
            continue
        marks[topic] = mark = _mark(cluster, hop, wanted, deadline)
        offsets |= {at: max(end, offsets.get(at, 0)) for at, end in mark.ends.items() if at.topic == topic}
    if event_time_ms is not None and all(one.watermark_ms == NOTHING_HELD for one in marks.values()):
        raise UsageError(
            f"nothing on the way to {generation.topic} waits for a watermark: a row is shown as soon as it is read;"
            " wait without a time"
        )
    return WayToView({at: end for at, end in offsets.items() if at.topic == generation.topic}, marks)


def _other_names(catalog: Catalog) -> set[str]:
    """Of outputs whose records are in a topic of another name: what may lie under their own is not read."""
    entries = [(entry.name, entry.current) for entry in catalog.values()]
    return {name for name, live in entries if live is not None and live.topic != name}


def inputs_now(cluster: Cluster, topics: Iterable[str]) -> After:
    """What is in them by now, of that which is committed. One that is not there has nothing."""
    places: list[TopicPartition] = []
    for topic in sorted(topics):
        try:
            places += cluster.partitions(topic, auto_create=False)
        except BrokerError as error:
            if error.code not in UNKNOWN_TOPIC:
                raise
    found = list_offsets(cluster, dict.fromkeys(places, LATEST), isolation=READ_COMMITTED) if places else {}
    return After({at: one.offset for at, one in found.items()})


def _captured(cluster: Cluster, after: After) -> dict[str, Hop]:
    captures = read_captures(cluster)
    if unknown := sorted(set(after.positions) - set(captures)):
        names = ", ".join(sorted(captures)) or "none"
        raise UsageError(f"no capture is called {unknown[0]!r}; there are: {names}")
    return captured_hops(captures)


def _generation(catalog: Catalog, name: str, number: int) -> Generation | None:
    view = catalog.get(("view", name))
    generations: Sequence[Generation] = view.generations if isinstance(view, View) else ()
    return next((one for one in generations if one.number == number), None)


class WantedOfHop(NamedTuple):
    """Of one hop."""

    after: After
    event_time_ms: int | None

    @property
    def is_nothing(self) -> bool:
        """Also of a sink that has not read anything, and has no mark yet."""
        return self.event_time_ms is None and not self.after.positions and not any(self.after.offsets.values())


def _mark(cluster: Cluster, hop: Hop, wanted: WantedOfHop, deadline: float) -> Mark:
    """The first one from now on, or one by now, that has read that far, and is at that time."""
    last: Mark | None = None
    for mark in _marks(cluster, hop, deadline, only_last=wanted.event_time_ms is not None):
        if has_read(mark, wanted.after) and is_at(mark, wanted.event_time_ms) and _has_written(hop, mark):
            return mark
        if silent := _silent(cluster, mark, wanted):
            raise HeldBack(held_back(hop, mark, wanted.event_time_ms, silent))
        last = mark
    told = sink_behind(hop, wanted.after, last, reports_of(cluster), time.time() * 1000, wanted.event_time_ms)
    raise NotYetApplied(told)


def _marks(cluster: Cluster, hop: Hop, deadline: float, *, only_last: bool) -> Iterator[Mark]:
    """Some of the last by now, or the very last, and then those that come. To a time only the last one's word counts:
    an older one may be of code that held nothing back.
    """
    at = partition_of_marks(hop.sink)
    there = span(cluster, at, committed=True)
    if there is None:
        raise NotYetApplied(f"{at.topic} is not there: the pipeline or the capture that writes it has not begun")
    begin = there.end if only_last else max(there.start, there.end - FIRST_LOOK)
    if only_last and (last := read_mark(cluster, hop.sink, there.end)) is not None:
        yield last
    yield from (decode(row.value) for _, row in follow(cluster, {at: begin}, deadline) if row.value is not None)


def _silent(cluster: Cluster, mark: Mark, wanted: WantedOfHop) -> dict[str, int]:
    """Inputs that hold the time back, and have nothing that the sink has not read."""
    held = holding(mark, wanted.event_time_ms)
    now = inputs_now(cluster, held).offsets if held else {}
    behind = {at.topic for at, end in now.items() if mark.sources.offsets.get(at, 0) < end}
    return {topic: at for topic, at in held.items() if topic not in behind}
