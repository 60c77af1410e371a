"""What the sink decides without a broker: options, columns, what a checkpoint says, which partition a row is for."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from proving import proves
from record.twins import TWINS
from tidelog.client.metadata import TopicPartition
from tidelog.control.marks import Sources
from tidelog.errors import ConfigError, UsageError
from tidelog.record import _codec, _pure
from tidelog.record.arrow import arrow_to_partitions
from tidelog.record.columns import decode
from tidelog.record.partitioner import partition_of
from tidelog.spark.query_log import arrow_uri, parse_offsets_file, query_id_of, sources_of
from tidelog.spark.routing import GATHER_BYTES, check_columns, gathered
from tidelog.spark.sink import TopicStreamWriter, TopicWriter, group_of
from tidelog.spark.sink_options import SinkOptions, read_sink_options

BROKER = {"kafka.bootstrap.servers": "localhost:9092"}
STREAM = {**BROKER, "topic": "t", "checkpointLocation": "/tmp/checkpoint"}
VALUE = StructType().add("value", "string")

keys = st.lists(st.none() | st.binary(max_size=9), max_size=30)


def read(**options: str) -> SinkOptions:
    return read_sink_options({**STREAM, **options}, streaming=True)


# Options --------------------------------------------------------------------------------------------------------------


@proves("P1")
def test_options_have_their_defaults_and_case_does_not_count() -> None:
    found = read()
    assert (found.topic, found.exactly_once, found.compression, found.timeout_ms) == ("t", True, "none", 60_000)
    same = read_sink_options(
        {key.upper().replace("KAFKA", "kafka"): value for key, value in STREAM.items()}, streaming=True
    )
    assert same == found


@proves("P1")
def test_settings_of_kafkas_producer_are_honoured_passed_over_or_refused_with_the_reason() -> None:
    taken = {"kafka.acks": "1", "kafka.linger.ms": "5", "kafka.compression.type": "zstd"}
    assert read(**taken, **{"kafka.transaction.timeout.ms": "5000"}).timeout_ms == 5000
    assert read(**taken).compression == "zstd"
    for name, advice in {
        "kafka.transactional.id": "set sinkName",
        "kafka.partitioner.class": "column partition",
        "kafka.value.serializer": "cast them",
        "kafka.sasl.password": "securityFile",
        "kafka.lingr.ms": "leave it out|did you mean",
        "sinkname2": "did you mean sinkName",
        "writeId": "batch writes",
    }.items():
        with pytest.raises(UsageError, match=advice):
            read(**{name: "x"})
    with pytest.raises(UsageError, match="exactly-once or at-least-once"):
        read(deliveryGuarantee="at-most-once")
    assert read(staging="TOPIC").staging == "topic"
    with pytest.raises(UsageError, match="staging is 'disk'; it is auto or topic"):
        read(staging="disk")
    with pytest.raises(UsageError, match="compression 'br' is unknown"):
        read(**{"kafka.compression.type": "br"})


@proves("eo.7")
def test_an_exactly_once_stream_needs_to_know_its_checkpoint() -> None:
    with pytest.raises(UsageError, match=r"checkpointLocation.*configuration does not reach the sink"):
        TopicStreamWriter({**BROKER, "topic": "t"}, VALUE, False)
    TopicStreamWriter({**BROKER, "topic": "t", "deliveryGuarantee": "at-least-once"}, VALUE, False)


@proves("eo.11")
def test_the_group_has_the_querys_name_else_the_sinks_unless_it_is_given() -> None:
    assert group_of(read(queryName="orders"), "s") == "tidelog.orders"
    assert group_of(read(), "s") == "tidelog.s"
    assert group_of(read(sourceGroup="mine"), "s") == "mine"
    assert group_of(read(sourceGroup="none"), "s") is None


@proves("P1")
def test_a_batch_write_appends_and_takes_no_streams_options() -> None:
    with pytest.raises(UsageError, match="append"):
        TopicWriter({**BROKER, "topic": "t"}, VALUE, True)
    with pytest.raises(UsageError, match="leave one of them out"):
        TopicWriter({**BROKER, "topic": "t", "writeId": "1", "deliveryGuarantee": "at-least-once"}, VALUE, False)
    with pytest.raises(UsageError, match="for streaming queries"):
        TopicWriter({**BROKER, "topic": "t", "takeOverFrom": "q"}, VALUE, False)
    with pytest.raises(ConfigError, match="holds a secret"):
        TopicWriter({**BROKER, "topic": "t", "kafka.sasl.jaas.config": "x"}, VALUE, False)


@proves("P1")
def test_columns_are_those_that_kafkas_sink_takes() -> None:
    fine = {"key": "binary", "value": "string", "partition": "int", "offset": "bigint"}
    check_columns(fine, "t")
    for types, topic, fault in (
        ({"key": "binary"}, "t", "column value does not exist"),
        (fine, None, "set the option topic"),
        ({**fine, "key": "int"}, "t", "column key is int; cast it to string or binary"),
        ({**fine, "headers": "map<string,binary>"}, "t", "column headers"),
        ({**fine, "partition": "bigint"}, "t", "cast it to int"),
    ):
        with pytest.raises(UsageError, match=fault):
            check_columns(types, topic)


# A checkpoint ---------------------------------------------------------------------------------------------------------


@proves("eo.7")
def test_what_a_checkpoint_says_of_its_query(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id":"7f0c"}')
    (tmp_path / "offsets").mkdir()
    meta = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'
    (tmp_path / "offsets" / "3").write_text(f'v1\n{meta}\n{{"in":{{"0":5,"10":7}}}}\n-\n{{"logOffset":3}}\n51')
    for place in (str(tmp_path), f"file:{tmp_path}", f"file://{tmp_path}/"):
        assert query_id_of(place) == "7f0c"
        found = sources_of(place, 3)
        assert found.offsets == {TopicPartition("in", 0): 5, TopicPartition("in", 10): 7}
        assert found.positions == {"2": '{"logOffset":3}', "3": "51"}
    with pytest.raises(UsageError, match=r"offsets/4 .*asyncProgressTrackingEnabled"):
        sources_of(str(tmp_path), 4)
    (tmp_path / "metadata").write_text("{}")
    with pytest.raises(UsageError, match="names no query"):
        query_id_of(str(tmp_path))


@proves("eo.7")
@pytest.mark.parametrize(
    ("place", "arrows"),
    [
        ("s3a://bucket/points/a", "s3://bucket/points/a"),
        ("s3n://bucket/points/a", "s3://bucket/points/a"),
        ("s3://bucket/points/a", "s3://bucket/points/a"),
        ("hdfs://name:8020/points", "hdfs://name:8020/points"),
        ("gs://bucket/s3a:/b", "gs://bucket/s3a:/b"),
        ("abfss://box@account.dfs.core.windows.net/a", "abfss://box@account.dfs.core.windows.net/a"),
    ],
)
def test_a_place_is_named_to_arrow_as_arrow_names_it(place: str, arrows: str) -> None:
    assert arrow_uri(place) == arrows


@proves("eo.7")
@pytest.mark.parametrize("place", ["dbfs:/points/a", "wasbs://box@account.blob.core.windows.net/a", "oss://box/a"])
def test_a_place_that_arrow_cannot_read_is_refused_with_those_that_it_can(place: str) -> None:
    said = f"cannot read {place.partition(':')[0]}; .*s3a.*at-least-once"
    with pytest.raises(UsageError, match=said):
        query_id_of(place)
    with pytest.raises(UsageError, match=said):
        read(checkpointLocation=place)
    assert read(checkpointLocation=place, deliveryGuarantee="at-least-once").checkpoint == place
    assert read(checkpointLocation="s3a://bucket/points").checkpoint == "s3a://bucket/points"


@proves("eo.7")
def test_offsets_of_named_sources_and_of_two_that_read_one_topic() -> None:
    text = 'v2\n{}\norders:{"in":{"0":5}}\nbills:{"in":{"0":3,"1":1}}\nfiles:{"logOffset":3}'
    at = TopicPartition("in", 0)
    assert parse_offsets_file(text) == Sources({at: 3, TopicPartition("in", 1): 1}, {"files": '{"logOffset":3}'})
    with pytest.raises(UsageError, match="version 'v3'"):
        parse_offsets_file("v3\n{}")


# Rows -----------------------------------------------------------------------------------------------------------------


@proves("P1")
@given(keys, st.integers(1, 5), st.data())
def test_rows_go_where_java_puts_them_in_their_order(
    given_keys: list[bytes | None], partitions: int, data: st.DataObject
) -> None:
    spare = data.draw(st.integers(0, partitions - 1))
    wanted = data.draw(
        st.lists(st.none() | st.integers(0, partitions - 1), min_size=len(given_keys), max_size=len(given_keys))
    )
    values = [b"%d" % row for row in range(len(given_keys))]
    headers = [None if row % 2 else [{"key": f"h{row}", "value": None}] for row in range(len(given_keys))]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    table = pa.record_batch(
        {
            "key": pa.array(given_keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "partition": pa.array(wanted, pa.int32()),
            "headers": pa.array(headers, kind),
        }
    )
    expected: dict[int, list[bytes]] = {}
    for key, asked, value in zip(given_keys, wanted, values, strict=True):
        place = asked if asked is not None else spare if key is None else partition_of(key, partitions)
        expected.setdefault(place, []).append(value)
    found: dict[int, list[bytes]] = {}
    target = data.draw(st.sampled_from([1, 120, 1 << 20]))
    for partition, batch in arrow_to_partitions(
        table, partitions=partitions, spare=spare, timestamp_ms=7, target=target
    ):
        for row in decode(batch).rows():
            assert row.value is not None and row.timestamp == 7
            assert row.key == given_keys[int(row.value)]
            assert [name for name, _ in row.headers] == ([] if int(row.value) % 2 else [f"h{int(row.value)}"])
            found.setdefault(partition, []).append(row.value)
    assert found == expected


@proves("P1")
@given(keys, st.integers(1, 5), st.integers(0, 9))
def test_the_twins_group_alike(given_keys: list[bytes | None], partitions: int, start: int) -> None:
    array = pa.array([b"before"] * start + given_keys, pa.binary())
    column = tuple(None if part is None else memoryview(part) for part in array.buffers())
    if column[2] is None:
        column = (*column[:2], b"")
    arguments = len(array), column, None, partitions, partitions - 1
    assert _codec.group_rows(*arguments) == _pure.group_rows(*arguments)


@proves("P1")
@TWINS
def test_rows_that_fit_nowhere_are_refused(codec: ModuleType) -> None:
    given = pa.array([0, 3], pa.int32()).buffers()[1]
    with pytest.raises(UsageError, match="row 1 fits none of 3 partitions"):
        codec.group_rows(2, None, given, 3, 0)
    with pytest.raises(UsageError, match="partition 3 of 3"):
        codec.group_rows(2, None, None, 3, 3)
    with pytest.raises(UsageError, match="shorter than the 3 rows"):
        codec.group_rows(3, None, given, 4, 0)
    order = pa.array([0, 7], pa.int32()).buffers()[1]
    times = pa.array([1, 2], pa.int64()).buffers()[1]
    stamps = 0, 0, -1, -1, -1
    with pytest.raises(UsageError, match="do not fit"):
        codec.encode_columns(2, times, None, None, None, 0, 1 << 20, *stamps, order, 2)
    table = pa.record_batch({"value": pa.array([b"1"]), "partition": pa.array([-1], pa.int32())})
    with pytest.raises(UsageError, match="asks for partition -1, and there are 0 to 3"):
        list(arrow_to_partitions(table, partitions=4, spare=0))


@proves("P1")
def test_small_arrow_batches_are_encoded_together_up_to_a_size() -> None:
    batch = pa.record_batch({"value": pa.array([b"x" * 1000] * 1000)})
    assert [one.num_rows for one in gathered([batch.slice(0, 0), batch, batch, batch.slice(0, 0)])] == [2000]
    several = [one.num_rows for one in gathered([batch] * 20)]
    assert sum(several) == 20_000
    assert len(several) == 20 * batch.nbytes // GATHER_BYTES + 1
