"""A student cancels a class: the same story as captured rows and as events, side by side.

On the left a program writes tables, and their changes are captured: an enrolment is deleted, a line of feedback is
added. On the right it writes what happened: a class was cancelled, and why. Then two things are asked that nobody had
thought of: who has cancelled, and who gets the free seat. The events answer both. Of the rows one must guess: a
cancelled class and a row that was tidied away are the same deletion.

    python examples/course_enrolment.py
"""

import json
import sqlite3
import tempfile
from dataclasses import dataclass
from datetime import datetime

import tidelog
from tidelog.client import EARLIEST, LATEST, Cluster, Consumer, list_offsets
from tidelog.sourcing import Decider, EventStore, ProcessManager, Refused, Send

SEATS = 2


# As events ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Enrol:
    student: str


@dataclass(frozen=True)
class Cancel:
    student: str
    reason: str


@dataclass(frozen=True)
class Correct:
    """An enrolment that was a mistake of the office."""

    student: str


@dataclass(frozen=True)
class Enrolled:
    student: str


@dataclass(frozen=True)
class Queued:
    student: str


@dataclass(frozen=True)
class Cancelled:
    student: str
    reason: str


@dataclass(frozen=True)
class Corrected:
    student: str


@dataclass(frozen=True)
class Course:
    students: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()


def decide(course: Course, command: object, now: datetime) -> object:
    match command:
        case Enrol(student) if student in course.students:
            raise Refused(f"{student} has a seat")
        case Enrol(student):
            return Enrolled(student) if len(course.students) < SEATS else Queued(student)
        case Cancel(student, reason) if student in course.students:
            return Cancelled(student, reason)
        case Correct(student) if student in course.students:
            return Corrected(student)
    raise Refused("no such enrolment")


def apply(course: Course, event: object) -> Course:
    match event:
        case Enrolled(student):
            waiting = tuple(one for one in course.waiting if one != student)
            return Course((*course.students, student), waiting)
        case Queued(student):
            return Course(course.students, (*course.waiting, student))
        case Cancelled(student) | Corrected(student):
            return Course(tuple(one for one in course.students if one != student), course.waiting)
    return course


courses = Decider(
    Course(),
    decide,
    apply,
    commands=[Enrol, Cancel, Correct],
    events=[Enrolled, Queued, Cancelled, Corrected],
)


def offer_the_seat(course: Course, event: object) -> list[Send]:
    """What nobody had thought of when `Cancelled` was first written. It needs no change there."""
    return [Send("maths", Enrol(course.waiting[0]))] if isinstance(event, Cancelled) and course.waiting else []


def as_events(bootstrap: str) -> EventStore[Course]:
    store = EventStore("courses", courses, bootstrap=bootstrap, partitions=1)
    offers = ProcessManager("offers", store, offer_the_seat, apply=apply, initial=Course(), start="earliest")
    with store, offers.beside():
        store.send("maths", Enrol("ada"))
        store.send("maths", Enrol("test"))
        store.send("maths", Correct("test"))
        store.send("maths", Enrol("bob"))
        store.send("maths", Enrol("cleo"))
        store.send("maths", Cancel("ada", "clash"), who="ada")
        while "cleo" not in store.state("maths").state.students:
            pass  # the seat is offered by a process of its own, a moment later
    return store


# As captured rows -----------------------------------------------------------------------------------------------------

TABLES = """
CREATE TABLE enrolments (course TEXT, student TEXT, PRIMARY KEY (course, student));
CREATE TABLE waiting (course TEXT, student TEXT, PRIMARY KEY (course, student));
CREATE TABLE feedback (id INTEGER PRIMARY KEY, course TEXT, text TEXT);
"""
STORY = (  # each line is one transaction, as the program writes it
    ["INSERT INTO enrolments VALUES ('maths', 'ada')"],
    ["INSERT INTO enrolments VALUES ('maths', 'test')"],
    ["DELETE FROM enrolments WHERE student = 'test'"],
    ["INSERT INTO enrolments VALUES ('maths', 'bob')"],
    ["INSERT INTO waiting VALUES ('maths', 'cleo')"],
    ["DELETE FROM enrolments WHERE student = 'ada'", "INSERT INTO feedback VALUES (1, 'maths', 'clash')"],
    ["DELETE FROM waiting WHERE student = 'cleo'", "INSERT INTO enrolments VALUES ('maths', 'cleo')"],
)


def as_rows(bootstrap: str, folder: str) -> list[dict]:
    school = sqlite3.connect(f"{folder}/school.db", isolation_level=None)
    school.execute("PRAGMA journal_mode = WAL")
    school.executescript(TABLES)
    capture = tidelog.capture(f"sqlite:///{folder}/school.db", prefix="school", bootstrap=bootstrap)
    capture.catch_up()
    for statements in STORY:
        school.execute("BEGIN")
        for statement in statements:
            school.execute(statement)
        school.execute("COMMIT")
    capture.catch_up()
    return captured(bootstrap)


def captured(bootstrap: str) -> list[dict]:
    """Envelopes of all tables, in the order in which the database committed them."""
    found = []
    with Cluster(bootstrap) as cluster:
        for table in ("enrolments", "waiting", "feedback"):
            places = cluster.partitions(f"school.main.{table}")
            ends = list_offsets(cluster, dict.fromkeys(places, LATEST))
            consumer = Consumer(cluster, read_committed=True)
            consumer.assign(
                {at: one.offset for at, one in list_offsets(cluster, dict.fromkeys(places, EARLIEST)).items()}
            )
            while any(consumer.positions[at] < ends[at].offset for at in places):
                rows = [row for fetched in consumer.fetch() for row in fetched.rows() if row.value is not None]
                found += [{"table": table, **json.loads(row.value)} for row in rows]
    return sorted(found, key=lambda change: change["source"]["change_id"])


def row_text(change: dict) -> str:
    verb = {"c": "added", "d": "deleted"}[change["op"]]
    fields = (change["after"] or change["before"]).items()
    return f"{change['table']}: {verb} " + " ".join(
        str(value) for name, value in fields if name not in ("course", "id")
    )


# Side by side ---------------------------------------------------------------------------------------------------------

with tempfile.TemporaryDirectory() as folder, tidelog.Broker(f"{folder}/data") as broker:
    rows = as_rows(broker.bootstrap, folder)
    store = as_events(broker.bootstrap)
    events = [event for _, found in store.history("maths") for event in found]

    left = [row_text(change) for change in rows]
    right = [" ".join([type(event).__name__, *vars(event).values()]) for event in events]
    print(f"{'captured rows':<32}events")
    for number in range(max(len(left), len(right))):
        print(f"{(left[number:] or [''])[0]:<32}{(right[number:] or [''])[0]}".rstrip())

    gone = [change["before"]["student"] for change in rows if change["table"] == "enrolments" and change["op"] == "d"]
    print("who has cancelled, by the rows:  ", gone, "(a guess)")
    print("who has cancelled, by the events:", [event.student for event in events if isinstance(event, Cancelled)])
    enrolled = {change["after"]["student"] for change in rows if change["table"] == "enrolments" and change["after"]}
    print("both end with the same seats:", sorted(enrolled - set(gone)) == sorted(courses.fold(events).students))
