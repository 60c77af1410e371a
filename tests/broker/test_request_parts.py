"""Long requests in parts: the same reply as in one go, others served in between, order kept, a limit to the reply."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from raw import RawConnection, batch_of, produce

from proving import proves
from tidelog.broker import request_parts as module
from tidelog.broker.dispatch import APIS
from tidelog.broker.embedded import Broker
from tidelog.broker.request_parts import DIVIDED, Row, divided, parts_of
from tidelog.testing.broker import TestBroker
from tidelog.wire.api import request_class, response_class
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tidelog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from tidelog.wire.messages.produce import ProduceResponse

MANY = 300
DESCRIBE_GROUPS, GROUP_RESOURCE = 15, 32


@proves("T5")
@pytest.mark.parametrize("api_key", DIVIDED)
def test_a_row_names_lists_of_its_request_and_of_its_reply(api_key: int):
    row = DIVIDED[api_key]
    assert api_key in APIS
    asked = {field.name: field for field in request_class(api_key).SCHEMA.fields}
    told = {field.name: field for field in response_class(api_key).SCHEMA.fields}
    assert {asked[name].kind for name in row.asked} == {told[row.told].kind} == {"array"}
    bare = asked[row.asked[0]].element == "string"
    assert bare is bool(row.name)


def named(*names: str) -> list[Any]:
    return [OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]


@proves("T5")
def test_entries_about_the_same_thing_are_in_one_part_and_others_keep_their_order():
    row = Row(("groups",), "groups", 2, ("group_id",))
    parts = parts_of(row, named("a", "b", "a", "c", "b", "d"))
    assert [[one.group_id for one in part] for part in parts] == [["a", "a"], ["b", "b"], ["c", "d"]]


@proves("T5")
def test_where_nothing_is_changed_an_entry_that_is_said_again_is_dropped():
    row = Row(("groups",), "groups", 10, ("group_id",), reads=True)
    entries = [*named("a", "b", "a", "a"), OffsetFetchRequestGroup(group_id="a", topics=[])]
    assert [(one.group_id, one.topics) for part in parts_of(row, entries) for one in part] == [
        ("a", None),
        ("a", []),
        ("b", None),
    ]
    assert parts_of(row._replace(same=(), name="group_id"), ["x", "y", "x"]) == [["x", "y"]]


@proves("T5")
def test_where_the_reply_goes_by_position_nothing_is_moved():
    row = Row(("creations",), "results", 2)
    assert parts_of(row, ["a", "a", "b", "a", "c"]) == [["a", "a"], ["b", "a"], ["c"]]


class Later:
    """A scheduler whose turns the test takes."""

    def __init__(self) -> None:
        self.actions: list[Callable[[], None]] = []

    def call_soon(self, action: Callable[[], None]) -> None:
        self.actions.append(action)


class FakeConnection:
    closed = False

    def __init__(self) -> None:
        self.mutes = 0
        self.replies: list[tuple[Any, str]] = []
        self.faults: list[Exception] = []

    def mute(self) -> None:
        self.mutes += 1

    def unmute(self) -> None:
        self.mutes -= 1


class WholeCall(module.Call):
    def reply(self, response: Any, gathered: str = "") -> None:
        self.connection.replies.append((response, gathered))  # type: ignore[attr-defined]

    def fault(self, error: Exception) -> None:
        self.connection.faults.append(error)  # type: ignore[attr-defined]


@pytest.fixture
def step_by_step(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "STEP_S", 0.0)
    yield


def begun(handler: Callable[..., Any], names: list[str]) -> tuple[Later, FakeConnection]:
    later, connection = Later(), FakeConnection()
    call = WholeCall(connection, DESCRIBE_GROUPS, 5, 1, None, None)  # type: ignore[arg-type]
    request = DescribeGroupsRequest(groups=names)
    handle = divided(DESCRIBE_GROUPS, handler)
    assert handle(SimpleNamespace(scheduler=later), request, call) is None
    return later, connection


@proves("T5")
def test_the_loop_has_a_turn_after_every_step_and_the_connection_waits(step_by_step: None):
    seen: list[list[str]] = []

    def handler(_broker: Any, request: DescribeGroupsRequest, _call: Any) -> DescribeGroupsResponse:
        seen.append(request.groups)
        return DescribeGroupsResponse()

    later, connection = begun(handler, [str(number) for number in range(35)])
    turns = 0
    while later.actions:
        assert connection.mutes == 1
        assert not connection.replies
        turns += 1
        later.actions.pop(0)()
    assert [len(part) for part in seen] == [10, 10, 10, 5]
    assert turns == 3
    assert connection.mutes == 0
    assert len(connection.replies) == 1


@proves("T5")
def test_no_more_parts_are_begun_than_may_wait_for_the_disk(step_by_step: None):
    waiting: list[Any] = []

    def handler(_broker: Any, _request: Any, call: Any) -> None:
        waiting.append(call)

    later, connection = begun(handler, [str(number) for number in range(10 * module.WAITING_PARTS + 30)])
    for _ in range(100):
        if later.actions:
            later.actions.pop(0)()
    assert len(waiting) == module.WAITING_PARTS
    while waiting:
        waiting.pop(0).reply(DescribeGroupsResponse())
        while later.actions:
            later.actions.pop(0)()
    assert len(connection.replies) == 1


@proves("T5")
def test_a_connection_that_is_gone_gets_no_more_work(step_by_step: None):
    calls: list[Any] = []

    def handler(_broker: Any, _request: Any, _call: Any) -> DescribeGroupsResponse:
        calls.append(1)
        return DescribeGroupsResponse()

    later, connection = begun(handler, [str(number) for number in range(35)])
    connection.closed = True
    while later.actions:
        later.actions.pop(0)()
    assert len(calls) == 1
    assert not connection.replies


@proves("T5")
def test_a_fault_of_ours_in_a_part_ends_the_connection_and_nothing_else(step_by_step: None):
    def handler(_broker: Any, _request: Any, _call: Any) -> DescribeGroupsResponse:
        raise ZeroDivisionError

    later, connection = begun(handler, [str(number) for number in range(35)])
    assert [type(error) for error in connection.faults] == [ZeroDivisionError]
    assert not later.actions


@proves("T5")
def test_a_long_request_is_answered_as_in_one_go_and_before_what_comes_behind_it(tidelog_broker: TestBroker):
    topics = [CreatableTopic(name=f"t{number}", num_partitions=1, replication_factor=1) for number in range(MANY)]
    topics.append(topics[7])
    names = [MetadataRequestTopic(name=f"t{number}") for number in range(MANY)]
    with RawConnection(tidelog_broker.bootstrap) as connection:
        connection.send(CreateTopicsRequest(topics=topics, timeout_ms=1000), 7, 1)
        connection.send(produce(f"t{MANY - 1}", batch_of(b"x")), 9, 2)
        connection.send(MetadataRequest(topics=names, allow_auto_topic_creation=False), 12, 3)
        number, made = connection.receive(CreateTopicsResponse, 7)
        assert number == 1
        twice = [one.name for one in made.topics if one.error_code == ErrorCode.INVALID_REQUEST]
        assert twice == ["t7"]
        assert [one.name for one in made.topics] == [f"t{number}" for number in range(MANY)]
        number, appended = connection.receive(ProduceResponse, 9)
        assert (number, appended.responses[0].partition_responses[0].error_code) == (2, 0)
        number, told = connection.receive(MetadataResponse, 12)
        assert number == 3
        assert [(one.name, one.error_code) for one in told.topics] == [
            (f"t{number}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if number == 7 else 0) for number in range(MANY)
        ]
        assert {one.topic_id for one in told.topics if not one.error_code} == {
            one.topic_id for one in made.topics if not one.error_code
        }
        assert len(told.brokers) == 1


@proves("T5")
def test_a_group_and_a_resource_that_are_named_again_are_answered_once(tidelog_broker: TestBroker):
    with RawConnection(tidelog_broker.bootstrap) as connection:
        asked = OffsetFetchRequest(groups=named("b", "a", "b", "b"))
        assert [one.group_id for one in connection.call(asked, 8, OffsetFetchResponse).groups] == ["b", "a"]
        resource = DescribeConfigsResource(resource_type=GROUP_RESOURCE, resource_name="b", configuration_keys=None)
        told = connection.call(DescribeConfigsRequest(resources=[resource] * 50), 4, DescribeConfigsResponse)
        assert [one.resource_name for one in told.results] == ["b"]
        assert told.results[0].configs


@proves("T5")
def test_a_reply_above_the_limit_is_not_made_and_every_entry_says_why(tmp_path: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "REPLY_BYTES_MAX", 20_000)
    asked = [
        DescribeConfigsResource(resource_type=GROUP_RESOURCE, resource_name=f"g{number}", configuration_keys=None)
        for number in range(100)
    ]
    with Broker(tmp_path, in_process=True) as broker, RawConnection(broker.bootstrap) as connection:
        told = connection.call(DescribeConfigsRequest(resources=asked), 4, DescribeConfigsResponse)
        assert [one.resource_name for one in told.results] == [f"g{number}" for number in range(100)]
        assert {one.error_code for one in told.results} == {ErrorCode.INVALID_REQUEST}
        assert "ask for fewer" in (told.results[0].error_message or "")
        few = connection.call(DescribeConfigsRequest(resources=asked[:5]), 4, DescribeConfigsResponse)
        assert {one.error_code for one in few.results} == {0}
