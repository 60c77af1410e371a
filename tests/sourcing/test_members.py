"""Members that a command's type does not have: found in what is within as well, and never where more is allowed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pydantic
import pytest

from proving import proves
from tidelog.errors import UsageError
from tidelog.sourcing.codec import JsonCodec


@dataclass
class Place:
    street: str
    number: int = 0


@dataclass
class Move:
    who: str
    to: Place | None = None
    stops: list[Place] = field(default_factory=list)
    by_day: dict[str, Place] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)


class Car(msgspec.Struct, tag=True, rename="camel"):
    seat_count: int = 0


class Train(msgspec.Struct, tag=True):
    line: str = ""


class Travel(msgspec.Struct):
    way: Car | Train | None = None


@dataclass
class Stop:
    pass


class Model(pydantic.BaseModel):
    who: str = pydantic.Field(validation_alias=pydantic.AliasChoices("who", "name"))
    day: int = pydantic.Field(0, alias="on")


class OpenModel(pydantic.BaseModel, extra="allow"):
    who: str


class OldModel(pydantic.BaseModel):
    who: str

    @pydantic.model_validator(mode="before")
    @classmethod
    def renamed(cls, fields: Any) -> Any:
        return {"who": fields.get("by", fields.get("who"))}


STREET = {"street": "Elm"}


@proves("E1", "http")
@pytest.mark.parametrize(
    ("cls", "value", "said"),
    [
        (Move, {"who": "anna", "day": 1}, "Move does not have a member 'day'; it has by_day, notes, stops, to, who"),
        (Move, {"whom": "anna"}, "'whom'"),
        (Move, {"who": "anna", "to": {"streat": "Elm"}}, "'to.streat'; it has number, street"),
        (Move, {"who": "anna", "stops": [STREET, {**STREET, "n": 1}]}, "'stops.1.n'"),
        (Travel, {"way": {"type": "Car", "seat_count": 3}}, "'way.seat_count'; it has line, seatCount, type"),
        (Stop, {"now": True}, "Stop does not have a member 'now'; it has none"),
        (Model, {"who": "anna", "off": 2}, "'off'; it has day, name, on, who"),
    ],
)
def test_a_member_that_is_not_known_is_named_with_those_that_are(cls: Any, value: Any, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        JsonCodec(cls).check_members(msgspec.json.encode(value))
    assert said in str(raised.value)


@proves("E1", "http")
@pytest.mark.parametrize(
    ("cls", "value"),
    [
        (Move, {"who": "anna", "to": STREET, "stops": [STREET], "notes": {"any": {"thing": 1}}}),
        (Move, {"who": "anna", "to": None, "by_day": {"mon": STREET}}),
        (Travel, {"way": {"type": "Car", "seatCount": 3}}),
        (Travel, {"way": {"type": "Train", "line": "S1"}}),
        (Model, {"name": "anna", "on": 2}),
        (OpenModel, {"who": "anna", "more": 1}),
        (OldModel, {"by": "anna"}),
    ],
)
def test_what_a_type_takes_is_taken(cls: Any, value: Any) -> None:
    codec = JsonCodec(cls)
    codec.check_members(msgspec.json.encode(value))
    codec.decode(msgspec.json.encode(value))
