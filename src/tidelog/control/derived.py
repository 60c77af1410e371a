"""Derived topics in the catalog: generations of a topic that a pipeline writes. Decisions are pure.

    generation 1    topic T, sink APP.T: as it was before there were generations
    generation N    topic T.vN, sink APP.T.vN; or, where it was put in place, topic T again
    building        `begin`, by a rebuild; "live" is null
    live            `switch`: "live" is where its topic ended then. This record is the switch
    not whole yet   in place: "aside" names the topic that has its rows, until all of them are in T (`placed`)
    gone            `forget`

Rules (docs/decisions/derived_topics_have_generations.md):
- A number is never given twice.
- A record of before has one generation, whose code is not known: whoever writes it next enters theirs (`go_on`).
- "reads" says which generation of each derived topic this one was begun with; one that is not named is the first.
- Code that has changed goes on only if that is asked for: then "changes" keeps where, and what it was (`go_on`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tidelog.control import offsets
from tidelog.control.marks import Ends
from tidelog.errors import UsageError

ROWS, DIFFERENCE = "rows", "difference"  # what is put in place
FIRST = 1
GENERATION_HEADER = "tidelog.generation"  # of records of all generations but the first


@dataclass(frozen=True, slots=True)
class CodeChange:
    """Other code that went on: where the topic ended then, and what had written it until there."""

    ends: Ends
    fingerprint: str
    code: Mapping[str, str]
    at_ms: int


@dataclass(frozen=True, slots=True)
class TopicGeneration:
    number: int
    topic: str
    sink: str
    fingerprint: str = ""  # empty: not known
    code: Mapping[str, str] = field(default_factory=dict)
    reads: Mapping[str, int] = field(default_factory=dict)
    keyed: bool = False  # whether rows replace each other by key
    state: str = ""  # a digest of what its state rests on; empty: it keeps none
    live: Ends | None = None
    since_ms: int = 0  # when it was switched to
    in_place: str = ""  # ROWS or DIFFERENCE: what was, or is to be, put into the topic of the one before
    aside: str = ""  # while it is not whole there: the topic that has its rows
    changes: tuple[CodeChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Derived:
    """A topic that a pipeline writes. `topic` and `sink` are those of the live generation."""

    name: str
    app: str
    topic: str
    sink: str
    inputs: tuple[str, ...]
    at_ms: int = 0
    generations: tuple[TopicGeneration, ...] = ()
    live: int = FIRST
    newest: int = FIRST  # the last number that was given

    @property
    def current(self) -> TopicGeneration:
        return next((one for one in self.generations if one.number == self.live), _first(self.topic, self.sink))

    def topic_of(self, number: int) -> str:
        """Where a generation is; of one that is gone, where the live one is."""
        return next((one.topic for one in self.generations if one.number == number), self.topic)

    @property
    def building(self) -> TopicGeneration | None:
        newest = self.generations[-1] if self.generations else None
        return newest if newest is not None and newest.live is None else None


def _first(topic: str, sink: str) -> TopicGeneration:
    return TopicGeneration(FIRST, topic, sink, live={})


# Decisions ------------------------------------------------------------------------------------------------------------


def new_topic(name: str, app: str, inputs: Sequence[str], made: TopicGeneration) -> Derived:
    return Derived(name, app, made.topic, made.sink, tuple(inputs), 0, (replace(made, live={}),))


def begin(entry: Derived, made: TopicGeneration) -> Derived:
    """One more generation, to be built, with its number and its names."""
    number = max([entry.newest, *(one.number for one in entry.generations)]) + 1
    topic, there = f"{entry.name}.v{number}", entry.generations or (entry.current,)
    made = replace(made, number=number, topic=topic, sink=f"{entry.app}.{topic}", live=None)
    return replace(entry, generations=(*there, made), newest=number)


def go_on(entry: Derived, code: TopicGeneration, change: CodeChange | None = None) -> Derived:
    """The live generation by today's code; `change` says where, if it is other code than before."""
    current = entry.current
    changes = current.changes if change is None else (*current.changes, change)
    now = replace(current, fingerprint=code.fingerprint, code=code.code, keyed=code.keyed, state=code.state)
    now = replace(now, changes=changes)
    return _with(entry, now)


def refreshed(entry: Derived, reads: Mapping[str, int]) -> Derived:
    """The live generation, which has read nothing yet, begun with these."""
    return _with(entry, replace(entry.current, reads=dict(reads)))


def switch(entry: Derived, number: int, ends: Ends, now_ms: int) -> Derived:
    """To a generation that was built; in place, it is live in the topic of the one before, and not whole yet."""
    built = entry.building
    if built is None or built.number != number:
        raise UsageError(f"generation {number} of topic {entry.name} is not being built; nothing to switch to")
    built = replace(built, live=dict(ends), since_ms=now_ms)
    if built.in_place:
        built = replace(built, topic=entry.topic, aside=built.topic)
    made = replace(entry, generations=(*entry.generations[:-1], built), live=number)
    return replace(made, topic=built.topic, sink=built.sink)


def placed(entry: Derived) -> Derived:
    """All that is to be in the live generation's topic is there."""
    return _with(entry, replace(entry.current, aside=""))


def forget(entry: Derived, number: int) -> Derived:
    if number == entry.live:
        raise UsageError(f"generation {number} of topic {entry.name} is live; it cannot be forgotten")
    return replace(entry, generations=tuple(one for one in entry.generations if one.number != number))


def old_ones(entry: Derived) -> list[TopicGeneration]:
    """That were live and are no more."""
    return [one for one in entry.generations if one.live is not None and one.number != entry.live]


def outlived(entry: Derived, horizon_ms: int, now_ms: int) -> list[TopicGeneration]:
    """Old ones whose successor has been live for so long."""
    found = []
    for old in old_ones(entry):
        later = [one.since_ms for one in entry.generations if one.number > old.number and one.live is not None]
        if later and min(later) < now_ms - horizon_ms:
            found.append(old)
    return found


def is_begun_anew(entry: Derived, reads: int) -> bool:
    """Whether its topic has the rows of another generation behind those that a reader began with: in place."""
    return any(one.in_place == ROWS and reads < one.number <= entry.live for one in entry.generations)


def _with(entry: Derived, current: TopicGeneration) -> Derived:
    there = entry.generations or (entry.current,)
    return replace(entry, generations=tuple(current if one.number == current.number else one for one in there))


# Fields ---------------------------------------------------------------------------------------------------------------


def to_fields(entry: Derived) -> dict[str, Any]:
    fields: dict[str, Any] = {"topic": entry.topic, "sink": entry.sink}
    if entry.generations:
        fields |= {"live": entry.live, "newest": entry.newest}
        fields |= {"generations": [_generation_fields(one) for one in entry.generations]}
    return fields


def from_fields(name: str, app: str, inputs: tuple[str, ...], at_ms: int, fields: Mapping[str, Any]) -> Derived:
    """One of a version before has no generations, and is the first."""
    topic, sink = str(fields["topic"]), str(fields["sink"])
    told = tuple(_generation(one) for one in fields.get("generations", ()))
    numbers, live = [one.number for one in told], int(fields.get("live", FIRST))
    if told and live not in numbers:
        raise ValueError(f"generation {live} is live, and there are {numbers}")
    newest = max([int(fields.get("newest", FIRST)), *numbers])
    return Derived(name, app, topic, sink, inputs, at_ms, told, live, newest)


def _generation_fields(one: TopicGeneration) -> dict[str, Any]:
    fields: dict[str, Any] = {"number": one.number, "topic": one.topic, "sink": one.sink}
    fields |= {"fingerprint": one.fingerprint, "code": dict(one.code), "reads": dict(one.reads), "keyed": one.keyed}
    fields |= {"state": one.state} if one.state else {}
    fields |= {"live": None if one.live is None else offsets.to_fields(one.live), "since_ms": one.since_ms}
    fields |= {"in_place": one.in_place, "aside": one.aside} if one.in_place else {}
    changes = [
        {
            "ends": offsets.to_fields(was.ends),
            "fingerprint": was.fingerprint,
            "code": dict(was.code),
            "at_ms": was.at_ms,
        }
        for was in one.changes
    ]
    return fields | ({"changes": changes} if changes else {})


def _generation(fields: Mapping[str, Any]) -> TopicGeneration:
    return TopicGeneration(
        int(fields["number"]),
        str(fields["topic"]),
        str(fields["sink"]),
        str(fields["fingerprint"]),
        texts(fields.get("code", {})),
        numbers(fields.get("reads", {})),
        bool(fields.get("keyed")),
        str(fields.get("state", "")),
        None if fields["live"] is None else offsets.from_fields(fields["live"]),
        int(fields.get("since_ms", 0)),
        str(fields.get("in_place", "")),
        str(fields.get("aside", "")),
        tuple(_change(one) for one in fields.get("changes", ())),
    )


def _change(fields: Mapping[str, Any]) -> CodeChange:
    ends = offsets.from_fields(fields["ends"])
    return CodeChange(ends, str(fields["fingerprint"]), texts(fields["code"]), int(fields["at_ms"]))


def texts(fields: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in fields.items()}


def numbers(fields: Mapping[str, Any]) -> dict[str, int]:
    return {str(name): int(value) for name, value in fields.items()}
