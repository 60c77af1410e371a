"""Frames: headers of requests and responses, and the fallback of ApiVersions."""

from __future__ import annotations

import pytest

from proving import proves
from tidelog.errors import MalformedMessage
from tidelog.wire.api import ApiKey
from tidelog.wire.codec import decode
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.frame import (
    RequestHeader,
    chunks_size,
    decode_response,
    encode_request,
    encode_response,
    parse_request_header,
)
from tidelog.wire.message import Struct
from tidelog.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


def joined(chunks: list[object]) -> bytes:
    return b"".join(chunks)  # type: ignore[arg-type]


def request_of(cls: type[Struct], frame: memoryview) -> Struct:
    header = parse_request_header(frame)
    return decode(cls, header.api_version, frame, header.body_position)[0]


@proves("T1")
@pytest.mark.parametrize(("version", "tags"), [(11, ""), (12, "00")])
def test_a_request_has_the_header_of_its_version(version: int, tags: str) -> None:
    data = joined(encode_request(FetchRequest(max_wait_ms=500), version, 7, "tide"))  # type: ignore[arg-type]
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    assert data[4:].hex().startswith(f"0001{version:04x}00000007" + "000474696465" + tags)
    frame = memoryview(data)[4:]
    header = parse_request_header(frame)
    assert header == RequestHeader(ApiKey.FETCH, version, 7, "tide", 14 + len(tags) // 2)
    assert request_of(FetchRequest, frame) == FetchRequest(max_wait_ms=500)


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
    assert request_of(ApiVersionsRequest, frame) == ApiVersionsRequest()


@proves("T1")
def test_a_produce_request_survives_the_whole_way() -> None:
    records = bytes(range(256)) * 400
    request = ProduceRequest(
        acks=-1, topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(records=records)])]
    )
    chunks = encode_request(request, 9, 3, "tide")
    assert any(chunk is records for chunk in chunks)
    frame = memoryview(joined(chunks))[4:]  # type: ignore[arg-type]
    assert request_of(ProduceRequest, frame) == request
