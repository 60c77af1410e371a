"""One connection: versions are agreed on, answers find their requests, and every fault of the other side has a name."""

from __future__ import annotations

from functools import partial

import pytest

from client.scripted import answer, server
from contract import Broker
from proving import proves
from tidelog.client.address import Address, parse_address
from tidelog.client.connection import LARGE_ANSWER, LARGEST_KEPT, MAX_RESPONSE_BYTES, Connection
from tidelog.errors import BrokerError, Disconnected, MalformedMessage
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.fetch import FetchRequest, FetchResponse
from tidelog.wire.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.wire.messages.offset_delete import OffsetDeleteRequest

# No error; APIs 3 (versions 0 to 13) and 18 (0 to 4), as version 4 of ApiVersions writes it.
OFFERS = bytes.fromhex("0000 03 0003 0000 000d 00 0012 0000 0004 00 00000000 00")
# The same for a broker that has Metadata 14 and later only.
OFFERS_NEWER = bytes.fromhex("0000 02 0003 000e 0014 00 00000000 00")
# UNSUPPORTED_VERSION in version 0, with ApiVersions 0 to 2; then an answer in version 2.
TOO_NEW = bytes.fromhex("0023 00000001 0012 0000 0002")
TOO_NEW_BUT_3 = bytes.fromhex("0023 00000001 0012 0000 0003")
OFFERS_V2 = bytes.fromhex("0000 00000001 0012 0000 0002 00000000")


def offers(request: bytes) -> bytes:
    return answer(request, OFFERS)


@proves("T10")
def test_the_highest_version_in_common_is_used(broker: Broker) -> None:
    with Connection.open(parse_address(broker.bootstrap)) as connection:
        assert connection.version_of(MetadataRequest) == 13
        assert connection.version_of(MetadataRequest, highest=7) == 7
        assert connection.call(MetadataRequest(topics=[]), MetadataResponse).brokers


@proves("T10")
def test_several_requests_travel_at_once_and_each_gets_its_own_answer(broker: Broker) -> None:
    with Connection.open(parse_address(broker.bootstrap)) as connection:
        first = connection.send(MetadataRequest(topics=[]), MetadataResponse)
        second = connection.send(ApiVersionsRequest(), ApiVersionsResponse, version=0)
        third = connection.send(MetadataRequest(topics=[]), MetadataResponse, version=1)
        oldest_form = connection.receive(third)
        assert oldest_form.brokers and oldest_form.cluster_id is None
        assert connection.ready(first) and connection.ready(second)
        assert connection.receive(first).cluster_id is not None
        assert len(connection.receive(second).api_keys) > 10


@proves("T10")
def test_a_broker_that_does_not_know_our_version_is_asked_in_its_own() -> None:
    with server(lambda request: answer(request, TOO_NEW), lambda request: answer(request, OFFERS_V2)) as (at, requests):
        connection = Connection.open(at)
    assert [request[:4].hex() for request in requests] == ["00120004", "00120002"]
    assert connection.offered == {18: range(3)}


@proves("T10")
@pytest.mark.parametrize("said", [[], [TOO_NEW_BUT_3]], ids=["version 4", "version 3"])
def test_from_version_3_on_a_broker_is_told_who_asks(said: list[bytes]) -> None:
    """Apache Kafka refuses those versions without a name."""
    with server(*(partial(answer, body=one) for one in [*said, OFFERS])) as (at, requests):
        Connection.open(at)
    assert b"\x08tidelog" in requests[-1]


@proves("T10")
def test_an_api_that_the_broker_lacks_is_refused_by_name() -> None:
    with server(offers) as (at, _):
        connection = Connection.open(at)
    with pytest.raises(BrokerError, match=rf"OffsetDelete \(API 47\) at {at} was refused with UNSUPPORTED_VERSION"):
        connection.version_of(OffsetDeleteRequest)
    with pytest.raises(BrokerError) as refused:
        connection.version_of(MetadataRequest, highest=-1)
    assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION


@proves("T10")
def test_versions_without_overlap_are_both_named() -> None:
    with server(lambda request: answer(request, OFFERS_NEWER)) as (at, _):
        connection = Connection.open(at)
    with pytest.raises(BrokerError, match="the broker has versions 14 to 20, this client 0 to 13"):
        connection.version_of(MetadataRequest)


@proves("T10")
def test_nobody_listening_is_said_with_the_address() -> None:
    with pytest.raises(Disconnected, match=r"no connection to 127\.0\.0\.1:1: connection refused"):
        Connection.open(Address("127.0.0.1", 1))


@proves("T10")
def test_a_connection_that_ends_before_the_answer_is_said_with_the_address() -> None:
    with server(offers, b"") as (at, _):
        connection = Connection.open(at)
        with pytest.raises(Disconnected, match=f"the connection to {at} ended before MetadataResponse came"):
            connection.call(MetadataRequest(topics=[]), MetadataResponse)
        with pytest.raises(Disconnected, match=f"the connection to {at} is closed"):
            connection.call(MetadataRequest(topics=[]), MetadataResponse)


@proves("T10")
def test_only_of_a_connection_that_never_served_tls_and_logins_are_guessed() -> None:
    empty = bytes.fromhex("00000000 00000000 00000000")  # Metadata in version 1: no brokers, a controller, no topics
    with server(offers, lambda request: answer(request, empty), b"") as (at, _):
        connection = Connection.open(at)
        connection.call(MetadataRequest(topics=[]), MetadataResponse, version=1)
        with pytest.raises(Disconnected, match=r"ended before MetadataResponse came.*; the broker may have stopped"):
            connection.call(MetadataRequest(topics=[]), MetadataResponse, version=1)
    with server(offers, b"") as (at, _):
        connection = Connection.open(at)
        with pytest.raises(Disconnected, match="does it ask for TLS or a login"):
            connection.call(MetadataRequest(topics=[]), MetadataResponse)


@proves("T10")
def test_half_an_answer_is_no_answer() -> None:
    with server(offers, lambda request: answer(request, b"0123456789")[:-1]) as (at, _):
        connection = Connection.open(at)
        with pytest.raises(Disconnected, match="ended before MetadataResponse came"):
            connection.call(MetadataRequest(topics=[]), MetadataResponse)


@proves("T10")
def test_a_silent_broker_is_given_up_after_the_time_out() -> None:
    with server(offers, None) as (at, _):
        connection = Connection.open(at)
        connection.timeout_s = 0.1
        with pytest.raises(Disconnected, match=f"{at} did not answer in time"):
            connection.call(MetadataRequest(topics=[]), MetadataResponse)
        assert connection.closed


@proves("T2")
def test_a_long_poll_may_take_longer_than_the_time_out(broker: Broker) -> None:
    with Connection.open(parse_address(broker.bootstrap)) as connection:
        connection.timeout_s = 0.3
        request = FetchRequest(max_wait_ms=600, min_bytes=1)
        assert connection.receive(connection.send(request, FetchResponse, patience_s=120)).responses == []


@proves("T10")
@pytest.mark.parametrize("size", [-1, MAX_RESPONSE_BYTES + 1, 0x15030300])
def test_an_impossible_size_ends_the_connection_before_anything_is_allocated(size: int) -> None:
    with server(offers, size.to_bytes(4, "big", signed=True)) as (at, _):
        connection = Connection.open(at)
        with pytest.raises(MalformedMessage, match=f"{at} announces an answer of {size} bytes"):
            connection.call(MetadataRequest(topics=[]), MetadataResponse)
        assert connection.closed


@proves("T10")
def test_an_answer_to_another_request_ends_the_connection() -> None:
    empty = bytes.fromhex("00 00000000 01 00 ffffffff 01 0000 00")
    with server(offers, lambda request: answer(request, empty, correlation=77)) as (at, _):
        connection = Connection.open(at)
        with pytest.raises(MalformedMessage, match="answered request 77 instead of 1"):
            connection.call(MetadataRequest(topics=[]), MetadataResponse)
        assert connection.closed


@proves("T10")
def test_a_malformed_answer_ends_the_connection() -> None:
    with server(offers, lambda request: answer(request, b"\0\xff")) as (at, _):
        connection = Connection.open(at)
        with pytest.raises(MalformedMessage):
            connection.call(MetadataRequest(topics=[]), MetadataResponse)
        assert connection.closed


@proves("T10")
def test_memory_of_a_large_answer_is_used_again_once_nobody_looks_at_it(broker: Broker) -> None:
    with Connection.open(parse_address(broker.bootstrap)) as connection:
        size = LARGE_ANSWER + 1
        first = connection._room_for(size)
        first[:] = b"1" * size
        second = connection._room_for(size)
        second[:] = b"2" * size
        assert first == b"1" * size, "somebody looks at it"
        kept = first[5:10]
        of_second = second.obj
        del first, second
        third = connection._room_for(size)
        assert third.obj is of_second and len(third) == size
        third[:] = b"3" * size
        assert kept == b"11111", "also at a part of it"
        assert len(connection._room_for(10).obj) == 10
        assert len(connection._room_for(LARGEST_KEPT + 1).obj) == LARGEST_KEPT + 1
