"""Memory for what arrives: it is taken for bytes that have come, bounded, and shared fairly, whatever clients do."""

from __future__ import annotations

import socket
import struct
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from raw import RawConnection, batch_of, frame_of, produce

from proving import proves
from tidelog.broker import connections as server_module
from tidelog.broker.buffers import SCRATCH_BYTES, BufferPool
from tidelog.broker.connection import MAX_IN_FLIGHT, MAX_OTHER_BYTES
from tidelog.broker.embedded import Broker
from tidelog.broker.inbound import SMALLEST_FRAME, Inbound
from tidelog.errors import MalformedMessage
from tidelog.testing.broker import TestBroker
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.wire.messages.produce import ProduceResponse

HELLO = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
MIB = 1 << 20


def code_of(response: ProduceResponse) -> int:
    return response.responses[0].partition_responses[0].error_code


def memory_of(pid: int) -> int:
    resident_pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return resident_pages * 4096


@proves("T5")
@pytest.mark.tidelog(settings={"queued.max.request.bytes": MIB})
def test_a_request_larger_than_the_whole_budget_gets_through(tidelog_broker: TestBroker):
    tidelog_broker.create_topic("t", configs={"max.message.bytes": "5000000"})
    with RawConnection(tidelog_broker.bootstrap) as connection:
        for _ in range(2):
            assert code_of(connection.call(produce("t", batch_of(b"x" * 3_000_000)), 9, ProduceResponse)) == 0


@proves("T5")
@pytest.mark.tidelog(settings={"queued.max.request.bytes": -1})
def test_the_budget_can_be_without_limit(tidelog_broker: TestBroker):
    tidelog_broker.create_topic("t")
    with RawConnection(tidelog_broker.bootstrap) as connection:
        assert code_of(connection.call(produce("t", batch_of(b"x" * 900_000)), 9, ProduceResponse)) == 0


@proves("T5")
def test_what_is_announced_takes_no_memory_before_it_comes(tidelog_broker: TestBroker):
    tidelog_broker.create_topic("t")
    before = memory_of(tidelog_broker.pid)
    with ExitStack() as stack:
        for _ in range(200):
            liar = stack.enter_context(RawConnection(tidelog_broker.bootstrap))
            liar.socket.sendall(struct.pack(">ihh", 100_000_000, 0, 9))
        with RawConnection(tidelog_broker.bootstrap) as honest:
            assert code_of(honest.call(produce("t", batch_of(b"x" * 1_000_000)), 9, ProduceResponse)) == 0
        assert memory_of(tidelog_broker.pid) - before < 64 * MIB


@pytest.mark.full
@proves("T5")
@pytest.mark.tidelog(settings={"queued.max.request.bytes": 2 * MIB})
def test_who_holds_memory_for_a_request_that_does_not_come_on_loses_it_to_who_waits(tidelog_broker: TestBroker):
    tidelog_broker.create_topic("t")
    batch = batch_of(b"x" * 900_000)
    with ExitStack() as stack:
        slow = [stack.enter_context(RawConnection(tidelog_broker.bootstrap)) for _ in range(4)]
        for connection in slow:
            connection.socket.sendall(frame_of(produce("t", batch), 9)[:-1])
        with RawConnection(tidelog_broker.bootstrap) as honest:
            assert code_of(honest.call(produce("t", batch), 9, ProduceResponse)) == 0
        assert any(connection.is_closed() for connection in slow)


@proves("T5")
@pytest.mark.slow
def test_a_client_that_does_not_read_its_replies_is_not_worked_for(tidelog_broker: TestBroker):
    tidelog_broker.create_topic("t", partitions=1000)
    frame = frame_of(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 4)
    before = memory_of(tidelog_broker.pid)
    with RawConnection(tidelog_broker.bootstrap) as deaf, RawConnection(tidelog_broker.bootstrap) as other:
        deaf.socket.setblocking(False)
        sent = 0
        try:
            while sent < 200 * MIB // 20_000 * len(frame):
                sent += deaf.socket.send(frame * 100)
        except BlockingIOError:
            pass
        assert other.call(HELLO, 3, ApiVersionsResponse).error_code == 0
        assert memory_of(tidelog_broker.pid) - before < 64 * MIB
        deaf.socket.settimeout(180)
        for _ in range(sent // len(frame) if sent < 200 * len(frame) else 200):
            assert len(deaf.receive(MetadataResponse, 4)[1].topics[0].partitions) == 1000


@proves("T1")
def test_more_requests_at_once_than_may_be_in_flight_are_answered_in_order(tidelog_broker: TestBroker):
    count = 3 * MAX_IN_FLIGHT + 7
    with RawConnection(tidelog_broker.bootstrap) as connection:
        connection.socket.sendall(b"".join(frame_of(HELLO, 3, number) for number in range(count)))
        assert [connection.receive(ApiVersionsResponse, 3)[0] for _ in range(count)] == list(range(count))


@proves("T5")
def test_only_produce_may_be_very_large(tidelog_broker: TestBroker):
    with RawConnection(tidelog_broker.bootstrap) as connection:
        connection.socket.sendall(struct.pack(">ihhih", MAX_OTHER_BYTES + 10, 3, 4, 1, -1) + bytes(MAX_OTHER_BYTES))
        assert connection.is_closed()


@proves("T5")
def test_a_topic_that_is_named_many_times_is_described_once(tidelog_broker: TestBroker):
    tidelog_broker.create_topic("t", partitions=10)
    asked = [MetadataRequestTopic(name="t"), MetadataRequestTopic(name="nope")] * 500
    with RawConnection(tidelog_broker.bootstrap) as connection:
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        assert [topic.name for topic in connection.call(request, 4, MetadataResponse).topics] == ["t", "nope"]


@proves("T5")
@pytest.mark.tidelog(settings={"broker.rack": "r" * 40_000})
def test_a_reply_that_cannot_be_encoded_ends_its_connection_and_nothing_else(tidelog_broker: TestBroker):
    # The topic is new, so the reply is made when its record is synced: in the commit path, where a fault is fatal.
    request = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
    with RawConnection(tidelog_broker.bootstrap) as connection:
        connection.send(request, 12)
        assert connection.is_closed()
    with RawConnection(tidelog_broker.bootstrap) as connection:
        assert connection.call(HELLO, 3, ApiVersionsResponse).error_code == 0
        assert connection.call(HeartbeatRequest(group_id="g"), 4, HeartbeatResponse).error_code


@proves("T5")
@pytest.mark.parametrize(("idle_ms", "ends"), [(-1, False), (100, True)])
def test_connections_that_say_nothing_are_ended_unless_that_is_never(tmp_path, monkeypatch, idle_ms, ends):
    monkeypatch.setattr(server_module, "IDLE_SWEEP_S", 0.2)
    settings = {"connections.max.idle.ms": idle_ms}
    with Broker(tmp_path, settings=settings, in_process=True) as broker, RawConnection(broker.bootstrap) as connection:
        if ends:
            with suppress(AssertionError, ConnectionError):  # its end may come before its first answer
                connection.call(HELLO, 3, ApiVersionsResponse)
            assert connection.is_closed()
        else:
            connection.call(HELLO, 3, ApiVersionsResponse)
            connection.socket.settimeout(1)
            with pytest.raises(socket.timeout):
                connection.is_closed()


class Arriving:
    """A connection and its transport in one: bytes that come in pieces of these sizes, and the frames made of them."""

    peer_host = "test"
    closed = crowded = False

    def __init__(self, data: bytes, pieces: list[int]):
        self.data, self.pieces, self.turn = memoryview(data), pieces, 0
        self.frames = []

    @property
    def transport(self):
        return self

    def receive_into(self, view):
        count = min(self.pieces[self.turn % len(self.pieces)], len(view), len(self.data))
        view[:count], self.data, self.turn = self.data[:count], self.data[count:], self.turn + 1
        return count

    def handle(self, buffer, start, end):
        self.frames.append(bytes(buffer.view[start:end]))


@proves("T1")
@given(
    st.lists(st.integers(SMALLEST_FRAME, 300) | st.just(SCRATCH_BYTES + 1), max_size=8),
    st.lists(st.integers(1, 200) | st.just(MIB), min_size=1, max_size=20),
)
def test_a_stream_cut_anywhere_gives_the_same_frames(sizes, pieces):
    expected = [bytes([number]) * size for number, size in enumerate(sizes)]
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in expected)
    pool = BufferPool(4 * MIB, MIB)
    arriving = Arriving(stream, pieces)
    inbound = Inbound(arriving, pool, MIB)
    while arriving.data:
        inbound.receive(0.0)
    assert arriving.frames == expected
    inbound.release()
    pool.scratch()
    assert pool.outstanding_bytes == 0


@proves("T1")
@pytest.mark.parametrize("size", [-1, SMALLEST_FRAME - 1, 1001])
def test_a_frame_outside_of_its_limits_is_refused_with_all_numbers(size):
    arriving = Arriving(size.to_bytes(4, "big", signed=True) + bytes(8), [20])
    with pytest.raises(MalformedMessage, match=rf"frame of {size} bytes from test is outside {SMALLEST_FRAME}\.\.1000"):
        Inbound(arriving, BufferPool(4 * MIB, MIB), 1000).receive(0.0)


@proves("T5")
@given(st.lists(st.tuples(st.sampled_from(["take", "scratch", "pin", "give"]), st.integers(1, 3 * MIB)), max_size=60))
def test_the_pool_never_gives_more_than_its_budget_and_one_overdraft(steps):
    budget = 4 * MIB
    pool = BufferPool(budget, MIB)
    out = []
    overdraft = 0
    for step, size in steps:
        if step == "take":
            buffer = pool.take(size, overdraw=len(out) % 2 == 0)
            if buffer is not None:
                out.append(buffer)
        elif step == "pin" and (buffer := pool.scratch()) is not None and buffer.pins == 1:
            buffer.pin()
            out.append(buffer)
        elif step == "scratch":
            pool.scratch()
        elif out:
            out.pop(size % len(out)).unpin()
        overdraft = len(pool._overdraft.data) if pool._overdraft is not None else 0
        assert len({id(buffer) for buffer in out}) == len(out)
        assert sum(len(buffer.data) for buffer in out) <= budget + overdraft + SCRATCH_BYTES
    for buffer in out:
        buffer.unpin()
    pool.scratch()
    assert pool.outstanding_bytes == 0
    assert pool._overdraft is None
