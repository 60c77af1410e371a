"""Event types: versions and upcasters, on the one way to read; what the log has already; personal fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.errors import HistoryFault, UnknownEvent, UsageError
from tidelog.record.columns import Row
from tidelog.sourcing import ERASED, EventType, OldEvent, Personal
from tidelog.sourcing.event_record import REQUIRED, CommandContext, _parse_any, decode, headers_of, parse
from tidelog.sourcing.event_types import EventTypes, differences
from tidelog.sourcing.personal import Erased


@dataclass(frozen=True)
class Moved:
    street: str
    city: str = "?"
    zip: str = ""


@dataclass(frozen=True)
class Noted:
    text: str


def first(fields: dict[str, Any]) -> dict[str, Any]:
    return {"street": fields["address"]}


def second(fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields, "city": "Ghent"}


def split(fields: dict[str, Any]) -> list[OldEvent]:
    return [OldEvent("Moved", 1, {"address": fields["to"]}), OldEvent("Noted", 1, {"text": fields["why"]})]


TYPES = EventTypes(
    [
        EventType(Moved, version=3, upcasters={1: first, 2: second}),
        Noted,
        EventType(None, name="MovedWhy", upcasters={1: split}),
        EventType(None, name="Dropped", version=1, upcasters={1: lambda fields: None}),
    ]
)


def row(type: str, schema: int, value: bytes, version: int = 1) -> Row:
    headers = headers_of(type, schema, version, "c1", 0, "00000000", [])
    return Row(7, 1000, b"e", value, headers)


@proves("E2", "es.11")
@pytest.mark.parametrize(
    ("type", "schema", "value", "events"),
    [
        ("Moved", 3, b'{"street":"a","city":"b","zip":"c"}', [Moved("a", "b", "c")]),
        ("Moved", 2, b'{"street":"a"}', [Moved("a", "Ghent")]),
        ("Moved", 1, b'{"address":"a"}', [Moved("a", "Ghent")]),
        ("MovedWhy", 1, b'{"to":"a","why":"work"}', [Moved("a", "Ghent"), Noted("work")]),
        ("Dropped", 1, b"{}", []),
    ],
)
def test_old_versions_are_upcast_in_steps_split_and_dropped(
    type: str, schema: int, value: bytes, events: list[Any]
) -> None:
    record, decoded = decode(row(type, schema, value, version=4), TYPES)
    assert decoded == events
    assert (record.version, record.offset) == (4, 7)  # a record stays one place, whatever it becomes


@proves("E2", "es.12")
def test_a_field_that_an_old_reader_does_not_know_is_passed_over() -> None:
    assert decode(row("Noted", 1, b'{"text":"a","new":[1]}'), TYPES)[1] == [Noted("a")]


@proves("E2", "es.6")
@pytest.mark.parametrize(("type", "schema"), [("Moved", 4), ("Moved", 0), ("Gone", 1)])
def test_an_unknown_type_or_version_is_refused_by_name(type: str, schema: int) -> None:
    with pytest.raises(UnknownEvent, match=f"{type}.*{schema}"):
        decode(row(type, schema, b"{}"), TYPES)


@proves("E2", "es.6")
def test_upcasters_that_go_round_in_circles_end() -> None:
    circle = EventTypes([EventType(None, name="A", upcasters={1: lambda fields: [OldEvent("A", 1, {})]})])
    with pytest.raises(UnknownEvent, match="upcasters"):
        decode(row("A", 1, b"{}"), circle)


@proves("E2")
def test_a_type_has_an_upcaster_for_every_version_before_its_own() -> None:
    for make in (
        lambda: EventType(Moved, version=2),
        lambda: EventType(Moved, version=3, upcasters={2: second}),
        lambda: EventType(Moved, version=1, upcasters={1: first}),
        lambda: EventType(None, name="A", version=1),
        lambda: EventType(None),
        lambda: EventType(Moved, name="tidelog.closed"),
        lambda: EventTypes([Moved, EventType(Moved)]),
    ):
        with pytest.raises(UsageError):
            make()


@proves("E1", "es.5", "es.23")
@given(
    who=st.none() | st.text(max_size=20),
    correlation=st.none() | st.text(max_size=20),
    metadata=st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=3),
)
def test_what_a_command_carries_is_read_back_from_its_events(
    who: str | None, correlation: str | None, metadata: dict[str, Any]
) -> None:
    context = CommandContext(correlation, None, who, metadata)
    headers = headers_of("Noted", 1, 9, "c-1", 2, "00000000", context.headers(), closes=True)
    record = parse(Row(3, 5000, "é".encode(), b"{}", headers))
    assert record.context == context
    assert (record.entity, record.version, record.id, record.command) == ("é", 9, "c-1.2", "c-1")
    assert (record.closes, record.timestamp_ms, record.correlation) == (True, 5000, correlation or "c-1")


@proves("E1")
@pytest.mark.parametrize("name", ["type", "schema", "version", "id", "command", "digest"])
def test_a_record_that_no_store_wrote_is_a_fault_that_names_its_place(name: str) -> None:
    good = row("Noted", 1, b'{"text":"a"}')
    with pytest.raises(HistoryFault, match=f"offset 7.*{name}"):
        parse(good._replace(headers=[pair for pair in good.headers if pair[0] != name]))
    for bad in (good._replace(key=None), good._replace(value=None), good._replace(headers=[("version", b"x")])):
        with pytest.raises(HistoryFault, match="offset 7"):
            parse(bad)
    with pytest.raises(HistoryFault, match="is not of type Noted"):
        decode(good._replace(value=b'{"text":3}'), TYPES)


# What is in the log already -------------------------------------------------------------------------------------------


@dataclass
class Before:
    a: int
    b: str = ""


@dataclass
class WithDefault:
    a: int
    c: str = "x"


@dataclass
class Widened:
    a: float
    b: str | None = None


@dataclass
class Narrowed:
    a: str


@dataclass
class NewRequired:
    a: int
    c: int


@proves("E2", "es.12")
@pytest.mark.parametrize(
    ("cls", "said"),
    [(Before, []), (WithDefault, []), (Widened, []), (Narrowed, ["'a' was integer"]), (NewRequired, ["'c' is new"])],
)
def test_a_class_may_change_as_far_as_it_reads_what_is_there(cls: type, said: list[str]) -> None:
    old = EventTypes([EventType(Before, name="E")])
    new = EventTypes([EventType(cls, name="E")])
    found = new.changes(old.schemas())
    assert len(found) == len(said)
    assert all(one in text for one, text in zip(said, found, strict=True))
    for text in found:
        assert "raise its version to 2" in text


@proves("E2")
def test_a_type_that_the_log_has_must_stay_known() -> None:
    old = EventTypes([Before, Noted])
    assert "events 'Before' of schema version 1" in EventTypes([Noted]).changes(old.schemas())[0]
    retired = EventType(None, name="Before", upcasters={1: lambda fields: None})
    assert EventTypes([Noted, retired]).changes(old.schemas()) == []


@proves("E2")
def test_what_has_lost_its_default_does_not_read_old_events() -> None:
    @dataclass
    class Lost:
        a: int
        b: str

    (found,) = differences(
        EventTypes([EventType(Before, name="E")]).schemas()["E", 1],
        EventTypes([EventType(Lost, name="E")]).schemas()["E", 1],
    )
    assert "'b' has no default any more" in found


# Personal fields ------------------------------------------------------------------------------------------------------


class Reversing:
    """Says under which subject and identity a text was encrypted, and forgets some."""

    def __init__(self) -> None:
        self.erased: set[str] = set()

    def encrypt(self, subject: str, identity: str, plaintext: str) -> str:
        return f"{subject}|{identity}|{plaintext[::-1]}"

    def decrypt(self, subject: str, identity: str, text: str) -> str | Erased:
        if subject in self.erased:
            return ERASED
        under, at, reverse = text.split("|")
        assert (under, at) == (subject, identity)
        return reverse[::-1]


@dataclass(frozen=True)
class PlainEnrolled:
    student: str
    name: Annotated[str, Personal("student")]
    note: Annotated[str | None, Personal()] = None


class StructEnrolled(msgspec.Struct, frozen=True):
    student: str
    name: Annotated[str, Personal("student")]
    note: Annotated[str | None, Personal()] = None


class ModelEnrolled(pydantic.BaseModel, frozen=True):
    student: str
    name: Annotated[str, Personal("student")]
    note: Annotated[str | None, Personal()] = None


@proves("E6", "es.19")
@pytest.mark.parametrize("cls", [PlainEnrolled, StructEnrolled, ModelEnrolled])
def test_personal_fields_are_encrypted_each_under_its_subject_and_read_as_erased_without_a_key(cls: Any) -> None:
    types, cipher = EventTypes([EventType(cls, name="Enrolled")]), Reversing()
    event = cls(student="s1", name="Anna", note="late")
    _, value = types.encode(event, "course", 2, cipher)
    stored = msgspec.json.decode(value)
    assert stored["name"] == {"personal": "s1|course/2/Enrolled/name|annA"}
    assert stored["note"] == {"personal": "course|course/2/Enrolled/note|etal"}

    def read(by: Any) -> Any:
        (found,) = types.decode("Enrolled", 1, value, "course", 2, by)
        return found

    assert read(cipher) == event
    cipher.erased.add("s1")
    assert (read(cipher).name is ERASED, read(cipher).note) == (True, "late")
    assert read(None).note is ERASED
    _, again = types.encode(read(cipher), "course", 2, cipher)
    cipher.erased.clear()
    assert types.decode("Enrolled", 1, again, "course", 2, cipher)[0].name is ERASED  # what is gone does not come back
    _, plain = types.encode(event, "course", 2)
    assert types.decode("Enrolled", 1, plain, "course", 2, cipher) == [event]


@proves("E6")
def test_a_personal_field_is_a_text_and_names_a_field() -> None:
    @dataclass
    class Number:
        n: Annotated[int, Personal()]

    @dataclass
    class Missing:
        n: Annotated[str, Personal("who")]

    with pytest.raises(UsageError, match="not a str"):
        EventType(Number)
    with pytest.raises(UsageError, match="no such field"):
        EventType(Missing)


HEADER_VALUES = st.sampled_from([None, b"", b"1", b" 2", b"-3", b"x", b"\xff", b"1_0", "é".encode(), b"tidelog.closed"])
HEADERS = st.lists(st.tuples(st.sampled_from([*REQUIRED, "who", "closed"]), HEADER_VALUES), max_size=8)


@proves("E2")
@given(
    HEADERS | st.tuples(*(HEADER_VALUES for _ in REQUIRED)).map(lambda data: list(zip(REQUIRED, data, strict=True))),
    st.sampled_from([None, b"A1", b"\xff"]),
    st.sampled_from([None, b"{}"]),
)
def test_the_short_way_to_read_headers_gives_what_the_long_one_gives(
    headers: list[tuple[str, bytes | None]], key: bytes | None, value: bytes | None
) -> None:
    row = Row(7, 1000, key, value, headers)

    def tried(read: Any) -> Any:
        try:
            return read(row)
        except HistoryFault as error:
            return str(error)

    assert tried(parse) == tried(_parse_any)
