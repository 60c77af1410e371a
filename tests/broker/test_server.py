"""What connections may do, in which order replies leave, and what does not harm others. Real sockets, a real broker."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time

import pytest
from raw import RawConnection, batch_of, fetch, frame_of, produce

import tidelog
from proving import proves
from tidelog.record.columns import decode
from tidelog.testing.broker import TestBroker
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.fetch import FetchResponse
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.wire.messages.produce import ProduceResponse

HELLO = ApiVersionsRequest(client_software_name="raw", client_software_version="1")


@pytest.fixture
def raw(tidelog_broker: TestBroker):
    tidelog_broker.create_topic("t")
    with RawConnection(tidelog_broker.bootstrap) as connection:
        yield connection


def part_of(response):
    (topic,) = response.responses
    (part,) = topic.partition_responses if hasattr(topic, "partition_responses") else topic.partitions
    return part


def values_of(response) -> list[bytes | None]:
    return [row.value for row in decode(part_of(response).records).rows()]


@proves("T1")
def test_what_is_produced_is_fetched_byte_for_byte_but_for_offset_and_epoch(raw):
    batch = batch_of(b"one", b"two")
    assert part_of(raw.call(produce("t", batch), 9, ProduceResponse)).base_offset == 0
    assert part_of(raw.call(produce("t", batch), 9, ProduceResponse)).base_offset == 2
    response = raw.call(fetch("t", 0), 12, FetchResponse)
    records = bytes(part_of(response).records)
    assert records[16 : len(batch)] == batch[16:]
    assert values_of(response) == [b"one", b"two", b"one", b"two"]


@proves("T1")
def test_a_fetch_in_the_middle_of_a_batch_gets_the_whole_batch(raw):
    raw.call(produce("t", batch_of(b"0", b"1", b"2")), 9, ProduceResponse)
    assert values_of(raw.call(fetch("t", 2), 12, FetchResponse)) == [b"0", b"1", b"2"]


@proves("T1")
def test_the_first_batch_comes_whole_however_few_bytes_are_asked_for(raw):
    raw.call(produce("t", batch_of(b"x" * 5000)), 9, ProduceResponse)
    assert values_of(raw.call(fetch("t", 0, max_bytes=1), 12, FetchResponse)) == [b"x" * 5000]


@proves("T2")
def test_replies_leave_in_the_order_of_requests_even_when_the_first_has_to_wait(raw, tidelog_broker):
    raw.send(fetch("t", 0, wait_ms=10_000), 12, correlation_id=7)
    raw.send(HELLO, 3, correlation_id=8)
    with RawConnection(tidelog_broker.bootstrap) as other:
        other.call(produce("t", batch_of(b"woken")), 9, ProduceResponse)
    correlation_id, response = raw.receive(FetchResponse, 12)
    assert (correlation_id, values_of(response)) == (7, [b"woken"])
    assert raw.receive(ApiVersionsResponse, 3)[0] == 8


@proves("T2")
def test_a_fetch_that_waits_in_vain_is_answered_empty_when_its_time_is_over(raw):
    response = raw.call(fetch("t", 0, wait_ms=50), 12, FetchResponse)
    assert part_of(response).error_code == 0
    assert not len(part_of(response).records or b"")


@proves("T2")
def test_a_fetch_waits_until_there_are_as_many_bytes_as_it_wants(raw, tidelog_broker):
    raw.send(fetch("t", 0, wait_ms=10_000, min_bytes=200), 12)
    with RawConnection(tidelog_broker.bootstrap) as other:
        for value in (b"a" * 50, b"b" * 150):
            other.call(produce("t", batch_of(value)), 9, ProduceResponse)
    assert values_of(raw.receive(FetchResponse, 12)[1]) == [b"a" * 50, b"b" * 150]


@proves("T1")
def test_requests_may_arrive_in_any_pieces(raw):
    frames = frame_of(HELLO, 3, 1) + frame_of(produce("t", batch_of(b"v")), 9, 2) + frame_of(HELLO, 3, 3)
    for index in range(len(frames)):
        raw.socket.sendall(frames[index : index + 1])
    assert raw.receive(ApiVersionsResponse, 3)[0] == 1
    assert raw.receive(ProduceResponse, 9)[0] == 2
    assert raw.receive(ApiVersionsResponse, 3)[0] == 3


@proves("T1")
def test_many_requests_in_one_send_are_all_answered_in_order(raw):
    count = 2000
    raw.socket.sendall(b"".join(frame_of(produce("t", batch_of(b"%d" % i)), 9, i) for i in range(count)))
    for expected in range(count):
        correlation_id, response = raw.receive(ProduceResponse, 9)
        assert (correlation_id, part_of(response).base_offset) == (expected, expected)


@proves("T1")
def test_acks_0_is_written_and_not_answered(raw):
    raw.send(produce("t", batch_of(b"quiet"), acks=0), 9, correlation_id=1)
    assert raw.call(HELLO, 3, ApiVersionsResponse).error_code == 0
    assert values_of(raw.call(fetch("t", 0, wait_ms=5_000), 12, FetchResponse)) == [b"quiet"]


@proves("T6")
def test_a_corrupt_batch_is_refused_and_nothing_is_appended(raw):
    batch = bytearray(batch_of(b"value"))
    batch[-2] ^= 0x40
    response = part_of(raw.call(produce("t", bytes(batch)), 9, ProduceResponse))
    assert response.error_code == ErrorCode.CORRUPT_MESSAGE
    assert part_of(raw.call(fetch("t", 0), 12, FetchResponse)).high_watermark == 0


@proves("T6")
@pytest.mark.parametrize(
    ("records", "code"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (b"not a batch" * 20, ErrorCode.INVALID_RECORD),
        (batch_of(b"one") + batch_of(b"two"), ErrorCode.INVALID_RECORD),
        (batch_of(b"x", control=True), ErrorCode.INVALID_RECORD),
        (batch_of(b"x" * 1_100_000), ErrorCode.MESSAGE_TOO_LARGE),
        (
            batch_of(b"x", transactional=True, producer_id=1, producer_epoch=0, base_sequence=0),
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        (batch_of(b"x", producer_id=1, producer_epoch=0, base_sequence=-1), ErrorCode.INVALID_RECORD),
    ],
    ids=["nothing", "no batch", "two batches", "control batch", "too large", "transactional", "no sequence"],
)
def test_what_is_not_one_good_batch_is_refused_by_name(raw, records, code):
    response = part_of(raw.call(produce("t", records), 9, ProduceResponse))
    assert response.error_code == code
    assert response.error_message
    assert part_of(raw.call(fetch("t", 0), 12, FetchResponse)).high_watermark == 0


@proves("T1")
def test_clients_cannot_write_to_the_brokers_own_topics(raw):
    response = part_of(raw.call(produce("__tidelog.topics", batch_of(b"x")), 9, ProduceResponse))
    assert response.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@proves("T1")
def test_an_offset_that_is_not_there_is_out_of_range(raw):
    assert (
        part_of(raw.call(fetch("t", 99, wait_ms=5_000), 12, FetchResponse)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    )
    assert part_of(raw.call(fetch("no", 0, wait_ms=5_000), 12, FetchResponse)).error_code != 0


@proves("T10")
def test_api_versions_of_an_unknown_version_is_answered_in_version_0(raw):
    raw.socket.sendall(struct.pack(">ihhihx", 11, 18, 99, 5, -1))
    correlation_id, response = raw.receive(ApiVersionsResponse, 0)
    assert (correlation_id, response.error_code) == (5, ErrorCode.UNSUPPORTED_VERSION)
    assert {api.api_key: api.min_version for api in response.api_keys}[0] == 0


@proves("T6")
@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        struct.pack(">i", -1) + b"x" * 20,
        struct.pack(">i", 0x7FFFFFFF) + b"x" * 20,
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, 0, 0, 1, -1),
        struct.pack(">ihhih", 10, 3, 9, 1, 500),
        frame_of(fetch("t", 0), 12)[:-3] + b"\xff\xff\xff",
    ],
    ids=["http", "negative size", "huge size", "unknown api", "old produce", "client id too long", "bad body"],
)
def test_garbage_ends_its_own_connection_and_no_other(raw, tidelog_broker, garbage):
    with RawConnection(tidelog_broker.bootstrap) as other:
        other.socket.sendall(garbage)
        assert other.is_closed()
    assert part_of(raw.call(produce("t", batch_of(b"still here")), 9, ProduceResponse)).error_code == 0


@proves("T5")
def test_a_client_that_does_not_read_slows_down_only_itself(raw, tidelog_broker):
    for _ in range(40):
        raw.call(produce("t", batch_of(b"x" * 900_000)), 9, ProduceResponse)
    with RawConnection(tidelog_broker.bootstrap) as deaf:
        for correlation_id in range(100):
            deaf.send(fetch("t", 0, max_bytes=50 << 20), 12, correlation_id)
        assert part_of(raw.call(produce("t", batch_of(b"alive")), 9, ProduceResponse)).error_code == 0
        for correlation_id in range(3):
            assert deaf.receive(FetchResponse, 12)[0] == correlation_id


@proves("T5")
@pytest.mark.tidelog(settings={"queued.max.request.bytes": 2 << 20})
def test_requests_above_the_memory_budget_wait_and_all_get_through(tidelog_broker):
    tidelog_broker.create_topic("t")
    batch = batch_of(b"x" * 900_000)
    failures = []

    def many() -> None:
        with RawConnection(tidelog_broker.bootstrap) as connection:
            for _ in range(5):
                code = part_of(connection.call(produce("t", batch), 9, ProduceResponse)).error_code
                if code:
                    failures.append(code)

    threads = [threading.Thread(target=many) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    with RawConnection(tidelog_broker.bootstrap) as connection:
        assert part_of(connection.call(fetch("t", 0), 12, FetchResponse)).high_watermark == 40


@proves("T2")
def test_a_stop_answers_who_waits(tidelog_broker):
    tidelog_broker.create_topic("t")
    with RawConnection(tidelog_broker.bootstrap) as connection:
        both = frame_of(HELLO, 3), frame_of(fetch("t", 0, wait_ms=60_000), 12)
        connection.socket.sendall(b"".join(both))
        connection.receive(ApiVersionsResponse, 3)  # so the other, which came with it, has been taken too
        time.sleep(0.1)
        tidelog_broker.stop()
        assert part_of(connection.receive(FetchResponse, 12)[1]).error_code == 0
        assert connection.is_closed()


@proves("T1")
@pytest.mark.parametrize(("setting", "is_set"), [("51200", True), ("-1", False)])
def test_the_send_buffer_of_connections_is_as_set_or_left_to_the_system(tmp_path, setting, is_set):
    with (
        tidelog.Broker(tmp_path, in_process=True, settings={"socket.send.buffer.bytes": setting}) as broker,
        RawConnection(broker.bootstrap) as connection,
    ):
        connection.call(HELLO, 3, ApiVersionsResponse)
        (kept,) = broker._server._connections
        size = socket.socket(fileno=os.dup(kept.transport.fileno())).getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    assert (size in (51200, 2 * 51200)) is is_set, f"SO_SNDBUF is {size}; Linux doubles what it is told"


@pytest.mark.full
@proves("T5")
def test_large_requests_that_wait_for_records_hold_back_what_comes_behind_them(tmp_path):
    """Of a few bytes of a request many objects become: a client may have some of them waiting, not hundreds."""
    with tidelog.Broker(tmp_path, in_process=True) as broker, RawConnection(broker.bootstrap) as greedy:
        named = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True)
        greedy.call(named, 9, MetadataResponse)
        large = fetch("t", 0, wait_ms=1_000)
        large.topics = large.topics * 30_000
        frame = frame_of(large, 12)  # once: it takes longer to make than to answer
        frames = [frame[:8] + struct.pack(">i", number) + frame[12:] for number in range(6)]
        sender = threading.Thread(target=lambda: [greedy.socket.sendall(one) for one in frames])
        sender.start()
        waiting = []
        for number in range(len(frames)):
            (kept,) = broker._server._connections
            waiting.append(len(kept._calls))
            assert struct.unpack_from(">i", greedy.receive_frame()) == (number,)
        sender.join()
    assert max(waiting) <= 2, f"{waiting} requests of more than half a megabyte waited at once"
