"""Nobody's schema holds others up: not by how it refers to others, nor while it is compared; and ids are given once."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

import tidelog
from proving import proves
from tidelog.gateway.gateway import Gateway
from tidelog.gateway.registry import changing
from tidelog.gateway.registry.parsing import REFERENCES_DEEP
from tidelog.gateway.registry.records import RegistryRecord
from tidelog.gateway.registry.registering import Decision, decide_register, read_proposal
from tidelog.gateway.registry.registry import Registry
from tidelog.gateway.registry.state import State, all_versions, apply
from tidelog.gateway.route import Call, Refusal
from tidelog.gateway.routes import ROUTES

WITHIN_S = 180


def proposed(number: int, *referred: tuple[str, str]) -> Callable[[State], Decision]:
    """Registers a record; `referred` are names and subjects of what it refers to."""
    fields = [{"name": f"f{place}", "type": name} for place, (name, _) in enumerate(referred)]
    body: dict[str, Any] = {
        "schema": json.dumps({"type": "record", "name": f"R{number}", "fields": fields}),
        "references": [{"name": name, "subject": subject, "version": 1} for name, subject in referred],
    }
    return lambda state: decide_register(state, f"s{number}", read_proposal(body, normalize=False))


def fold(state: State, decision: Decision) -> list[RegistryRecord]:
    for record in decision.records:
        apply(state, record.key, record.value)
    return decision.records


@proves("schemas", "hostile")
def test_schemas_that_refer_to_the_one_before_twice_are_followed_once() -> None:
    """By two names each: in JSON Schema anything is a name."""
    state = State()
    for number in range(60):
        referred = [{"name": name, "subject": f"s{number - 1}", "version": 1} for name in ("a", "b") if number]
        body = {"schema": json.dumps({"title": str(number)}), "schemaType": "JSON", "references": referred}
        fold(state, decide_register(state, f"s{number}", read_proposal(body, normalize=False)))
    assert len(list(all_versions(state))) == 60


@proves("schemas", "hostile")
def test_references_that_go_too_deep_are_refused_by_name() -> None:
    state = State()
    fold(state, proposed(0)(state))
    for number in range(1, REFERENCES_DEEP + 1):
        fold(state, proposed(number, (f"R{number - 1}", f"s{number - 1}"))(state))
    with pytest.raises(Refusal, match=f"references go more than {REFERENCES_DEEP} deep") as refused:
        proposed(REFERENCES_DEEP + 1, (f"R{REFERENCES_DEEP}", f"s{REFERENCES_DEEP}"))(state)
    assert refused.value.code == 42201


@proves("schemas", "D5")
@pytest.mark.parametrize("subject_at_once", [True, False])
def test_an_id_is_given_once_also_when_the_topic_has_forgotten_who_had_it(subject_at_once: bool) -> None:
    state, records = State(), []
    for number in range(3):
        records += fold(state, proposed(number)(state))
    for permanent in (False, True):
        if subject_at_once:
            records += fold(state, changing.decide_delete_subject(state, "s2", permanent=permanent))
        else:
            records += fold(state, changing.decide_delete_version(state, "s2", 1, permanent=permanent))
    last = {record.key: place for place, record in enumerate(records)}
    left = State()
    for place, record in enumerate(records):
        if last[record.key] == place and record.value is not None:
            apply(left, record.key, record.value)
    assert left.subjects == state.subjects
    assert proposed(3)(left).answer.id == 4


@pytest.fixture
def call(broker: tidelog.Broker) -> Any:
    gateway = Gateway(broker.bootstrap, ROUTES)
    yield Call(ROUTES[0], gateway)
    gateway.close()


@proves("schemas", "hostile")
def test_who_compares_for_long_holds_up_nobody(call: Call) -> None:
    registry = Registry()
    registry.write(call, proposed(100))
    begun, free = Event(), Event()

    def long(state: State) -> Decision:
        before = list(state.subjects)
        begun.set()
        assert free.wait(WITHIN_S)
        assert list(state.subjects) == before, "what is lent does not change"
        return proposed(101)(state)

    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(registry.write, call, long)
        try:
            assert begun.wait(WITHIN_S)
            assert registry.write(call, proposed(102)).answer.id
            assert "s102" in registry.read(call, lambda state: list(state.subjects))
        finally:
            free.set()
        slow.result(WITHIN_S)
    ids = registry.read(call, lambda state: [version.id for version in all_versions(state)])
    assert len(set(ids)) == len(ids) >= 3


@proves("schemas")
def test_what_was_decided_is_decided_again_only_if_something_came(call: Call) -> None:
    registry = Registry()
    times = 0

    def counted(state: State) -> Decision:
        nonlocal times
        times += 1
        return proposed(110)(state)

    registry.write(call, proposed(109))
    registry.write(call, counted)
    assert times == 1
