"""Bytes of any kind give a message or `MalformedMessage`, quickly and in little memory."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proving import proves
from tidelog.errors import MalformedMessage
from tidelog.wire import field
from tidelog.wire.codec import decode, encode
from tidelog.wire.decoder import MAX_ELEMENTS, MAX_TAGS
from tidelog.wire.frame import decode_response, encode_response, parse_request_header
from tidelog.wire.message import Struct, StructType
from tidelog.wire.messages.fetch import FetchRequest
from tidelog.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tries import tries
from wire.any_message import any_message, message_classes, messages_and_versions

MEMORY_PER_BYTE = 200
MEMORY_AT_LEAST = 64 * 1024
CLASSES = [pytest.param(cls, id=cls.__name__) for cls in message_classes()]
ALL = messages_and_versions()


def damaged(random: Random, data: bytes) -> bytes:
    """Some bytes changed, inserted or taken away; lengths are what breaks decoders, so large bytes are favoured."""
    broken = bytearray(data)
    for _ in range(random.randint(1, 4)):
        position = random.randrange(len(broken) + 1)
        kind = random.randrange(4)
        if kind == 0:
            del broken[position:]
        elif kind == 1:
            broken[position : position + 1] = bytes([random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))])
        elif kind == 2:
            broken[position : position + 4] = b"\x7f\xff\xff\xff"
        else:
            broken[position:position] = random.randbytes(random.randint(1, 8))
    return bytes(broken)


def decode_or_refuse(cls: StructType, version: int, data: bytes) -> None:
    try:
        message, end = decode(cls, version, data)
    except MalformedMessage:
        return
    assert end <= len(data)
    canonical = b"".join(encode(message, version))
    assert b"".join(encode(decode(cls, version, canonical)[0], version)) == canonical


@proves("T1")
@pytest.mark.parametrize("cls", CLASSES)
@tries(3)  # each goes through all versions of a message
@given(seed=st.integers(0, 1 << 32))
def test_damaged_messages_are_refused_or_read(cls: StructType, seed: int) -> None:
    random = Random(seed)
    for version in cls.SCHEMA.versions:
        decode_or_refuse(cls, version, damaged(random, b"".join(encode(any_message(random, cls, version), version))))


@proves("T1")
@tries(60)  # there are 500 messages and versions
@given(choice=st.sampled_from(ALL), data=st.binary(max_size=200))
def test_random_bytes_are_refused_or_read(choice: tuple[StructType, int], data: bytes) -> None:
    decode_or_refuse(*choice, data)


@proves("T1")
@pytest.mark.parametrize("cls", CLASSES)
def test_every_cut_of_a_message_is_refused(cls: StructType) -> None:
    for version in cls.SCHEMA.versions:
        data = b"".join(encode(any_message(Random(version), cls, version), version))
        cuts = range(len(data)) if len(data) < 200 else sorted(Random(1).sample(range(len(data)), 200))
        for cut in cuts:
            with pytest.raises(MalformedMessage):
                decode(cls, version, data[:cut])


@proves("T1")
@given(data=st.binary(max_size=64))
@example(b"\x00\x07\x00\x00\x00\x00\x00\x01")
@example(b"\x00\x01\x00\x0c\x00\x00\x00\x01\xff\xff\x80\x80\x80\x80\x80\x01")
def test_any_request_header_is_refused_or_read(data: bytes) -> None:
    try:
        header = parse_request_header(memoryview(data))
    except MalformedMessage:
        return
    assert 8 <= header.body_position <= len(data)


@proves("T1")
@given(data=st.binary(max_size=64), version=st.integers(0, 13))
@example(data=b"\0\0\0\7" + bytes(8), version=0)
@example(data=b"\0\0\0\7" + bytes(4) + b"\0\0\0\1" + b"\0\3\0\1t" + bytes(4), version=0)
@example(data=b"\xff\xff\xff\xff\1\5\1x" + bytes(4) + b"\1\0" + bytes(4) + b"\1" + bytes(3), version=13)
def test_any_response_is_refused_or_read(data: bytes, version: int) -> None:
    """What is read is what was sent: to be written and read again, and without a byte that did not come."""
    try:
        correlation_id, response = decode_response(MetadataResponse, version, memoryview(data))
    except MalformedMessage:
        return
    assert correlation_id.to_bytes(4, "big", signed=True) == data[:4]
    frame = b"".join(encode_response(MetadataResponse.SCHEMA.api_key, version, correlation_id, response))[4:]
    assert decode_response(MetadataResponse, version, memoryview(frame)) == (correlation_id, response)
    assert len(frame) <= len(data)


@proves("T1")
@pytest.mark.parametrize("version", MetadataResponse.SCHEMA.versions)
def test_a_response_with_what_may_be_left_out_behind_it_is_read_and_one_that_is_cut_is_not(version: int) -> None:
    response = any_message(Random(version), MetadataResponse, version)
    frame = b"".join(encode_response(MetadataResponse.SCHEMA.api_key, version, 7, response))[4:]
    assert decode_response(MetadataResponse, version, memoryview(frame + b"more")) == (7, response)
    for cut in (3, 4, len(frame) - 1):
        with pytest.raises(MalformedMessage):
            decode_response(MetadataResponse, version, memoryview(frame[:cut]))


@proves("T1")
@pytest.mark.parametrize(
    ("cls", "version", "data"),
    [
        pytest.param(MetadataRequest, 1, b"\x7f\xff\xff\xff", id="two-billion-topics"),
        pytest.param(MetadataRequest, 9, b"\xff\xff\xff\xff\x07", id="two-billion-topics-compact"),
        pytest.param(MetadataRequest, 9, b"\x02\xff\xff\xff\xff\x0f", id="a-string-of-four-gigabytes"),
        pytest.param(MetadataRequest, 9, b"\x01\x01\x00\x00\xff\xff\xff\xff\x07", id="two-billion-tagged-fields"),
        pytest.param(MetadataRequest, 9, b"\x01\x01\x00\x00\x01\x05\xff\xff\xff\xff\x07", id="a-tag-of-two-gigabytes"),
        pytest.param(MetadataRequest, 9, b"\xff\xff\xff\xff\xff\xff\xff\xff\x01", id="a-varint-without-end"),
        pytest.param(FetchRequest, 7, bytes(25) + bytes(4) + b"\0\0\0\x01\0\x01a\x7f\xff\xff\xff", id="partitions"),
        pytest.param(
            ProduceRequest, 9, b"\0" + bytes(6) + b"\x02\x02a\x02" + bytes(4) + b"\xff\xff\xff\xff\x07", id="records"
        ),
    ],
)
def test_a_length_without_bytes_is_refused_before_anything_is_allocated(
    cls: StructType, version: int, data: bytes
) -> None:
    with pytest.raises(MalformedMessage):
        decode(cls, version, data)  # compiled now, so that the measurement is of the decoding alone
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessage):
            decode(cls, version, data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MEMORY_AT_LEAST


@proves("T1")
@pytest.mark.parametrize("seed", range(5))
def test_memory_is_bounded_by_the_bytes_that_came(seed: int) -> None:
    random = Random(seed)
    for cls, version in random.sample(ALL, 60):
        data = damaged(random, b"".join(encode(any_message(random, cls, version), version)) * 3)
        decode_or_refuse(cls, version, data)
        tracemalloc.start()
        try:
            decode_or_refuse(cls, version, data)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < MEMORY_AT_LEAST + MEMORY_PER_BYTE * len(data)


@proves("T1")
@pytest.mark.parametrize("version", [3, 9])
def test_a_null_where_none_may_be_is_refused_by_name(version: int) -> None:
    message = ProduceRequest(topic_data=[TopicProduceData(name="x", partition_data=[PartitionProduceData()])])
    data = b"".join(encode(message, version))
    name = b"\x00\x01x" if version == 3 else b"\x02x"
    null = b"\xff\xff" if version == 3 else b"\x00"
    assert name in data
    with pytest.raises(MalformedMessage, match="name is null"):
        decode(ProduceRequest, version, data.replace(name, null))


@proves("T1")
def test_bytes_that_are_not_utf8_are_refused() -> None:
    with pytest.raises(MalformedMessage, match="MetadataRequest version 0"):
        decode(MetadataRequest, 0, b"\0\0\0\x01\0\x02\xff\xfe")


class Hollow(Struct, versions="0-1"):
    items: list[Nothing] = field.array("Nothing", "0+")


class Nothing(Struct):
    later: int = field.int32("1+")


@proves("T1")
def test_an_array_of_structs_without_bytes_cannot_outgrow_what_came() -> None:
    with pytest.raises(MalformedMessage, match="items has 2147483647 elements, but 3 bytes remain"):
        decode(Hollow, 0, b"\x7f\xff\xff\xffabc")


@proves("T1")
def test_a_tagged_field_that_does_not_fill_its_size_is_refused() -> None:
    told = bytearray(b"".join(encode(FetchRequest(cluster_id="c"), 12)))
    assert told.endswith(b"\x01\x00\x02\x02c")
    told[-3:] = b"\x03\x02cd"
    with pytest.raises(MalformedMessage, match="tagged field 0 should end at"):
        decode(FetchRequest, 12, told)


def produce_to(*partitions: int) -> ProduceRequest:
    """A request that names so many partitions of each topic, with nothing for any."""
    nothing = PartitionProduceData(records=None)
    topics = [TopicProduceData(name="t", partition_data=[nothing] * count) for count in partitions]
    return ProduceRequest(topic_data=topics)


@proves("T5")
@pytest.mark.parametrize("version", [8, 9])
def test_a_request_of_more_elements_than_any_has_use_for_is_refused(version: int) -> None:
    half = MAX_ELEMENTS // 2
    most = b"".join(encode(produce_to(half, half - 2), version))
    assert len(decode(ProduceRequest, version, most)[0].topic_data[1].partition_data) == half - 2
    more = b"".join(encode(produce_to(half, half - 1), version))
    with pytest.raises(MalformedMessage, match=f"partition_data .* more than {MAX_ELEMENTS} elements"):
        decode(ProduceRequest, version, more)


@proves("T5")
def test_a_reply_may_have_as_many_elements_as_there_are() -> None:
    reply = MetadataResponse(topics=[MetadataResponseTopic(name="t")] * (MAX_ELEMENTS + 1))
    assert len(decode(MetadataResponse, 1, b"".join(encode(reply, 1)))[0].topics) == MAX_ELEMENTS + 1


@proves("T5")
@pytest.mark.parametrize("cls", [ProduceRequest, FetchRequest])
def test_more_tagged_fields_than_any_struct_has_use_for_are_refused(cls: StructType) -> None:
    many = cls(unknown_tags=dict.fromkeys(range(10, 10 + MAX_TAGS), b""))
    assert decode(cls, 12, b"".join(encode(many, 12)))[0] == many
    many.unknown_tags[9] = b""
    with pytest.raises(MalformedMessage, match=f"{MAX_TAGS + 1} tagged fields, more than {MAX_TAGS}"):
        decode(cls, 12, b"".join(encode(many, 12)))


@proves("T5")
def test_tagged_fields_count_as_elements_of_a_request() -> None:
    tagged = PartitionProduceData(records=None, unknown_tags=dict.fromkeys(range(MAX_TAGS), b""))
    request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[tagged] * 100)])
    with pytest.raises(MalformedMessage, match=f"tagged fields .* more than {MAX_ELEMENTS} elements"):
        decode(ProduceRequest, 9, b"".join(encode(request, 9)))
