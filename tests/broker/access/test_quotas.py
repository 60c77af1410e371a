"""Quotas: which counts, how long a client rests, and that it is told; the others notice nothing."""

from __future__ import annotations

import time

import pytest
from access import PASSWORD
from hypothesis import given
from hypothesis import strategies as st
from raw import batch_of, fetch, produce

from proving import proves
from tidelog.broker.access.changes import QuotaAlteration, decide_quotas
from tidelog.broker.access.entities import CLIENT, PRECEDENCE, USER, Entity, applying
from tidelog.broker.access.state import AccessState
from tidelog.broker.access.throttling import METERS_MAX, Meter, Meters
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

HELLO = ApiVersionsRequest(client_software_name="raw", client_software_version="1")


def alter(client, entity: dict[str, str | None], **values: float | None) -> int:
    parts = [RequestEntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    ops = [OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()]
    (result,) = client.call(AlterClientQuotasRequest(entries=[RequestEntryData(entity=parts, ops=ops)]), 1).entries
    return result.error_code


@pytest.fixture
def broker(access_broker):
    made = access_broker("PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0", **{"quota.window.num": 2})
    with made.client("PLAINTEXT") as admin:
        made.add_user("alice", PASSWORD, by=admin)
        topics = [CreatableTopic(name="t", num_partitions=1, replication_factor=1)]
        admin.call(CreateTopicsRequest(topics=topics), 7)
    return made


@proves("T5")
def test_a_producer_above_its_quota_is_told_how_long_to_rest_and_is_not_read_for_so_long(broker):
    with broker.client("PLAINTEXT") as client, broker.client("PLAINTEXT") as other:
        assert client.call(produce("t", batch_of(b"x" * 1000)), 9).throttle_time_ms == 0
        assert alter(other, {CLIENT: "raw"}, producer_byte_rate=10_000.0) == 0
        began = time.monotonic()
        answer = client.call(produce("t", batch_of(b"x" * 15_000)), 9, client_id="raw")
        assert answer.responses[0].partition_responses[0].error_code == 0, "what came is taken all the same"
        assert 100 < answer.throttle_time_ms < 5000
        assert other.call(HELLO, 3, client_id="other").error_code == 0
        assert client.call(HELLO, 3).error_code == 0
        assert time.monotonic() - began >= answer.throttle_time_ms / 1000 * 0.9


@proves("T5")
def test_a_consumer_above_its_quota_gets_nothing_now_and_everything_in_the_end(broker):
    with broker.client("PLAINTEXT") as client:
        for _ in range(6):
            client.call(produce("t", batch_of(b"x" * 20_000)), 9)
        assert alter(client, {USER: None}, consumer_byte_rate=50_000.0) == 0
        got, rested = 0, 0
        while got < 120_000 or not rested:  # who reads slowly is not made to rest
            answer = client.call(fetch("t", got // 20_000 % 6, max_bytes=40_000), 12)
            got += len(answer.responses[0].partitions[0].records) // 20_000 * 20_000
            rested += answer.throttle_time_ms
            assert answer.throttle_time_ms == 0 or not answer.responses[0].partitions[0].records
        assert rested > 0


@proves("T5")
def test_a_batch_larger_than_all_windows_of_a_quota_still_comes(broker):
    with broker.client("PLAINTEXT") as client:
        client.call(produce("t", batch_of(b"x" * 50_000)), 9)
        assert alter(client, {CLIENT: "raw"}, consumer_byte_rate=1000.0) == 0
        answer = client.call(fetch("t", 0), 12)
        assert len(answer.responses[0].partitions[0].records) > 50_000


@proves("T5")
def test_a_users_share_of_the_loop_is_bounded_too(broker):
    with broker.client("PLAINTEXT") as admin, broker.client("SASL_PLAINTEXT") as client:
        assert client.login("alice", PASSWORD).error_code == 0
        assert alter(admin, {USER: "alice"}, request_percentage=0.0001) == 0
        told = (client.call(HELLO, 3).throttle_time_ms for _ in range(50))
        assert 0 < next(filter(None, told)) <= 1000


@proves("T5")
def test_quotas_are_kept_described_and_taken_back(broker):
    with broker.client("PLAINTEXT") as client:
        assert alter(client, {USER: "alice", CLIENT: None}, producer_byte_rate=1e6, request_percentage=50.0) == 0
        assert alter(client, {CLIENT: "c"}, consumer_byte_rate=5.0) == 0
    broker.stop()
    broker.start()
    with broker.client("PLAINTEXT") as client:

        def found(*components: ComponentData, strict: bool = False):
            request = DescribeClientQuotasRequest(components=list(components), strict=strict)
            entries = client.call(request, 1).entries
            return [
                ({e.entity_type: e.entity_name for e in one.entity}, {v.key: v.value for v in one.values})
                for one in entries
            ]

        alices = ({USER: "alice", CLIENT: None}, {"producer_byte_rate": 1e6, "request_percentage": 50.0})
        others = ({CLIENT: "c"}, {"consumer_byte_rate": 5.0})
        assert found() == [alices, others]
        assert found(ComponentData(entity_type=USER, match_type=0, match="alice")) == [alices]
        assert found(ComponentData(entity_type=USER, match_type=0, match="alice"), strict=True) == []
        assert found(ComponentData(entity_type=CLIENT, match_type=1)) == [alices]
        assert found(ComponentData(entity_type=CLIENT, match_type=2)) == [alices, others]
        assert alter(client, {USER: "alice", CLIENT: None}, producer_byte_rate=None, request_percentage=None) == 0
        assert found() == [others]


@proves("T5")
@pytest.mark.parametrize(
    ("entity", "values"),
    [
        ({}, {"producer_byte_rate": 1.0}),
        ({"ip": "127.0.0.1"}, {"connection_creation_rate": 1.0}),
        ({USER: ""}, {"producer_byte_rate": 1.0}),
        ({USER: "a"}, {"producer_byte_rate": 0.0}),
        ({USER: "a"}, {"producer_byte_rate": -5.0}),
        ({USER: "a"}, {"producer_byte_rate": 1.5}),
        ({USER: "a"}, {"producer_byte_rate": float("nan")}),
        ({USER: "a"}, {"controller_mutation_rate": 1.0}),
    ],
)
def test_a_quota_that_cannot_be_is_refused(broker, entity, values):
    with broker.client("PLAINTEXT") as client:
        assert alter(client, entity, **values) == ErrorCode.INVALID_REQUEST


@proves("T5")
@pytest.mark.parametrize(
    ("entity", "key", "instead"),
    [
        (("ip", "127.0.0.1"), "connection_creation_rate", "max.connections.per.ip of the broker bounds"),
        ((USER, "a"), "connection_creation_rate", "max.connections.per.ip of the broker bounds"),
        ((USER, "a"), "controller_mutation_rate", "request_percentage bounds"),
    ],
)
def test_of_a_quota_that_is_not_kept_it_is_said_what_does_something_like_it(entity, key, instead):
    _, (fault,) = decide_quotas(AccessState(), [QuotaAlteration([entity], [(key, 1.0)])])
    assert fault is not None and f"; {instead}" in fault.message


@proves("T5")
def test_of_several_quotas_the_most_particular_counts():
    names = {USER: "alice", CLIENT: "app"}
    quotas = {}
    for place, row in reversed(list(enumerate(PRECEDENCE))):
        entity = Entity(tuple((kind, names[kind] if by_name else None) for kind, by_name in row))
        quotas[entity] = {"producer_byte_rate": float(place)}
        found = applying(quotas, "producer_byte_rate", "alice", "app")
        assert found is not None and found.limit == place
        assert found.sharers == tuple((kind, names[kind]) for kind, _ in row)
    assert applying(quotas, "consumer_byte_rate", "alice", "app") is None


@proves("T5")
@given(st.integers(1, 1000), st.floats(0, 0.5), st.integers(100, 5000))
def test_who_rests_as_long_as_told_stays_near_the_quota(amount, pause, limit):
    """Near, and not at: as in Kafka a meter forgets whole windows, so after a long rest somebody may burst again."""
    meter, began = Meter(11, 1.0), 100.0
    now, sent = began, 0
    while now < began + 300:
        meter.record(amount, now)
        sent += amount
        now += pause + meter.wait_s(limit, now) + 0.01
    assert sent <= 2 * limit * (now - began) + 11 * limit + amount


@proves("T5")
def test_meters_of_names_that_anybody_may_choose_are_bounded():
    meters = Meters(11, 1.0)
    for number in range(3 * METERS_MAX):
        meters.meter("producer_byte_rate", f"client-{number}").record(1, number)
    assert len(meters._meters) <= METERS_MAX
