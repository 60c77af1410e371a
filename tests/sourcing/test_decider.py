"""Deciders without a store: decisions, refusals, JSON, and specifications that can fail."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import pydantic
import pytest

from proving import proves
from sourcing.seats import Cancel, Cancelled, Look, Reserve, Reserved, Seat, SeatTaken, Swap, apply, seats
from tidelog.errors import Refused, UsageError
from tidelog.sourcing import Decider, specification

NOW = datetime(2026, 1, 1, tzinfo=UTC)
spec = specification(seats())


@proves("E1", "es.7")
def test_a_specification_reads_as_given_when_then() -> None:
    spec.given().when(Reserve("anna")).then(Reserved("anna")).then_state(Seat("anna", 1))
    spec.given(Reserved("anna")).when(Reserve("bob")).then_refused(SeatTaken("anna"))
    spec.given(Reserved("anna")).when(Reserve("bob")).then_refused(SeatTaken)
    spec.given(Reserved("anna"), Cancelled("anna")).when(Reserve("bob")).then(Reserved("bob"))
    spec.given(Reserved("anna")).when(Swap("anna", "bob")).then(Cancelled("anna"), Reserved("bob"))
    spec.given(Reserved("anna")).then_state(Seat("anna", 1))


@proves("E1", "es.8")
def test_a_decision_may_be_that_nothing_happens() -> None:
    spec.given(Reserved("anna")).when(Look()).then_nothing()
    assert Decider(0, lambda state, command, now: None, apply, events=[Reserved]).decide(0, "x", NOW) == []


@proves("E1")
@pytest.mark.parametrize(
    "wrong",
    [
        lambda: spec.given().when(Reserve("anna")).then(Reserved("bob")),
        lambda: spec.given().when(Reserve("anna")).then_nothing(),
        lambda: spec.given().when(Reserve("anna")).then_refused(),
        lambda: spec.given(Reserved("anna")).when(Reserve("bob")).then(Reserved("bob")),
        lambda: spec.given(Reserved("anna")).when(Reserve("bob")).then_refused(SeatTaken("carl")),
        lambda: spec.given(Reserved("anna")).then_state(Seat()),
    ],
)
def test_a_specification_that_does_not_hold_fails(wrong: Any) -> None:
    with pytest.raises(AssertionError, match=r"expected|refused"):
        wrong()


@proves("E1")
def test_a_decider_gives_events_of_registered_types_only() -> None:
    def gives(what: Any) -> Decider[int]:
        return Decider(0, lambda state, command, now: what, lambda state, event: state, events=[Reserved])

    assert gives(Reserved("a")).decide(0, "x", NOW) == [Reserved("a")]
    assert gives(Reserved(str(n)) for n in range(2)).decide(0, "x", NOW) == [Reserved("0"), Reserved("1")]
    for wrong in ([Cancelled("a")], "text", {"who": "a"}, 3):
        with pytest.raises(UsageError, match="Reserved"):
            gives(wrong).decide(0, "x", NOW)


class StructAdded(msgspec.Struct, frozen=True):
    n: int
    at: datetime


class ModelAdded(pydantic.BaseModel, frozen=True):
    n: int
    at: datetime


@dataclass(frozen=True)
class PlainAdded:
    n: int
    at: datetime


@proves("E1", "E2")
@pytest.mark.parametrize("cls", [StructAdded, ModelAdded, PlainAdded])
def test_events_and_commands_are_dataclasses_structs_or_models(cls: Any) -> None:
    adding = Decider(
        0,
        lambda total, command, now: [cls(n=command.n, at=now)],
        lambda total, event: total + event.n,
        commands=[cls],
        events=[cls],
    )
    both = specification(adding)
    both.given(cls(n=1, at=NOW)).when(cls(n=2, at=NOW), now=NOW).then(cls(n=2, at=NOW)).then_state(3)


@proves("E1")
def test_a_reason_comes_back_as_the_type_it_was() -> None:
    decider = seats()
    for reason in (SeatTaken("anna"), "a text"):
        assert decider.refusal_from(decider.refusal_fields(Refused(reason))).reason == reason
    unknown = seats(refusals=[]).refusal_from(decider.refusal_fields(Refused(SeatTaken("anna"))))
    assert unknown.reason == {"by": "anna"}


@proves("E1")
def test_what_is_not_registered_is_named() -> None:
    with pytest.raises(UsageError, match="add Cancel to its commands"):
        seats(commands=[Reserve]).encode_command(Cancel("anna"))
    with pytest.raises(UsageError, match="not a command"):
        seats().decode_command("Reserved", b"{}")
    with pytest.raises(UsageError, match="two commands"):
        seats(commands=[Reserve, Reserve])
