"""A fetch that is sent again gets what the same fetch gets on a connection that never sent it."""

from __future__ import annotations

from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st
from raw import RawConnection, batch_of, fetch

from proving import proves
from tidelog.client.admin import topics
from tidelog.client.metadata import TopicPartition
from tidelog.testing.broker import TestBroker
from tidelog.wire.messages.fetch import FetchRequest
from tries import tries

BY_NAME = 12
ACTIONS = ("nothing", "append", "delete records", "make the topic anew")


def sent_again(connection: RawConnection, request: FetchRequest, correlation_id: int) -> bytes:
    """The answer but for its correlation id, which is that of the request."""
    connection.send(request, BY_NAME, correlation_id)
    frame = connection.receive_frame()
    assert int.from_bytes(frame[:4], "big", signed=True) == correlation_id
    return frame[4:]


def act(broker: TestBroker, topic: str, action: str) -> None:
    if action == "append":
        broker.produce(topic, [b"one more"])
    elif action == "delete records":
        at = TopicPartition(topic, 0)
        topics.delete_records(broker.cluster, {at: -1})
    elif action == "make the topic anew":
        topics.delete(broker.cluster, topic)
        broker.create_topic(topic)


@proves("T2")
@tries(5, suppress_health_check=list(HealthCheck))  # each makes a topic and many connections
@given(
    actions=st.lists(st.sampled_from(ACTIONS), max_size=5),
    committed=st.booleans(),
    offset=st.integers(0, 3),
    wait_ms=st.sampled_from((0, 1)),
)
@example(actions=[*ACTIONS], committed=False, offset=0, wait_ms=0)
@example(actions=["append", *reversed(ACTIONS)], committed=True, offset=1, wait_ms=1)
def test_it_is_answered_like_a_new_one(
    tidelog_session_broker: TestBroker, actions: list[str], committed: bool, offset: int, wait_ms: int
) -> None:
    broker = tidelog_session_broker
    topic = broker.create_topic(broker.unique("repeated"))
    broker.produce(topic, [b"first"])
    request = fetch(topic, offset, wait_ms=wait_ms)
    request.isolation_level = int(committed)
    with RawConnection(broker.bootstrap) as old:
        for number, action in enumerate(["nothing", "nothing", *actions]):
            act(broker, topic, action)
            with RawConnection(broker.bootstrap) as new:
                expected = sent_again(new, request, 7)
            assert sent_again(old, request, -number) == expected, action
            assert sent_again(old, request, 1 << 30) == expected, action


@proves("T2")
def test_two_alike_under_way_at_once_are_both_answered_in_their_order(tidelog_session_broker: TestBroker) -> None:
    broker = tidelog_session_broker
    topic = broker.create_topic(broker.unique("repeated"))
    request = fetch(topic, 0, wait_ms=60_000)
    with RawConnection(broker.bootstrap) as connection:
        connection.send(fetch(topic, 0, wait_ms=1), BY_NAME, 1)
        connection.receive_frame()
        for correlation_id in (2, 3, 4):
            connection.send(request, BY_NAME, correlation_id)
        broker.produce(topic, [b"wakes all"])
        frames = [connection.receive_frame() for _ in range(3)]
    assert [int.from_bytes(frame[:4], "big") for frame in frames] == [2, 3, 4]
    assert all(batch_of(b"wakes all")[61:] in frame for frame in frames)
