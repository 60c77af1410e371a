"""Creating, growing and deleting topics: every refusal by its code and reason, and the fold of what is decided."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.broker import topics
from tidelog.broker.decision import Instant, NewRecord
from tidelog.broker.names import collision_key
from tidelog.broker.settings.configuring import load_broker_config
from tidelog.broker.topic_changes import (
    Addition,
    Creation,
    Decided,
    Deletion,
    decide_add_partitions,
    decide_create,
    decide_delete,
)
from tidelog.broker.topics import Topic, Topics
from tidelog.errors import DataFolderError
from tidelog.wire.error_code import ErrorCode

NOW = Instant(1_700_000_000_000, 5_000)
ROOM = 18  # for partitions of topics that are not the broker's own
CONFIG = load_broker_config(
    {
        "num.partitions": 3,
        "tidelog.max.partitions": ROOM + len(topics.INTERNAL_TOPICS),
        "tidelog.max.partitions.per.topic": 10,
    }
)
NEW_ID = (number.to_bytes(16, "big") for number in count(1)).__next__


def follow(state: Topics, decided: Decided) -> list[topics.Change]:
    return [topics.apply(state, record.key, record.value) for record in decided.records]


def with_topics(*creations: Creation) -> Topics:
    state = topics.fresh()
    decided = decide_create(state, creations, CONFIG, NEW_ID, NOW)
    assert not [outcome.fault for outcome in decided.outcomes if outcome.fault]
    follow(state, decided)
    return state


def refusal(decided: Decided) -> tuple[int, str]:
    (outcome,) = decided.outcomes
    assert outcome.fault is not None
    assert decided.records == []
    return outcome.fault


@proves("T1")
def test_a_topic_is_created_with_what_was_asked_for() -> None:
    state = with_topics(
        Creation("orders", 2, 1, configs=[("retention.ms", " 1000 "), ("cleanup.policy", "delete, compact")])
    )
    topic = state.by_name["orders"]
    assert topic == Topic(
        "orders", topic.topic_id, 2, {"retention.ms": "1000", "cleanup.policy": "delete,compact"}, NOW.wall_ms
    )
    assert state.by_id[topic.topic_id] is topic
    assert state.visible() == [topic]


@proves("T1")
def test_what_is_not_said_is_the_brokers_default() -> None:
    assert with_topics(Creation("orders")).by_name["orders"].partitions == 3


@proves("T1")
def test_assignments_give_the_number_of_partitions() -> None:
    assert with_topics(Creation("orders", assignments={1: [1], 0: [1]})).by_name["orders"].partitions == 2


@proves("T1")
@pytest.mark.parametrize(
    ("creation", "code", "part"),
    [
        (Creation("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "not a topic's name"),
        (Creation("there"), ErrorCode.TOPIC_ALREADY_EXISTS, "topic there already exists"),
        (Creation("with_dot"), ErrorCode.INVALID_TOPIC_EXCEPTION, "collides with topic with.dot"),
        (Creation("__tidelog.mine"), ErrorCode.INVALID_TOPIC_EXCEPTION, "the broker's own"),
        (Creation("__tidelog.topics"), ErrorCode.TOPIC_ALREADY_EXISTS, "already exists"),
        (Creation("new", 0), ErrorCode.INVALID_PARTITIONS, "cannot have 0 partitions"),
        (Creation("new", -2), ErrorCode.INVALID_PARTITIONS, "cannot have -2 partitions"),
        (Creation("new", 11), ErrorCode.INVALID_PARTITIONS, "tidelog.max.partitions.per.topic is 10"),
        (Creation("new", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "replication factor 0"),
        (Creation("new", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR, "use Apache Kafka for replication"),
        (Creation("new", 1, -1, {0: [1]}), ErrorCode.INVALID_REQUEST, "give -1 for both"),
        (Creation("new", -1, 1, {0: [1]}), ErrorCode.INVALID_REQUEST, "give -1 for both"),
        (Creation("new", assignments={1: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "number them 0, 1, 2"),
        (Creation("new", assignments={0: [2]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "there is one, 1"),
        (Creation("new", assignments={0: [1, 1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "there is one, 1"),
        (Creation("new", assignments={0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "there is one, 1"),
        (Creation("new", configs=[("retention.mss", "1")]), ErrorCode.INVALID_CONFIG, "did you mean retention.ms?"),
        (Creation("new", configs=[("retention.ms", "x")]), ErrorCode.INVALID_CONFIG, "retention.ms=x is not a long"),
        (Creation("new", configs=[("retention.ms", None)]), ErrorCode.INVALID_CONFIG, "has no value"),
        (Creation("new", configs=[("segment.bytes", "100")]), ErrorCode.INVALID_CONFIG, "at least 1048576"),
        (Creation("new", configs=[("cleanup.policy", "shred")]), ErrorCode.INVALID_CONFIG, "any of compact, delete"),
        (
            Creation("new", configs=[("compression.type", "brotli")]),
            ErrorCode.INVALID_CONFIG,
            "it takes uncompressed or zstd",
        ),
        (Creation("new", configs=[("min.insync.replicas", "2")]), ErrorCode.INVALID_CONFIG, "Apache Kafka's job"),
        (Creation("new", configs=[("preallocate", "yes")]), ErrorCode.INVALID_CONFIG, "is not a boolean"),
        (
            Creation("new", configs=[("tidelog.durability", "memory"), ("flush.messages", "1")]),
            ErrorCode.INVALID_CONFIG,
            "contradict each other",
        ),
        (
            Creation("new", configs=[("min.compaction.lag.ms", "9"), ("max.compaction.lag.ms", "5")]),
            ErrorCode.INVALID_CONFIG,
            "is above max.compaction.lag.ms=5",
        ),
    ],
)
def test_a_creation_is_refused_with_kafkas_code_and_the_reason(creation: Creation, code: int, part: str) -> None:
    state = with_topics(Creation("there"), Creation("with.dot"))
    refused, message = refusal(decide_create(state, [creation], CONFIG, NEW_ID, NOW))
    assert (refused, part in message) == (code, True), message


@proves("T1")
def test_a_topic_asked_for_twice_is_refused_and_the_others_are_created() -> None:
    asked = [Creation("twice", 1), Creation("once", 1), Creation("twice", 2)]
    decided = decide_create(topics.fresh(), asked, CONFIG, NEW_ID, NOW)
    codes = {outcome.name: outcome.fault and outcome.fault.code for outcome in decided.outcomes}
    assert codes == {"twice": ErrorCode.INVALID_REQUEST, "once": None}
    assert len(decided.records) == 1


@proves("T1")
def test_names_that_collide_within_one_request_are_found() -> None:
    decided = decide_create(topics.fresh(), [Creation("a.b"), Creation("a_b")], CONFIG, NEW_ID, NOW)
    assert [outcome.fault and outcome.fault.code for outcome in decided.outcomes] == [
        None,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]


@proves("T1")
def test_the_limit_of_partitions_counts_those_of_the_same_request() -> None:
    decided = decide_create(
        topics.fresh(), [Creation("a", 10), Creation("b", 9), Creation("c", 1)], CONFIG, NEW_ID, NOW
    )
    assert [outcome.fault and outcome.fault.code for outcome in decided.outcomes] == [
        None,
        ErrorCode.POLICY_VIOLATION,
        None,
    ]


@proves("T1")
@pytest.mark.parametrize(
    ("addition", "code", "part"),
    [
        (Addition("gone", 5), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic gone does not exist"),
        (Addition("there", 3), ErrorCode.INVALID_PARTITIONS, "3 is not more"),
        (Addition("there", 1), ErrorCode.INVALID_PARTITIONS, "1 is not more"),
        (Addition("there", 11), ErrorCode.INVALID_PARTITIONS, "tidelog.max.partitions.per.topic is 10"),
        (Addition("__tidelog.topics", 2), ErrorCode.INVALID_TOPIC_EXCEPTION, "the broker's own"),
        (Addition("there", 5, [[1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "2 new partitions and 1 assignments"),
        (Addition("there", 4, [[2]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "there is one, 1"),
    ],
)
def test_an_addition_is_refused_with_kafkas_code_and_the_reason(addition: Addition, code: int, part: str) -> None:
    refused, message = refusal(decide_add_partitions(with_topics(Creation("there")), [addition], CONFIG))
    assert (refused, part in message) == (code, True), message


@proves("T1")
def test_a_topic_grows_and_keeps_its_id_and_settings() -> None:
    state = with_topics(Creation("there", 1, configs=[("retention.ms", "5")]))
    before = state.by_name["there"]
    (change,) = follow(state, decide_add_partitions(state, [Addition("there", 4, [[1], [1], [1]])], CONFIG))
    assert change == topics.TopicChange(before, before._replace(partitions=4))
    assert state.by_name["there"].partitions == 4


@proves("T1")
def test_additions_of_one_request_share_the_limit_of_partitions() -> None:
    state = with_topics(Creation("a", 5), Creation("b", 5))
    decided = decide_add_partitions(state, [Addition("a", 10), Addition("b", 10)], CONFIG)
    assert [outcome.fault and outcome.fault.code for outcome in decided.outcomes] == [None, ErrorCode.POLICY_VIOLATION]


@proves("T1")
def test_topics_are_deleted_by_name_and_by_id() -> None:
    state = with_topics(Creation("a"), Creation("b"), Creation("c"))
    deletions = [Deletion("a"), Deletion(None, state.by_name["b"].topic_id)]
    before = state.by_name["a"]
    changes = follow(state, decide_delete(state, deletions, CONFIG))
    assert changes[0] == topics.TopicChange(before, None)
    assert [topic.name for topic in state.visible()] == ["c"]
    assert len(state.by_id) == len(state.by_name)


@proves("T1")
@pytest.mark.parametrize(
    ("deletion", "code"),
    [
        (Deletion("gone"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (Deletion(None, b"x" * 16), ErrorCode.UNKNOWN_TOPIC_ID),
        (Deletion("there", b"x" * 16), ErrorCode.INVALID_REQUEST),
        (Deletion(None), ErrorCode.INVALID_REQUEST),
        (Deletion("__tidelog.groups"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (Deletion(None, b"__tidelog.groups"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_a_deletion_is_refused_with_kafkas_code(deletion: Deletion, code: int) -> None:
    assert refusal(decide_delete(with_topics(Creation("there")), [deletion], CONFIG))[0] == code


@proves("T1")
def test_a_topic_to_delete_that_is_named_twice_stays() -> None:
    state = with_topics(Creation("a"))
    decided = decide_delete(state, [Deletion("a"), Deletion(None, state.by_name["a"].topic_id)], CONFIG)
    assert decided.records == []
    assert {outcome.fault and outcome.fault.code for outcome in decided.outcomes} == {ErrorCode.INVALID_REQUEST}


@proves("T1")
def test_where_deleting_is_off_nothing_is_deleted() -> None:
    config = load_broker_config({"delete.topic.enable": False})
    code, _ = refusal(decide_delete(with_topics(Creation("a")), [Deletion("a")], config))
    assert code == ErrorCode.TOPIC_DELETION_DISABLED


# The fold ---------------------------------------------------------------------------------------------------

NAMES = ["a", "b", "a.b", "a_b", "c-d", "__tidelog.topics"]
STEPS = st.one_of(
    st.tuples(st.just("create"), st.sampled_from(NAMES), st.integers(1, 6)),
    st.tuples(st.just("delete"), st.sampled_from(NAMES), st.just(0)),
    st.tuples(st.just("grow"), st.sampled_from(NAMES), st.integers(1, 12)),
)


def expected(oracle: dict[str, int], step: tuple[str, str, int]) -> None:
    """The same step on a dict of names and numbers of partitions."""
    what, name, number = step
    if what == "create":
        free = name not in oracle and name not in ("__tidelog.topics",)
        clear = all(collision_key(other) != collision_key(name) for other in oracle)
        if free and clear and sum(oracle.values()) + number <= ROOM:
            oracle[name] = number
    elif what == "delete":
        oracle.pop(name, None)
    elif name in oracle and oracle[name] < number <= 10 and sum(oracle.values()) + number - oracle[name] <= ROOM:
        oracle[name] = number


def decide(state: Topics, step: tuple[str, str, int]) -> Decided:
    what, name, number = step
    if what == "create":
        return decide_create(state, [Creation(name, number)], CONFIG, NEW_ID, NOW)
    if what == "delete":
        return decide_delete(state, [Deletion(name)], CONFIG)
    return decide_add_partitions(state, [Addition(name, number)], CONFIG)


@proves("T1")
@given(st.lists(STEPS, max_size=30))
def test_any_sequence_of_changes_is_what_a_dict_would_be(steps: list[tuple[str, str, int]]) -> None:
    state = topics.fresh()
    oracle: dict[str, int] = {}
    written: list[NewRecord] = []
    for step in steps:
        decided = decide(state, step)
        written += decided.records
        follow(state, decided)
        expected(oracle, step)
        assert {topic.name: topic.partitions for topic in state.visible()} == oracle
        assert state.partitions == sum(oracle.values()) + len(topics.INTERNAL_TOPICS)
    assert fold(written) == state
    assert fold(list(topics.to_records(state))) == state
    assert fold(compacted(written)) == state


def fold(records: list[NewRecord]) -> Topics:
    state = topics.fresh()
    for record in records:
        topics.apply(state, record.key, record.value)
    return state


def compacted(records: list[NewRecord]) -> list[NewRecord]:
    return [NewRecord(key, value) for key, value in {record.key: record.value for record in records}.items()]


@proves("T1")
def test_a_topic_created_again_has_another_id() -> None:
    state = with_topics(Creation("a"))
    before = state.by_name["a"].topic_id
    follow(state, decide_delete(state, [Deletion("a")], CONFIG))
    follow(state, decide_create(state, [Creation("a")], CONFIG, NEW_ID, NOW))
    assert state.by_name["a"].topic_id != before
    assert state.name_of(None, before) is None
    assert state.name_of(None, state.by_name["a"].topic_id) == "a"
    assert state.name_of("a", topics.NO_ID) == "a"


@proves("T1")
def test_no_id_looks_like_an_option_when_it_is_written_out() -> None:
    ids = [topics.random_id() for _ in range(2000)]
    assert len(set(ids)) == len(ids)
    assert {len(one) for one in ids} == {16}
    assert [one for one in ids if urlsafe_b64encode(one).startswith(b"-")] == []


@proves("T1")
@pytest.mark.parametrize(
    "key", [b'{"v":2,"kind":"topic","name":"a"}', b'{"v":1,"kind":"queue","name":"a"}'], ids=["version", "kind"]
)
def test_a_record_of_a_newer_tidelog_is_refused_by_name(key: bytes) -> None:
    with pytest.raises(DataFolderError, match="newer than this Tidelog"):
        topics.apply(topics.fresh(), key, b"{}")


@proves("T1")
def test_the_records_of_a_topic_are_as_the_page_draws_them() -> None:
    record = topics.topic_record(Topic("a", bytes(15) + b"\1", 2, {"retention.ms": "5"}, 7))
    assert record.key == b'{"v":1,"kind":"topic","name":"a"}'
    expected: Any = (
        b'{"id":"00000000000000000000000000000001","partitions":2,"configs":{"retention.ms":"5"},"created_ms":7}'
    )
    assert record.value == expected
