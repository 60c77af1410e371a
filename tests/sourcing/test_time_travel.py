"""An entity at any version and time, who did what and why, and what changed: from the log, on both brokers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cli.command import Command
from contract import Broker
from proving import proves
from sourcing.people import Enrol, Rename, people
from sourcing.seats import Cancel, Reserve, Seat, Swap, seats
from tidelog.errors import UsageError
from tidelog.sourcing import ERASED, EventStore, FieldChange, SubjectCipher
from tidelog.sourcing.event_record import NO_CONTEXT, EventRecord
from tidelog.sourcing.time_travel import Moment, difference, moment, reached
from tidelog.testing.broker import TestBroker

pytestmark = pytest.mark.timeout(300)


@proves("E5")
def test_a_state_at_every_version_is_the_fold_up_to_it(broker: Broker, store: EventStore[Seat]) -> None:
    before = datetime.now(UTC) - timedelta(seconds=5)
    store.send("A1", Reserve("anna"), id="c1", who="desk", correlation="r1", causation="e0", metadata={"ip": "::1"})
    store.send("A1", Swap("anna", "bob"), id="c2")
    store.send("A1", Cancel("bob"), id="c3")
    store.send("B2", Reserve("zoe"))
    live = Seat()
    versions = [Seat()]
    for _, events in store.history("A1"):
        for event in events:
            live = store.decider.apply(live, event)
        versions.append(live)
    assert len(versions) == 5
    for version, state in enumerate(versions):
        found = store.state_at("A1", version=version)
        assert (found.state, found.version) == (state, version)
    assert store.state_at("A1").state == store.state("A1").state
    assert store.state_at("A1", at=before).version == 0
    assert store.state_at("A1", at=datetime.now(UTC) + timedelta(seconds=5)).version == 4
    assert [one.state for one in store.states("A1")] == versions
    first = store.state_at("A1", version=1).last
    assert first is not None
    assert (first.command, first.context) == ("c1", ("r1", "e0", "desk", {"ip": "::1"}))
    assert store.difference("A1", 0, 1) == [FieldChange("holder", None, "anna"), FieldChange("times", 0, 1)]
    assert store.difference("A1", 1, 1) == []
    assert FieldChange("times", 0, versions[-1].times) in store.difference("A1", 0)
    with pytest.raises(UsageError, match="the history has 4 versions"):
        store.state_at("A1", version=5)
    with pytest.raises(UsageError, match="0 to 4"):
        store.difference("A1", 2, 9)
    assert store.state_at("nobody").state == Seat()


@proves("E5", "es.23")
def test_a_time_is_a_place_in_the_history_also_where_clocks_jumped() -> None:
    records = [_record(version, ms) for version, ms in ((1, 100), (2, 900), (3, 300), (4, 400))]
    assert [reached(records, Moment(at_ms=ms)) for ms in (99, 100, 299, 300, 400, 900)] == [0, 1, 1, 3, 4, 4]
    assert reached(records, Moment(version=2)) == 2
    assert reached([], Moment(at_ms=5)) == 0
    with pytest.raises(UsageError, match="give one of them"):
        moment(version=1, at=datetime.now(UTC))
    assert moment(at=datetime(1970, 1, 1, 0, 0, 1)).at_ms == 1000, "a time without a zone is UTC"


def _record(version: int, ms: int) -> EventRecord:
    return EventRecord(
        "A1", "Reserved", 1, version, f"c{version}.0", f"c{version}", "0", False, ms, version, NO_CONTEXT
    )


@proves("E5")
@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, [("a", 1, 2)]),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, [("a.c", 2, 3)]),
        ({"a": [1, 2]}, {"a": [1, 2, 3]}, [("a.2", "(nothing)", 3)]),
        ({"a": 1}, {"b": 1}, [("a", 1, "(nothing)"), ("b", "(nothing)", 1)]),
        ({"a": 1}, {"a": True}, [("a", 1, True)]),
        (None, {"a": 1}, [(".", None, {"a": 1})]),
    ],
)
def test_a_difference_names_the_fields(before: Any, after: Any, changes: list[tuple[str, Any, Any]]) -> None:
    assert difference(before, after) == [FieldChange(*one) for one in changes]


@proves("E5", "E6")
def test_the_past_of_who_was_erased_is_erased_too(tidelog_broker: TestBroker, tmp_path: Path) -> None:
    cipher = SubjectCipher("people", f"sqlite:///{tmp_path}/keys.db", cache_s=0)
    with EventStore("people", people(), bootstrap=tidelog_broker.bootstrap, partitions=1, cipher=cipher) as store:
        store.send("c1", Enrol("s1", "Alice", "g1", "Gina"))
        store.send("c1", Rename("s1", "Alicia"))
        assert store.state_at("c1", version=1).state.name == "Alice"
        cipher.keys.destroy("s1", "a request")
        assert store.state_at("c1", version=1).state.name is ERASED


APP = """
from sourcing.seats import seats
from tidelog.sourcing import EventStore

store = EventStore("seats", seats())
"""


@proves("E5")
@pytest.mark.slow
def test_the_command_shows_who_did_what_and_the_state_then(tidelog_broker: TestBroker, tmp_path: Path) -> None:
    with EventStore("seats", seats(), bootstrap=tidelog_broker.bootstrap, partitions=1) as store:
        store.send("A1", Reserve("anna"), id="c1", who="desk", metadata={"ip": "::1"})
        store.send("A1", Cancel("anna"), id="c2", causation="c1.0")
    tidelog = Command(tidelog_broker.bootstrap)
    tidelog.environment["PYTHONPATH"] = str(Path(__file__).parent.parent)
    app = tmp_path / "app.py"
    app.write_text(APP)
    words = ("events", "show", "A1", "--store", "seats")
    plain = tidelog.ok(*words).lines
    assert plain[1].split()[0] == "1"
    assert "desk" in plain[1]
    assert '{"who": "anna"}' in plain[1]
    assert 'command=c1 correlation=c1 {"ip": "::1"}' in plain[1]
    assert "causation=c1.0" in plain[2]
    then = tidelog.ok(*words, "--app", f"{app}", "--version", "1", "--json").json
    assert (then["version"], then["state"]["holder"], len(then["events"])) == (1, "anna", 1)
    diff = tidelog.ok(*words, "--app", f"{app}", "--diff").out
    assert "holder: 'anna' -> None" in diff
    early = tidelog.ok(*words, "--at", "2001-01-01", "--json").json
    assert (early["version"], early["events"]) == (0, [])
    for wrong in (("--diff",), ("--version", "9"), ("--at", "noon")):
        assert tidelog(*words, *wrong).code == 2
    assert tidelog("events", "show", "Z9", "--store", "seats").code == 2
