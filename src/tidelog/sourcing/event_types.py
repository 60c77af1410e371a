"""The event types of a decider: their names in the log, their versions, and how old ones become new ones.

    EventTypes([
        Reserved,                                                    name "Reserved", schema version 1
        EventType(Moved, name="moved", version=3, upcasters={1: first_to_second, 2: second_to_third}),
        EventType(None, name="Renamed", version=1, upcasters={1: to_moved}),       a type that no code has any more
    ])

An upcaster takes the fields of its version as a dict and gives

    a dict                  the fields of the next version
    None                    nothing: the event has no effect any more
    a list of OldEvent      other events instead, each of any type and version, which are upcast in turn

Rules:
- Stored bytes are never changed: upcasting happens at every reading, and there is one way to read (`decode`).
- A record stays one place of its history, whatever it becomes: versions and offsets count records.
- Upcasters are pure. They see clear text where the reader has the cipher, and ERASED where the key is gone.
- A type or a version that is not known here is refused (`UnknownEvent`), or skipped where the store was told so. It is
  never passed over in silence.
- What is in the log already says what may change (`changes`): of a type that was written at a version, the class must
  still read what was written so. Anything else needs the next version and an upcaster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from tidelog.errors import UnknownEvent, UsageError
from tidelog.sourcing.codec import JsonCodec
from tidelog.sourcing.personal import Cipher, reveal

CLOSED = "tidelog.closed"  # the type of the event that ends a history
OWN = "tidelog."
UPCASTS_MAX = 1_000  # of one record: upcasters that go round in circles


class OldEvent(NamedTuple):
    """An event as it was stored, before upcasting."""

    type: str
    schema: int
    fields: dict[str, Any]


Upcast = dict[str, Any] | list[OldEvent] | None
Upcaster = Callable[[dict[str, Any]], Upcast]


class EventType:
    """`version` is the one that is written. There is an upcaster for every version before it."""

    def __init__(
        self,
        cls: type | None,
        *,
        name: str | None = None,
        version: int = 1,
        upcasters: Mapping[int, Upcaster] | None = None,
    ) -> None:
        if cls is None and name is None:
            raise UsageError("an event type without a class has no name; give it one")
        self.name = name if name is not None else cls.__name__ if cls is not None else ""
        self.cls = cls
        self.version = version
        self.upcasters = dict(upcasters or {})
        self.codec = None if cls is None else JsonCodec(cls)
        if self.name.startswith(OWN) or not self.name:
            raise UsageError(f"an event type cannot be called {self.name!r}; names that begin with {OWN!r} are taken")
        wanted = set(range(1, version if cls is not None else version + 1))
        if version < 1 or wanted != set(self.upcasters):
            raise UsageError(
                f"event type {self.name} has version {version} and upcasters from {sorted(self.upcasters)}; there is to"
                f" be one from each of {sorted(wanted)}"
            )


class EventTypes:
    def __init__(self, types: Iterable[type | EventType]) -> None:
        self.by_name: dict[str, EventType] = {}
        self.by_class: dict[type, EventType] = {}
        for given in types:
            one = given if isinstance(given, EventType) else EventType(given)
            if one.name in self.by_name:
                raise UsageError(f"two event types are called {one.name!r}; give one of them a name of its own")
            self.by_name[one.name] = one
            if one.cls is not None:
                self.by_class[one.cls] = one
        codecs = ((one.name, one.version, one.codec) for one in self.by_name.values())
        self._plain = {(name, version): codec.plain for name, version, codec in codecs if codec and codec.plain}

    def of(self, event: Any) -> EventType:
        found = self.by_class.get(type(event))
        if found is None:
            known = ", ".join(sorted(self.by_name)) or "none"
            raise UsageError(
                f"{event!r} is not an event of this decider, which has {known}; add"
                f" {type(event).__name__} to its events"
            )
        return found

    def knows(self, name: str, schema: int) -> bool:
        found = self.by_name.get(name)
        return found is not None and 1 <= schema <= found.version

    def encode(self, event: Any, entity: str, version: int, cipher: Cipher | None = None) -> tuple[EventType, bytes]:
        one = self.of(event)
        assert one.codec is not None, "it was found by its class"
        return one, one.codec.encode(event, entity, f"{entity}/{version}/{one.name}", cipher)

    def decode(
        self, name: str, schema: int, value: bytes, entity: str, version: int, cipher: Cipher | None = None
    ) -> list[Any]:
        """The events that a record is by now: one, or what upcasters made of it."""
        plain = self._plain.get((name, schema))
        if plain is not None:
            try:
                return [plain(value)]
            except (ValueError, TypeError, RecursionError):
                pass  # the long way says what is wrong
        one = self.by_name.get(name)
        if one is None or not 1 <= schema <= one.version:
            raise UnknownEvent(
                f"version {version} of {entity!r} is an event {name!r} of schema version {schema}, which is not known"
                f" here; the types are {', '.join(self._shown())}"
            )
        place = f"{entity}/{version}/{name}"
        if one.codec is not None and schema == one.version:
            return [one.codec.decode(value, entity, place, cipher)]
        fields = JsonCodec(dict[str, Any]).decode(value)
        personal = () if one.codec is None else one.codec.personal
        clear = reveal(fields, personal, entity, place, cipher)
        return self._upcast(OldEvent(name, schema, clear), f"version {version} of {entity!r}")

    def _upcast(self, first: OldEvent, where: str) -> list[Any]:
        left, made, steps = [first], [], 0
        while left:
            old = left.pop(0)
            steps += 1
            one = self.by_name.get(old.type)
            if one is None or not 1 <= old.schema <= one.version or steps > UPCASTS_MAX:
                raise UnknownEvent(
                    f"{where} became an event {old.type!r} of schema version {old.schema} by {steps} upcasters, which"
                    " is not known here; does an upcaster give the right type and version?"
                )
            if one.codec is not None and old.schema == one.version:
                made.append(one.codec.from_fields(old.fields))
                continue
            became = one.upcasters[old.schema](dict(old.fields))
            if isinstance(became, dict):
                left.insert(0, OldEvent(old.type, old.schema + 1, became))
            elif became:
                left[:0] = became
        return made

    def _shown(self) -> list[str]:
        return [f"{name} up to {one.version}" for name, one in sorted(self.by_name.items())] or ["none"]

    # What is in the log already

    def schemas(self) -> dict[tuple[str, int], dict[str, Any]]:
        """Of what is written by now."""
        classes = [(one.name, one.version, one.codec) for one in self.by_name.values()]
        return {(name, version): codec.schema() for name, version, codec in classes if codec is not None}

    def changes(self, stored: Mapping[tuple[str, int], Mapping[str, Any]]) -> list[str]:
        """Why these types cannot go on with a log that has the stored ones; empty where they can."""
        found = []
        now = self.schemas()
        for (name, version), old in sorted(stored.items()):
            if not self.knows(name, version):
                found.append(
                    f"the log has events {name!r} of schema version {version}, which are not known here; register the"
                    " type, with upcasters if no code has it any more"
                )
            elif (name, version) in now:
                found += [
                    f"event type {name}: {reason}; raise its version to {version + 1} and add an upcaster"
                    for reason in differences(old, now[name, version])
                ]
        return found


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Why a class with the new JSON Schema does not read what was written by the old one. Fields may come with a
    default, go, and widen.
    """
    before, after = _object(old), _object(new)
    had, has = before.get("properties", {}), after.get("properties", {})
    required_before, required = set(before.get("required", ())), set(after.get("required", ()))
    found = [f"field {name!r} is new and has no default" for name in sorted(required - set(had))]
    for name in sorted(required - required_before & set(had)):
        if name in had and name not in required_before:
            found.append(f"field {name!r} has no default any more")
    for name in sorted(set(had) & set(has)):
        if not _widens(_kinds(had[name], old), _kinds(has[name], new)):
            found.append(f"field {name!r} was {_text(had[name])} and is {_text(has[name])}")
    return found


def _object(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = str(schema.get("$ref", ""))
    return schema.get("$defs", {}).get(reference.rpartition("/")[2], {}) if reference else schema


def _kinds(field: Mapping[str, Any], whole: Mapping[str, Any]) -> list[Any]:
    """What a field may be, without its default, title and description."""
    some = field.get("anyOf", [field])
    return [_plain(one, whole, 0) for one in some]


def _plain(one: Any, whole: Mapping[str, Any], depth: int) -> Any:
    if isinstance(one, list):
        return [_plain(part, whole, depth) for part in one]
    if not isinstance(one, Mapping):
        return one
    if "$ref" in one and depth < 8:
        return _plain(_object({**one, "$defs": whole.get("$defs", {})}), whole, depth + 1)
    return {
        name: _plain(part, whole, depth)
        for name, part in one.items()
        if name not in ("default", "title", "description")
    }


def _widens(before: list[Any], after: list[Any]) -> bool:
    return {} in after or all(
        one in after or (one == {"type": "integer"} and {"type": "number"} in after) for one in before
    )


def _text(field: Mapping[str, Any]) -> str:
    return " or ".join(str(one.get("type", one)) for one in field.get("anyOf", [field]))
