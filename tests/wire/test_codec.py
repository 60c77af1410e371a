"""What the codec promises beyond round trips: known bytes, defaults, tagged fields, chunks, refusals by name."""

from __future__ import annotations

import pytest

from proving import proves
from tidelog.errors import UsageError
from tidelog.wire import field
from tidelog.wire.codec import decode, decoder, encode, encode_elements, encode_into
from tidelog.wire.encoder import OWN_CHUNK, Gathered
from tidelog.wire.field import ZERO_UUID, span
from tidelog.wire.message import Struct
from tidelog.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse, SupportedFeatureKey
from tidelog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
    ReplicaState,
)
from tidelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from tidelog.wire.messages.offset_fetch import OffsetFetchRequest
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


class Elsewhere:
    """Records that are not in memory."""

    def __init__(self, size: int) -> None:
        self.size = size


def bytes_of(message: Struct, version: int) -> bytes:
    return b"".join(encode(message, version))  # type: ignore[arg-type]


def fetch_response(records: object) -> FetchResponse:
    partition = PartitionData(partition_index=3, high_watermark=9, records=records)  # type: ignore[arg-type]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])


@proves("T1")
@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, "00000001" "000174"),
        (4, "00000001" "000174" "01"),
        (9, "02" "0274" "00" "01" "00" "00" "00"),
        (12, "02" + "00" * 16 + "0274" "00" "01" "00" "00"),
    ],
)  # fmt: skip
def test_a_metadata_request_has_the_bytes_of_the_protocol(version: int, expected: str) -> None:
    message = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    assert bytes_of(message, version).hex() == expected


@proves("T1")
def test_every_kind_of_field_has_the_bytes_of_the_protocol() -> None:
    message = Kinds(
        a=True, b=-1, c=-2, d=65535, e=-3, f=1 << 31, g=-4, h=0.5, i=bytes(range(16)), k=[1, 2], l=[ZERO_UUID]
    )
    expected = (
        "01" "ff" "fffe" "ffff" "fffffffd" "80000000" "fffffffffffffffc" "3fe0000000000000"
        "000102030405060708090a0b0c0d0e0f" "03" "0001" "0002" "02" + "00" * 16 + "01" "00" "00"
    )  # fmt: skip
    assert bytes_of(message, 1).hex() == expected
    assert decode(Kinds, 1, bytes.fromhex(expected)) == (message, len(expected) // 2)


class Kinds(Struct, versions="0-1", flexible="1+"):
    a: bool = field.bool_("0+")
    b: int = field.int8("0+")
    c: int = field.int16("0+")
    d: int = field.uint16("0+")
    e: int = field.int32("0+")
    f: int = field.uint32("0+")
    g: int = field.int64("0+")
    h: float = field.float64("0+")
    i: bytes = field.uuid("0+")
    k: list[int] = field.array("int16", "0+")
    l: list[bytes] = field.array("uuid", "0+")  # noqa: E741
    m: bytes = field.bytes_("0+")
    n: Inner | None = field.struct("Inner", "0+", tag=0)
    o: list[bytes] | None = field.array("bytes", "0+", nullable="0+", default=None)


class Inner(Struct):
    x: int = field.int32("0+", default=5)


@proves("T1")
def test_versions_are_read_as_kafka_writes_them() -> None:
    assert [span("3+")[0], span("3+")[-1]] == [3, 32767]
    assert list(span("2-4")) == [2, 3, 4]
    assert list(span("7")) == [7]
    assert list(span("none")) == []


@proves("T1")
def test_a_field_that_the_version_lacks_decodes_to_its_default() -> None:
    message, _ = decode(FetchRequest, 4, bytes_of(FetchRequest(max_wait_ms=7), 4))
    assert (message.max_wait_ms, message.session_epoch, message.max_bytes) == (7, -1, 0x7FFFFFFF)
    assert (message.forgotten_topics_data, message.rack_id, message.replica_state) == ([], "", None)


@proves("T1")
def test_lists_and_structs_are_fresh_for_every_message() -> None:
    assert FetchRequest().topics is not FetchRequest().topics
    first, second = (decode(FetchRequest, 4, bytes_of(FetchRequest(), 4))[0] for _ in range(2))
    assert first.forgotten_topics_data is not second.forgotten_topics_data


@proves("T1")
def test_a_value_that_the_version_cannot_carry_is_refused_unless_ignorable() -> None:
    with pytest.raises(UsageError, match=r"MetadataRequest\.allow_auto_topic_creation does not exist in version 3"):
        encode(MetadataRequest(topics=[], allow_auto_topic_creation=False), 3)
    with pytest.raises(UsageError, match=r"OffsetFetchRequest\.require_stable does not exist in version 6"):
        encode(OffsetFetchRequest(group_id="g", require_stable=True), 6)
    assert bytes_of(FetchRequest(rack_id="a"), 4) == bytes_of(FetchRequest(), 4)


@proves("T1")
def test_values_that_do_not_fit_are_refused() -> None:
    for message in (FetchRequest(max_wait_ms=1 << 31), FetchRequest(rack_id=None), FetchRequest(rack_id="x" * 32768)):  # type: ignore[arg-type]
        with pytest.raises(UsageError):
            encode(message, 12)
    assert decode(FetchRequest, 12, bytes_of(FetchRequest(rack_id="x" * 32767), 12))[0].rack_id == "x" * 32767


@proves("T1")
def test_a_version_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="ProduceRequest has no version 2; it has 3 to 13"):
        decode(ProduceRequest, 2, b"")
    with pytest.raises(UsageError, match="ProduceRequest has no version 14"):
        encode(ProduceRequest(), 14)


@proves("T1")
def test_tagged_fields_are_written_only_when_they_differ_from_their_default() -> None:
    plain = bytes_of(ApiVersionsResponse(), 3)
    assert plain.endswith(b"\x00")
    assert bytes_of(ApiVersionsResponse(finalized_features_epoch=-1, supported_features=[]), 3) == plain
    told = ApiVersionsResponse(
        api_keys=[ApiVersion(api_key=0, max_version=13)],
        supported_features=[SupportedFeatureKey(name="tidelog.version", max_version=1)],
        finalized_features_epoch=4,
    )
    assert decode(ApiVersionsResponse, 3, bytes_of(told, 3))[0] == told
    at_default = FetchRequest(replica_state=ReplicaState())
    assert bytes_of(at_default, 15) == bytes_of(FetchRequest(), 15)


@proves("T1")
def test_tagged_fields_of_the_future_are_kept_and_written_back_in_order() -> None:
    message = ApiVersionsRequest(client_software_name="x", unknown_tags={200: b"later", 1: b"soon"})
    data = bytes_of(message, 3)
    assert data.endswith(b"\x02\x01\x04soon\xc8\x01\x05later")
    assert decode(ApiVersionsRequest, 3, data)[0].unknown_tags == message.unknown_tags
    known = FetchRequest(cluster_id="c", unknown_tags={9: b"z"})
    assert decode(FetchRequest, 12, bytes_of(known, 12))[0] == known
    many = ApiVersionsRequest(unknown_tags=dict.fromkeys(range(300), b""))
    assert decode(ApiVersionsRequest, 3, bytes_of(many, 3))[0] == many


@proves("T1")
@pytest.mark.parametrize("version", [4, 12, 16])
def test_records_that_lie_elsewhere_are_a_chunk_of_their_own(version: int) -> None:
    records = Elsewhere(100_000)
    chunks = encode(fetch_response(records), version)
    assert len(chunks) in (2, 3)
    assert chunks[1] is records
    in_memory = bytes_of(fetch_response(bytes(100_000)), version)
    assert in_memory[: len(chunks[0])] == chunks[0]  # type: ignore[arg-type]
    assert in_memory[len(chunks[0]) + 100_000 :] == b"".join(chunks[2:])  # type: ignore[arg-type]


@proves("T1")
def test_large_records_in_memory_are_not_copied_and_small_ones_are_joined() -> None:
    large = bytes(OWN_CHUNK)
    assert any(chunk is large for chunk in encode(fetch_response(large), 12))
    assert len(encode(fetch_response(bytes(OWN_CHUNK - 1)), 12)) == 1
    assert len(encode(fetch_response(None), 12)) == 1


@proves("T1")
def test_decoded_records_are_a_view_of_the_buffer() -> None:
    partition = PartitionProduceData(records=b"batch")
    data = bytearray(bytes_of(ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[partition])]), 9))
    records = decode(ProduceRequest, 9, data)[0].topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    data[data.index(b"batch")] = ord("c")
    assert records == b"catch"


@proves("T1")
def test_a_decoder_can_be_had_for_calling_again_and_again() -> None:
    read = decoder(MetadataRequest, 0)
    assert read(memoryview(b"xx\0\0\0\0"), 2) == (MetadataRequest(), 6)
    assert decoder(MetadataRequest, 0) is read


@proves("T1")
def test_messages_compare_by_value_and_show_their_fields() -> None:
    assert LeaderIdAndEpoch(leader_id=1) == LeaderIdAndEpoch(leader_id=1)
    assert LeaderIdAndEpoch(leader_id=1) != LeaderIdAndEpoch(leader_id=2)
    assert LeaderIdAndEpoch(leader_id=1) != 1
    assert repr(LeaderIdAndEpoch(leader_id=1)) == "LeaderIdAndEpoch(leader_id=1, leader_epoch=-1)"
    assert repr(PartitionProduceData(records=bytes(100))) == "PartitionProduceData(index=0, records=<100 bytes>)"
    with pytest.raises(TypeError):
        LeaderIdAndEpoch(leader=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        LeaderIdAndEpoch().leader = 1  # type: ignore[attr-defined]


@proves("T5")
@pytest.mark.parametrize("version", [7, 12])
def test_a_reply_whose_list_was_encoded_in_parts_is_the_same_bytes(version: int):
    topics = [MetadataResponseTopic(name=f"t{number}", topic_id=bytes(16)) for number in range(300)]
    whole = MetadataResponse(topics=topics, cluster_id="c", controller_id=3)
    expected = b"".join(encode(whole, version))
    gathered = Gathered()
    for start in range(0, 300, 70):
        some = topics[start : start + 70]
        gathered.add(len(some), encode_elements(MetadataResponse, version, "topics", some))
    parts: list[bytes] = []
    chunks: list[bytes] = []
    whole.topics = gathered
    encode_into(whole, version, parts, chunks, "topics")
    assert b"".join([*chunks, *parts]) == expected
