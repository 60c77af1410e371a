"""Students with names and guardians: personal fields of two subjects in one event, for the tests of erasure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any

from tidelog.sourcing import Decider, Personal


@dataclass(frozen=True)
class Enrol:
    student: str
    name: str
    guardian: str
    guardian_name: str


@dataclass(frozen=True)
class Rename:
    student: str
    name: str


@dataclass(frozen=True)
class Enrolled:
    student: str
    guardian: str
    name: Annotated[str, Personal("student")]
    guardian_name: Annotated[str, Personal("guardian")]


@dataclass(frozen=True)
class Renamed:
    student: str
    name: Annotated[str, Personal("student")]


@dataclass(frozen=True)
class Course:
    """`shout` is derived, and in clear: what a state should not have, and may."""

    student: str = ""
    name: Annotated[str, Personal("student")] = ""
    shout: str = ""
    renamed: int = 0


def decide(course: Course, command: Any, now: datetime) -> list[Any]:
    match command:
        case Enrol(student, name, guardian, guardian_name):
            return [Enrolled(student, guardian, name, guardian_name)]
        case Rename(student, name):
            return [Renamed(student, name)]
    return []


def apply(course: Course, event: Any) -> Course:
    match event:
        case Enrolled():
            return replace(course, student=event.student, name=event.name, shout=event.name.upper())
        case Renamed():
            return replace(course, name=event.name, shout=event.name.upper(), renamed=course.renamed + 1)
    return course


def people() -> Decider[Course]:
    return Decider(Course(), decide, apply, commands=[Enrol, Rename], events=[Enrolled, Renamed])
