"""Frames: headers of requests and responses, the fallback of ApiVersions, and cutting a stream into frames."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.errors import FrameTooLarge, MalformedMessage
from tidelog.wire.api import ApiKey
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.frame import (
    FIRST_ALLOCATION,
    FrameReader,
    RequestHeader,
    chunks_size,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    parse_request_header,
)
from tidelog.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

LIMIT = 100 << 20


def joined(chunks: list[object]) -> bytes:
    return b"".join(chunks)  # type: ignore[arg-type]


@proves("T1")
@pytest.mark.parametrize(("version", "tags"), [(11, ""), (12, "00")])
def test_a_request_has_the_header_of_its_version(version: int, tags: str) -> None:
    data = joined(encode_request(FetchRequest(max_wait_ms=500), version, 7, "tide"))  # type: ignore[arg-type]
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    assert data[4:].hex().startswith(f"0001{version:04x}00000007" + "000474696465" + tags)
    frame = memoryview(data)[4:]
    header = parse_request_header(frame)
    assert header == RequestHeader(ApiKey.FETCH, version, 7, "tide", 14 + len(tags) // 2)
    assert decode_request(header, frame) == FetchRequest(max_wait_ms=500)


@proves("T1")
def test_a_client_id_may_be_null_and_tags_in_a_header_are_skipped() -> None:
    frame = bytes.fromhex("0001 000c 00000001 ffff 01 05 02 abcd")
    assert parse_request_header(memoryview(frame)) == RequestHeader(1, 12, 1, None, len(frame))
    data = joined(encode_request(FetchRequest(), 12, 1, None))  # type: ignore[arg-type]
    assert parse_request_header(memoryview(data)[4:]).client_id is None


@proves("T1")
def test_headers_of_apis_and_versions_that_we_do_not_know_are_read_too() -> None:
    assert parse_request_header(memoryview(bytes.fromhex("03e7 0005 00000001 0001 61 dead"))).api_key == 999
    unknown = parse_request_header(memoryview(bytes.fromhex("0012 0063 00000009 0001 61 00 dead")))
    assert unknown == RequestHeader(ApiKey.API_VERSIONS, 99, 9, "a", 12)
    assert parse_request_header(memoryview(bytes.fromhex("0007 0000 00000003"))) == RequestHeader(7, 0, 3, None, 8)


@proves("T1")
@pytest.mark.parametrize("frame", ["", "0001", "0001000c00000001", "0001000c00000001000561", "0001000c00000001ffff"])
def test_a_header_that_is_cut_is_malformed(frame: str) -> None:
    with pytest.raises(MalformedMessage):
        parse_request_header(memoryview(bytes.fromhex(frame)))


@proves("T1")
@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_a_response_comes_back_with_its_correlation_id(version: int) -> None:
    partition = PartitionData(partition_index=1, high_watermark=5, records=bytes(20_000))
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])
    chunks = encode_response(ApiKey.FETCH, version, -5, response)
    data = joined(chunks)  # type: ignore[arg-type]
    assert chunks_size(chunks) == len(data) == int.from_bytes(data[:4], "big") + 4
    assert decode_response(FetchResponse, version, memoryview(data)[4:]) == (-5, response)


@proves("T1")
def test_the_header_of_an_api_versions_response_is_never_flexible() -> None:
    response = ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, max_version=4)])
    data = joined(encode_response(ApiKey.API_VERSIONS, 4, 9, response))  # type: ignore[arg-type]
    assert data[4:].hex() == "00000009" + "0000" + "02" + "00120000000400" + "00000000" + "00"
    assert decode_response(ApiVersionsResponse, 4, memoryview(data)[4:]) == (9, response)


@proves("T1")
def test_an_api_versions_refusal_is_written_and_read_in_version_0() -> None:
    response = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[ApiVersion(api_key=18, max_version=4)]
    )
    data = joined(encode_response(ApiKey.API_VERSIONS, 0, 9, response))  # type: ignore[arg-type]
    assert data[4:].hex() == "00000009" + "0023" + "00000001" + "001200000004"
    assert decode_response(ApiVersionsResponse, 4, memoryview(data)[4:]) == (9, response)


@proves("T1")
def test_bytes_after_a_request_are_ignored() -> None:
    data = joined(encode_request(ApiVersionsRequest(), 0, 1, "x"))[4:] + b"more"  # type: ignore[arg-type]
    frame = memoryview(data)
    assert decode_request(parse_request_header(frame), frame) == ApiVersionsRequest()


def stream(sizes: list[int]) -> tuple[bytes, list[bytes]]:
    frames = [bytes((number + index) & 255 for index in range(size)) for number, size in enumerate(sizes)]
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames), frames


@proves("T1")
@given(
    sizes=st.lists(st.integers(0, 300), max_size=8),
    cuts=st.lists(st.integers(1, 200), min_size=1, max_size=20),
    scratch=st.integers(8, 400),
)
def test_a_stream_cut_anywhere_gives_the_same_frames(sizes: list[int], cuts: list[int], scratch: int) -> None:
    data, expected = stream(sizes)
    reader = FrameReader(LIMIT, memoryview(bytearray(scratch)))
    frames: list[memoryview] = []
    position = turn = 0
    while position < len(data):
        buffer = reader.buffer()
        assert len(buffer) > 0
        count = min(cuts[turn % len(cuts)], len(buffer), len(data) - position)
        buffer[:count] = data[position : position + count]
        frames += reader.received(count)
        position += count
        turn += 1
    assert frames == expected


@proves("T1")
def test_frames_are_writable_and_never_shared() -> None:
    reader = FrameReader(LIMIT)
    (first,) = reader.feed(b"\0\0\0\x03abc")
    (second,) = reader.feed(b"\0\0\0\x03xyz")
    first[0] = ord("A")
    assert (bytes(first), bytes(second)) == (b"Abc", b"xyz")


@proves("T1")
def test_a_large_frame_grows_as_its_bytes_arrive() -> None:
    reader = FrameReader(LIMIT)
    size = 8 << 20
    tracemalloc.start()
    try:
        assert reader.feed(size.to_bytes(4, "big") + b"x") == []
        promised = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert promised < 2 * FIRST_ALLOCATION
    (frame,) = reader.feed(b"x" * (size - 1))
    assert frame == b"x" * size


@proves("T1")
def test_a_connection_that_sent_a_large_frame_gets_room_for_the_next_at_once() -> None:
    reader = FrameReader(LIMIT)
    data, expected = stream([1 << 20, 5, 1 << 20])
    assert reader.feed(data[: (1 << 20) + 4]) == expected[:1]
    assert reader.feed(data[(1 << 20) + 4 : (1 << 20) + 18]) == expected[1:2]
    assert len(reader.buffer()) == (1 << 20) - 1
    assert reader.feed(data[(1 << 20) + 18 :]) == expected[2:]


@proves("T1")
def test_a_frame_beyond_the_limit_is_refused_with_both_numbers() -> None:
    reader = FrameReader(1000)
    assert reader.feed(b"\0\0\x03\xe8" + bytes(1000)) == [bytes(1000)]
    with pytest.raises(FrameTooLarge, match="a frame of 1001 bytes is larger than the limit of 1000"):
        reader.feed(b"\0\0\x03\xe9")
    with pytest.raises(MalformedMessage, match="cannot have -1 bytes"):
        FrameReader(1000).feed(b"\xff\xff\xff\xff")


@proves("T1")
def test_the_limit_may_be_raised_between_frames() -> None:
    reader = FrameReader(10)
    reader.limit = 100
    assert reader.feed(b"\0\0\0\x32" + bytes(50)) == [bytes(50)]


@proves("T1")
def test_a_produce_request_survives_the_whole_way() -> None:
    records = bytes(range(256)) * 400
    request = ProduceRequest(
        acks=-1, topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(records=records)])]
    )
    chunks = encode_request(request, 9, 3, "tide")
    assert any(chunk is records for chunk in chunks)
    (frame,) = FrameReader(LIMIT).feed(joined(chunks))  # type: ignore[arg-type]
    assert decode_request(parse_request_header(frame), frame) == request
