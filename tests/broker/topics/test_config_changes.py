"""Altering settings: the four operations, what is refused and why, and which layer wins."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.broker import topics
from tidelog.broker.config_changes import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    Alteration,
    DecidedAlterations,
    Operation,
    broker_values,
    decide_alter,
)
from tidelog.broker.decision import NewRecord
from tidelog.broker.settings.configuring import broker_config, load_broker_config
from tidelog.broker.topics import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE, Topic, Topics, topic_record
from tidelog.wire.error_code import ErrorCode

CONFIG = load_broker_config({"log.retention.ms": 7000})
TOPIC_A = Topic("a", bytes(15) + b"\1", 1, {"retention.ms": "5"}, 0)


def state_with(*records: NewRecord) -> Topics:
    state = topics.fresh()
    for record in records:
        topics.apply(state, record.key, record.value)
    return state


def alter(state: Topics, resource: int, name: str, *operations: Operation, replace: bool = False) -> DecidedAlterations:
    decided = decide_alter(state, [Alteration(resource, name, operations, replace)], CONFIG)
    for record in decided.records:
        topics.apply(state, record.key, record.value)
    return decided


def altered(*operations: Operation, replace: bool = False) -> dict[str, str]:
    """What topic a has after these."""
    state = state_with(topic_record(TOPIC_A))
    (outcome,) = alter(state, TOPIC_RESOURCE, "a", *operations, replace=replace).outcomes
    assert outcome.fault is None, outcome.fault
    return dict(state.by_name["a"].configs)


@proves("T1")
def test_set_and_delete_change_what_they_name_and_nothing_else() -> None:
    assert altered(Operation("segment.ms", SET, "9")) == {"retention.ms": "5", "segment.ms": "9"}
    assert altered(Operation("retention.ms", SET, " 6 ")) == {"retention.ms": "6"}
    assert altered(Operation("retention.ms", DELETE, None)) == {}


@proves("T1")
def test_deleting_what_is_not_set_or_not_known_changes_nothing_as_in_kafka() -> None:
    assert altered(Operation("segment.ms", DELETE, None)) == {"retention.ms": "5"}
    assert altered(Operation("no.such.key", DELETE, None)) == {"retention.ms": "5"}


@proves("T1")
def test_append_and_subtract_start_from_the_value_in_effect() -> None:
    assert altered(Operation("cleanup.policy", APPEND, "compact"))["cleanup.policy"] == "delete,compact"
    assert altered(Operation("cleanup.policy", APPEND, "delete"))["cleanup.policy"] == "delete"
    assert altered(Operation("cleanup.policy", SUBTRACT, "delete"))["cleanup.policy"] == ""
    assert altered(Operation("cleanup.policy", SUBTRACT, "compact"))["cleanup.policy"] == "delete"


@proves("T1")
def test_a_full_replacement_forgets_what_it_does_not_name() -> None:
    assert altered(Operation("segment.ms", SET, "9"), replace=True) == {"segment.ms": "9"}
    assert altered(replace=True) == {}


@proves("T1")
@pytest.mark.parametrize(
    ("operation", "code", "part"),
    [
        (Operation("retention.mss", SET, "1"), ErrorCode.INVALID_CONFIG, "did you mean retention.ms?"),
        (Operation("retention.ms", SET, "x"), ErrorCode.INVALID_CONFIG, "retention.ms=x is not a long"),
        (Operation("retention.ms", SET, None), ErrorCode.INVALID_REQUEST, "has no value"),
        (Operation("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG, "is not a list"),
        (Operation("cleanup.policy", APPEND, "shred"), ErrorCode.INVALID_CONFIG, "any of compact, delete"),
        (Operation("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST, "operation 9"),
        (Operation("compression.type", SET, "brotli"), ErrorCode.INVALID_CONFIG, "it takes uncompressed or zstd"),
    ],
)
def test_an_operation_is_refused_with_its_reason(operation: Operation, code: int, part: str) -> None:
    state = state_with(topic_record(TOPIC_A))
    decided = alter(state, TOPIC_RESOURCE, "a", Operation("segment.ms", SET, "9"), operation)
    (outcome,) = decided.outcomes
    assert outcome.fault is not None
    assert (outcome.fault.code, part in outcome.fault.message) == (code, True), outcome.fault
    assert decided.records == []
    assert state.by_name["a"] == TOPIC_A


@proves("T1")
@pytest.mark.parametrize(
    ("resource", "name", "operation", "code"),
    [
        (TOPIC_RESOURCE, "gone", Operation("retention.ms", SET, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC_RESOURCE, "__tidelog.topics", Operation("retention.ms", SET, "1"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER_RESOURCE, "2", Operation("log.retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER_RESOURCE, "one", Operation("log.retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER_RESOURCE, "1", Operation("num.partitions", SET, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER_RESOURCE, "1", Operation("log.retention.hours", DELETE, None), ErrorCode.INVALID_REQUEST),
        (BROKER_RESOURCE, "1", Operation("no.such.key", SET, "1"), ErrorCode.INVALID_CONFIG),
        (BROKER_RESOURCE, "1", Operation("compression.type", SET, "brotli"), ErrorCode.INVALID_CONFIG),
        (GROUP_RESOURCE, "", Operation("consumer.session.timeout.ms", SET, "50000"), ErrorCode.INVALID_REQUEST),
        (GROUP_RESOURCE, "g", Operation("consumer.session.timeout.ms", SET, "5"), ErrorCode.INVALID_CONFIG),
        (GROUP_RESOURCE, "g", Operation("consumer.sessions", SET, "5"), ErrorCode.INVALID_CONFIG),
        (topics.BROKER_LOGGER_RESOURCE, "1", Operation("root", SET, "DEBUG"), ErrorCode.INVALID_REQUEST),
        (topics.CLIENT_METRICS_RESOURCE, "m", Operation("metrics", SET, "*"), ErrorCode.INVALID_REQUEST),
        (99, "x", Operation("y", SET, "z"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_resource_is_refused_with_kafkas_code(resource: int, name: str, operation: Operation, code: int) -> None:
    decided = alter(state_with(topic_record(TOPIC_A)), resource, name, operation)
    assert [outcome.fault and outcome.fault.code for outcome in decided.outcomes] == [code]
    assert decided.records == []


@proves("T1")
def test_what_is_named_twice_is_refused() -> None:
    state = state_with(topic_record(TOPIC_A))
    operations = [Operation("segment.ms", SET, "1"), Operation("segment.ms", DELETE, None)]
    assert _codes(alter(state, TOPIC_RESOURCE, "a", *operations)) == [ErrorCode.INVALID_REQUEST]
    twice = [Alteration(TOPIC_RESOURCE, "a", []), Alteration(TOPIC_RESOURCE, "a", [])]
    assert _codes(decide_alter(state, twice, CONFIG)) == [ErrorCode.INVALID_REQUEST] * 2


def _codes(decided: DecidedAlterations) -> list[int | None]:
    return [outcome.fault and outcome.fault.code for outcome in decided.outcomes]


@proves("T1")
def test_a_broker_and_the_cluster_are_altered_apart_and_the_broker_wins() -> None:
    state = topics.fresh()
    alter(state, BROKER_RESOURCE, "", Operation("max.connections", SET, "10"))
    assert broker_config(CONFIG.given, broker_values(state, CONFIG)).int("max.connections") == 10
    alter(state, BROKER_RESOURCE, "1", Operation("max.connections", SET, "20"))
    assert broker_config(CONFIG.given, broker_values(state, CONFIG)).int("max.connections") == 20
    alter(state, BROKER_RESOURCE, "1", Operation("max.connections", DELETE, None))
    assert broker_config(CONFIG.given, broker_values(state, CONFIG)).int("max.connections") == 10
    assert list(state.configs) == [(BROKER_RESOURCE, "")]


@proves("T1")
def test_altering_to_what_is_already_so_writes_nothing() -> None:
    state = state_with(topic_record(TOPIC_A))
    assert alter(state, TOPIC_RESOURCE, "a", Operation("retention.ms", SET, "5")).records == []


@proves("T3")
def test_a_group_gets_settings_of_its_own() -> None:
    state = topics.fresh()
    decided = alter(state, GROUP_RESOURCE, "g", Operation("consumer.session.timeout.ms", SET, "50000"))
    assert _codes(decided) == [None]
    assert state.altered(GROUP_RESOURCE, "g") == {"consumer.session.timeout.ms": "50000"}


KEYS = {"retention.ms": ["1", "2"], "cleanup.policy": ["compact", "delete", "compact,delete"], "preallocate": ["true"]}
OPERATIONS = st.sampled_from(sorted(KEYS)).flatmap(
    lambda key: st.builds(Operation, st.just(key), st.sampled_from([SET, DELETE]), st.sampled_from(KEYS[key]))
)


@proves("T1")
@given(st.lists(OPERATIONS, max_size=30))
def test_any_sequence_of_operations_is_what_a_dict_would_be(operations: list[Operation]) -> None:
    state = state_with(topic_record(TOPIC_A))
    oracle = dict(TOPIC_A.configs)
    for operation in operations:
        alter(state, TOPIC_RESOURCE, "a", operation)
        if operation.kind == SET:
            oracle[operation.key] = operation.value or ""
        else:
            oracle.pop(operation.key, None)
        assert state.by_name["a"].configs == oracle
    again = state_with(*topics.to_records(state))
    assert again == state
