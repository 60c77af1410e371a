"""Upcasters run for everybody who reads a history: owners, time travel, read models, process managers, effects."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from against.patience import eventually
from proving import proves
from tidelog.sourcing import Decider, Effects, EventStore, EventType, ProcessManager, ReadModel, Send
from tidelog.testing.broker import TestBroker


@dataclass(frozen=True)
class Rename:
    name: str


@dataclass(frozen=True)
class OldRenamed:
    """As it was in version 1."""

    name: str


@dataclass(frozen=True)
class Renamed:
    first: str
    last: str


def split_name(fields: dict[str, Any]) -> dict[str, Any]:
    first, _, last = fields["name"].partition(" ")
    return {"first": first, "last": last}


def old(command: Rename) -> OldRenamed:
    return OldRenamed(command.name)


def new(command: Rename) -> Renamed:
    return Renamed(*command.name.split(" "))


def opened(broker: TestBroker, event: EventType, decide: Any) -> EventStore[str]:
    """Snapshots of the old code are passed over."""
    decider = Decider(
        "",
        lambda _, command, now: decide(command),
        lambda _, one: repr(one),
        commands=[Rename],
        events=[event],
        state_version=event.version,
    )
    return EventStore("people", decider, bootstrap=broker.bootstrap, partitions=1)


@proves("E2", "es.11")
def test_an_old_event_comes_to_every_reader_as_it_is_by_now(tidelog_broker: TestBroker, tmp_path: Path) -> None:
    with opened(tidelog_broker, EventType(OldRenamed, name="Renamed"), old) as store:
        store.send("p1", Rename("Ada Lovelace"))
    (before,) = [row.value for row in tidelog_broker.records("people.events") if row.key == b"p1"]
    ada, told, handled = Renamed("Ada", "Lovelace"), list[Any](), list[Any]()

    def react(state: Any, event: Any) -> list[Send]:
        told.append(event)
        return []

    def fold(rows: Any, event: Any, record: Any) -> None:
        rows[record.entity] = {"first": event.first, "last": event.last}

    upcast = EventType(Renamed, version=2, upcasters={1: split_name})
    columns = {"id": "string", "first": "string", "last": "string"}
    with opened(tidelog_broker, upcast, new) as store:
        manager = ProcessManager(
            "greeter", store, react, apply=lambda state, event: state, initial="", start="earliest"
        )
        effects = Effects("cards", store, lambda event, record, id: handled.append(event), start="earliest")
        model = ReadModel("names", store, fold, key="id", columns=columns)
        with manager.beside(), effects.beside(), model.following(f"sqlite:///{tmp_path}/names.db") as followed:
            assert store.state("p1").state == repr(ada)
            assert [events for _, events in store.history("p1")] == [[ada]]
            assert store.state_at("p1", version=1).state == repr(ada)
            assert followed.get("p1") == {"id": "p1", "first": "Ada", "last": "Lovelace"}
            eventually(lambda: (told, handled), lambda found: found == ([ada], [ada]))
            followed.wait(store.send("p1", Rename("Ada King")))
            assert followed.get("p1") == {"id": "p1", "first": "Ada", "last": "King"}
    after = [row.value for row in tidelog_broker.records("people.events") if row.key == b"p1"]
    assert after == [before, b'{"first":"Ada","last":"King"}'], "what is stored stays as it was"
