"""The fold and the decisions, without a broker: what is registered, deleted and set, and what compaction keeps."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.gateway.registry import changing
from tidelog.gateway.registry.records import RegistryRecord, read
from tidelog.gateway.registry.registering import Decision, decide_register, read_proposal
from tidelog.gateway.registry.state import State, apply, level_of, versions_of
from tidelog.gateway.route import Refusal


class Log:
    """A topic in memory with the state that follows from it."""

    def __init__(self) -> None:
        self.records: list[RegistryRecord] = []
        self.state = State()

    def do(self, decide: Callable[..., Decision], *arguments: Any, **named: Any) -> Any:
        decision = decide(self.state, *arguments, **named)
        for record in decision.records:
            self.records.append(record)
            apply(self.state, record.key, record.value)
        return decision.answer

    def register(self, subject: str, schema: Any, **more: Any) -> Any:
        body = {"schema": schema if isinstance(schema, str) else json.dumps(schema), **more}
        return self.do(decide_register, subject, read_proposal(body, normalize=False))

    def code(self, decide: Callable[..., Decision], *arguments: Any, **named: Any) -> int:
        with pytest.raises(Refusal) as refused:
            self.do(decide, *arguments, **named)
        return refused.value.code


def fold(records: Iterable[RegistryRecord]) -> State:
    state = State()
    for record in records:
        apply(state, record.key, record.value)
    return state


def compacted(records: list[RegistryRecord]) -> list[RegistryRecord]:
    last = {record.key: place for place, record in enumerate(records)}
    return [record for place, record in enumerate(records) if last[record.key] == place and record.value is not None]


def fields(*names: str, name: str = "R") -> dict[str, Any]:
    made = [{"name": one.rstrip("?"), "type": "int", **({"default": 0} if one.endswith("?") else {})} for one in names]
    return {"type": "record", "name": name, "fields": made}


@proves("schemas")
def test_records_are_those_that_confluents_registry_writes() -> None:
    log = Log()
    log.register("s", '"int"')
    log.register("j", "{}", schemaType="JSON", references=[{"name": "n", "subject": "s", "version": 1}])
    log.do(changing.decide_config, "s", {"compatibility": "full"})
    log.do(changing.decide_config, None, {"compatibility": "NONE"})
    log.do(changing.decide_mode, "s", {"mode": "READONLY"}, force=False)
    log.do(changing.decide_mode, "s", {"mode": "READWRITE"}, force=False)
    log.do(changing.decide_delete_subject, "j", permanent=False)
    assert [tuple(record) for record in log.records] == [
        (
            b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
            b'{"subject":"s","version":1,"id":1,"schema":"\\"int\\"","deleted":false}',
        ),
        (
            b'{"keytype":"SCHEMA","subject":"j","version":1,"magic":1}',
            b'{"subject":"j","version":1,"id":2,"schemaType":"JSON",'
            b'"references":[{"name":"n","subject":"s","version":1}],"schema":"{}","deleted":false}',
        ),
        (b'{"keytype":"CONFIG","subject":"s","magic":0}', b'{"subject":"s","compatibilityLevel":"FULL"}'),
        (b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"NONE"}'),
        (b'{"keytype":"MODE","subject":"s","magic":0}', b'{"subject":"s","mode":"READONLY"}'),
        (b'{"keytype":"MODE","subject":"s","magic":0}', b'{"subject":"s","mode":"READWRITE"}'),
        (b'{"keytype":"DELETE_SUBJECT","subject":"j","magic":0}', b'{"subject":"j","version":1}'),
    ]


@proves("schemas")
def test_the_same_schema_has_one_id_and_one_version_a_subject() -> None:
    log = Log()
    first = log.register("a", fields("x"))
    again = log.register("a", json.dumps(fields("x"), indent=4))
    elsewhere = log.register("b", fields("x"))
    other = log.register("b", fields("x", "y?"))
    assert (first.id, first.version) == (again.id, again.version) == (1, 1)
    assert (elsewhere.id, elsewhere.version) == (1, 1)
    assert (other.id, other.version) == (2, 2)
    assert len(log.records) == 3


@proves("schemas")
def test_a_schema_sent_with_its_references_inside_is_the_same_schema() -> None:
    log = Log()
    log.register("part", fields("x", name="Part"))
    whole = {"type": "record", "name": "R", "fields": [{"name": "p", "type": "Part"}]}
    by_reference = log.register("r", whole, references=[{"name": "Part", "subject": "part", "version": 1}])
    inside = {"type": "record", "name": "R", "fields": [{"name": "p", "type": fields("x", name="Part")}]}
    assert log.register("r", inside).id == by_reference.id


@proves("schemas")
def test_an_incompatible_schema_is_refused_with_the_reason_and_writes_nothing() -> None:
    log = Log()
    log.register("s", fields("x"))
    with pytest.raises(Refusal, match="READER_FIELD_MISSING_DEFAULT_VALUE") as refused:
        log.register("s", fields("x", "y"))
    assert (refused.value.status, refused.value.code) == (409, 40901)
    assert len(log.records) == 1


@proves("schemas")
def test_levels_of_a_subject_go_before_those_of_all() -> None:
    log = Log()
    assert level_of(log.state, "s") == "BACKWARD"
    log.do(changing.decide_config, None, {"compatibility": "NONE"})
    assert level_of(log.state, "s") == "NONE"
    log.do(changing.decide_config, "s", {"compatibility": "FULL_TRANSITIVE"})
    assert level_of(log.state, "s") == "FULL_TRANSITIVE"
    log.do(changing.decide_delete_config, "s")
    assert level_of(log.state, "s") == "NONE"
    assert log.code(changing.decide_config, "s", {"compatibility": "SIDEWAYS"}) == 42203
    assert log.code(changing.decide_config, "s", {"alias": "other"}) == 42205
    assert log.code(changing.decide_delete_config, "s") == 40401


@proves("schemas")
def test_deleting_goes_softly_first() -> None:
    log = Log()
    log.do(changing.decide_config, None, {"compatibility": "NONE"})
    for names in (("x",), ("y",), ("z",)):
        log.register("s", fields(*names))
    assert log.code(changing.decide_delete_version, "s", 1, permanent=True) == 40407
    assert log.do(changing.decide_delete_version, "s", 1, permanent=False) == 1
    assert log.code(changing.decide_delete_version, "s", 1, permanent=False) == 40406
    assert log.code(changing.decide_delete_version, "s", 9, permanent=False) == 40402
    assert log.code(changing.decide_delete_version, "t", 1, permanent=False) == 40401
    assert log.do(changing.decide_delete_version, "s", 1, permanent=True) == 1
    assert log.code(changing.decide_delete_subject, "s", permanent=True) == 40405
    assert log.do(changing.decide_delete_subject, "s", permanent=False) == [2, 3]
    assert log.code(changing.decide_delete_subject, "s", permanent=False) == 40404
    assert log.do(changing.decide_delete_subject, "s", permanent=True) == [2, 3]
    assert log.code(changing.decide_delete_subject, "s", permanent=True) == 40401
    assert log.state.subjects == log.state.ids == log.state.contents == {}
    assert log.register("s", fields("x")).id == 4, "an id that was given away does not come again"


@proves("schemas")
def test_the_settings_of_a_subject_go_with_its_last_version_and_not_before() -> None:
    log = Log()
    log.do(changing.decide_config, "s", {"compatibility": "NONE"})
    for names in (("x",), ("y",)):
        log.register("s", fields(*names))
    for number in (1, 2):
        assert "s" in log.state.configs
        for permanent in (False, True):
            log.do(changing.decide_delete_version, "s", number, permanent=permanent)
    assert "s" not in log.state.configs


@proves("schemas")
def test_a_deleted_version_that_comes_again_gets_its_id_and_a_new_number() -> None:
    log = Log()
    log.register("s", fields("x"))
    log.do(changing.decide_delete_subject, "s", permanent=False)
    again = log.register("s", fields("x"))
    assert (again.id, again.version) == (1, 2)
    assert [one.version for one in versions_of(log.state, "s", deleted=True)] == [2]


@proves("schemas")
def test_what_others_refer_to_is_not_deleted() -> None:
    log = Log()
    log.register("part", fields("x", name="Part"))
    whole = {"type": "record", "name": "R", "fields": [{"name": "p", "type": "Part"}]}
    log.register("r", whole, references=[{"name": "Part", "subject": "part", "version": 1}])
    assert log.code(changing.decide_delete_version, "part", 1, permanent=False) == 42206
    assert log.code(changing.decide_delete_subject, "part", permanent=False) == 42206
    log.do(changing.decide_delete_subject, "r", permanent=False)
    log.do(changing.decide_delete_subject, "part", permanent=False)
    assert log.code(changing.decide_delete_subject, "part", permanent=True) == 42206
    log.do(changing.decide_delete_subject, "r", permanent=True)
    log.do(changing.decide_delete_subject, "part", permanent=True)


@proves("schemas")
def test_modes_say_who_may_write() -> None:
    log = Log()
    log.register("s", fields("x"))
    proposal = read_proposal({"schema": json.dumps(fields("y?"))}, normalize=False)
    assert log.code(decide_register, "s", proposal._replace(id=7)) == 42205
    assert log.code(changing.decide_mode, "s", {"mode": "IMPORT"}, force=False) == 42205
    assert log.code(changing.decide_mode, None, {"mode": "IMPORT"}, force=False) == 42205
    assert log.code(changing.decide_mode, "s", {"mode": "SOMETIMES"}, force=False) == 42204
    log.do(changing.decide_mode, "s", {"mode": "IMPORT"}, force=True)
    assert log.code(decide_register, "s", proposal) == 42205
    imported = log.do(decide_register, "s", proposal._replace(id=70, version=30))
    assert (imported.id, imported.version) == (70, 30)
    assert log.code(decide_register, "s", proposal._replace(id=1)) == 42205
    log.do(changing.decide_mode, None, {"mode": "READONLY"}, force=False)
    log.do(changing.decide_delete_mode, "s")
    assert log.code(decide_register, "s", proposal) == 42205
    assert log.code(changing.decide_delete_subject, "s", permanent=False) == 42205
    assert log.code(changing.decide_config, "s", {"compatibility": "NONE"}) == 42205


@proves("schemas")
@pytest.mark.parametrize(
    "body",
    [
        [],
        {},
        {"schema": 5},
        {"schema": "nope"},
        {"schema": '"int"', "schemaType": "XML"},
        {"schema": '"int"', "references": {"a": 1}},
        {"schema": '"int"', "references": [{"name": "a"}]},
        {"schema": '"int"', "references": [{"name": "a", "subject": "gone", "version": 1}]},
        {"schema": '"int"', "metadata": 3},
        {"schema": '"int"', "id": 1 << 40},
        {"schema": " "},
    ],
)
def test_a_proposal_that_is_none_is_invalid(body: Any) -> None:
    with pytest.raises(Refusal) as refused:
        decide_register(State(), "s", read_proposal(body, normalize=False))
    assert (refused.value.status, refused.value.code) == (422, 42201)


@proves("schemas")
@pytest.mark.parametrize("subject", ["", " ", ":.other:s", "x" * 2_000])
def test_subjects_have_rules(subject: str) -> None:
    with pytest.raises(Refusal) as refused:
        decide_register(State(), subject, read_proposal({"schema": '"int"'}, normalize=False))
    assert refused.value.code == 42208


@proves("schemas")
def test_records_of_newer_registries_and_of_nobody_are_passed_over() -> None:
    state = State()
    for key, value in [
        (b'{"keytype":"NOOP","magic":0}', None),
        (b'{"keytype":"CONTEXT","tenant":"default","context":".","magic":0}', b"{}"),
        (b"not json", b"{}"),
        (None, b"{}"),
        (b"[" * 100_000, b"{}"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b'{"subject":"s"}'),
        (b'{"keytype":"SCHEMA","subject":5,"version":1,"magic":1}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b"[]"),
    ]:
        apply(state, key, value)
    assert state.subjects == {}
    assert state.passed_over == 8
    assert read(b'{"keytype":"CONFIG","subject":null,"magic":0}', None) is not None


SUBJECTS = st.sampled_from(["a", "b"])
COMMANDS = st.one_of(
    st.tuples(st.just("register"), SUBJECTS, st.sampled_from(["x", "y", "z"])),
    st.tuples(st.just("delete"), SUBJECTS, st.booleans()),
    st.tuples(st.just("version"), SUBJECTS, st.tuples(st.integers(1, 4), st.booleans())),
    st.tuples(st.just("config"), SUBJECTS, st.sampled_from(["NONE", "FULL"])),
    st.tuples(st.just("mode"), SUBJECTS, st.sampled_from(["READONLY", "READWRITE"])),
)


@proves("schemas", "D5")
@given(st.lists(COMMANDS, max_size=25))
def test_a_compacted_topic_gives_the_same_registry(commands: list[Any]) -> None:
    log = Log()
    log.do(changing.decide_config, None, {"compatibility": "NONE"})
    for kind, subject, argument in commands:
        try:
            if kind == "register":
                log.register(subject, fields(argument))
            elif kind == "delete":
                log.do(changing.decide_delete_subject, subject, permanent=argument)
            elif kind == "version":
                log.do(changing.decide_delete_version, subject, argument[0], permanent=argument[1])
            elif kind == "config":
                log.do(changing.decide_config, subject, {"compatibility": argument})
            else:
                log.do(changing.decide_mode, subject, {"mode": argument}, force=False)
        except Refusal:
            continue
    again, small = fold(log.records), fold(compacted(log.records))
    assert again == log.state
    assert (small.subjects, small.ids, small.configs, small.modes) == (
        log.state.subjects,
        log.state.ids,
        log.state.configs,
        log.state.modes,
    )
    contents = [
        {one.id: one.content} for subject in again.subjects for one in versions_of(again, subject, deleted=True)
    ]
    assert all(again.contents[content] == identity for one in contents for identity, content in one.items())
