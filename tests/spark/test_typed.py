"""Values with types: in batch and in streams, by a schema or by a registry, and what becomes of broken ones."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import Request, urlopen

import fastavro
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import DayTimeIntervalType, LongType, MapType, StructField, StructType

import tidelog
import tidelog.spark
from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer
from tidelog.errors import Disconnected, InvalidSchema, UsageError
from tidelog.spark.typed_values import format_of

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "status", "type": {"type": "enum", "name": "Status", "symbols": ["OPEN", "PAID"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "Line", "fields": [{"name": "item", "type": "string"}]},
            },
        },
        {"name": "either", "type": ["int", "string"]},
    ],
}
VALUE = {
    "id": 7,
    "note": None,
    "price": Decimal("12.34"),
    "day": date(2026, 11, 15),
    "at": datetime(2026, 11, 15, 12, 30, tzinfo=UTC),
    "local": datetime(2026, 11, 15, 12, 30),
    "status": "PAID",
    "hash": b"\1\2",
    "tags": {"a": "b"},
    "lines": [{"item": "pen"}],
    "either": "x",
}
SMALL = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}


def avro(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


def rows_of(spark: SparkSession, *values: bytes | None) -> DataFrame:
    """As the source gives them, two to a partition of the topic."""
    rows = [(b"k%d" % n, value, "orders", n // 2, 100 + n) for n, value in enumerate(values)]
    return spark.createDataFrame(rows, "key binary, value binary, topic string, partition int, offset bigint")


def values_of(rows: DataFrame) -> list[Any]:
    found = [row.value for row in rows.orderBy("offset").collect()]
    return [None if one is None else one.asDict(recursive=True) for one in found]


# --- without Spark ---------------------------------------------------------------------------------------------------


@proves("P1", "typed")
@pytest.mark.parametrize(
    ("text", "format"),
    [
        (json.dumps(SMALL), "AVRO"),
        ('["null", "int"]', "AVRO"),
        ('"long"', "AVRO"),
        ('{"type": "object", "properties": {}}', "JSON"),
        ('{"$schema": "http://json-schema.org/draft-07/schema#"}', "JSON"),
        ('{"type": "integer"}', "JSON"),
        ('syntax = "proto3"; message M { int32 a = 1; }', "PROTOBUF"),
    ],
)
def test_the_format_is_told_from_the_text(text: str, format: str) -> None:
    assert format_of(text, None) == format


@proves("P1", "typed")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "typed needs one of a schema, a subject and an id"),
        ({"schema": SMALL, "subject": "s"}, "typed needs one of"),
        ({"subject": "s"}, "no registry; name its address"),
        ({"schema": SMALL, "on_error": "dead-letter"}, "on_error is 'dead-letter'; use"),
        ({"schema": {"type": "string"}}, "say which by format"),
        ({"schema": "{"}, "begins like JSON and is not valid JSON"),
        ({"schema": SMALL, "format": "thrift"}, "'thrift' is not a format; use avro, protobuf, json"),
        ({"schema": SMALL, "message": "M"}, "only Protobuf has messages"),
        ({"schema": SMALL, "registry": "http://u:secret@host"}, "has a password in it"),
        ({"schema": SMALL, "registry": "host:8642"}, "write it as http://HOST:PORT"),
        ({"schema": StructType([StructField("a", DayTimeIntervalType())])}, "column 'a' is interval"),
        (
            {"schema": StructType([StructField("a", MapType(LongType(), LongType()))])},
            "column 'a' is map<bigint,bigint>",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_when_it_is_said(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said) as told:
        tidelog.spark.typed(**arguments)
    assert "secret" not in str(told.value)


@proves("P1", "typed")
def test_a_type_without_a_column_is_refused_when_it_is_said() -> None:
    schema = {"type": "record", "name": "T", "fields": [{"name": "t", "type": ["null", "T"]}]}
    with pytest.raises(InvalidSchema, match="'T' contains itself"):
        tidelog.spark.typed(schema)


@proves("P1", "typed")
def test_the_names_are_functions_however_often_they_are_used() -> None:
    import tidelog.spark.dead_letter
    import tidelog.spark.typed_values

    for _ in range(2):
        assert callable(tidelog.spark.typed)
        assert callable(tidelog.spark.dead_letters)


@proves("P1", "typed")
def test_a_registry_that_is_away_is_no_fault_of_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.control.registry.PAUSES_S", (0.01,))
    with pytest.raises(Disconnected, match=r"registry at http://127\.0\.0\.1:1 cannot be asked"):
        tidelog.spark.typed(registry="http://127.0.0.1:1", subject="s")


@contextmanager
def answering(*answers: tuple[int, bytes]) -> Iterator[tuple[str, list[str]]]:
    """A registry that gives these answers, the last one again and again; and what it was asked, with the login."""
    waiting, asked = list(answers), list[str]()

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.path} {self.headers.get('Authorization')}")
            code, body = waiting.pop(0) if len(waiting) > 1 else waiting[0]
            self.send_response(code)
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


GOOD = (200, json.dumps({"schema": json.dumps(SMALL)}).encode())


@proves("P1", "typed")
def test_a_registry_in_trouble_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_LOGIN", "user:swordfish")
    with answering((503, b""), (200, b"not json"), GOOD) as (url, asked):
        tidelog.spark.typed(registry=url, subject="a/b", login_variable="REGISTRY_LOGIN")
    assert asked == ["/subjects/a%2Fb/versions/latest Basic dXNlcjpzd29yZGZpc2g="] * 3


@proves("P1", "typed")
@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        (401, UsageError, r"refuses us \(401\); check the login"),
        (404, UsageError, "has no version latest of subject 's'; register it first"),
        (302, Disconnected, "answered 302"),
        (422, Disconnected, "answered 422"),
    ],
)
def test_what_a_registry_refuses_is_told_at_once(code: int, kind: type[Exception], said: str) -> None:
    with answering((code, b"")) as (url, asked), pytest.raises(kind, match=said):
        tidelog.spark.typed(registry=url, subject="s")
    assert len(asked) == 1


@proves("P1", "typed")
def test_a_login_that_is_not_there_is_told() -> None:
    with pytest.raises(UsageError, match="variable NO_SUCH_LOGIN is not set here"):
        tidelog.spark.typed(registry="http://127.0.0.1:1", subject="s", login_variable="NO_SUCH_LOGIN")


# --- by a schema -----------------------------------------------------------------------------------------------------


@proves("P1", "typed")
def test_an_avro_value_becomes_a_struct_and_null_stays_null(spark: SparkSession) -> None:
    rows = rows_of(spark, avro(ORDER, VALUE), None).transform(tidelog.spark.typed(ORDER))
    assert rows.columns == ["key", "value", "topic", "partition", "offset"]
    expected = {**VALUE, "hash": bytearray(b"\1\2"), "either": {"member0": None, "member1": "x"}}
    made = values_of(rows.withColumn("value", rows.value.withField("at", rows.value.at.cast("double"))))
    assert made == [{**expected, "at": VALUE["at"].timestamp()}, None]
    assert rows.schema["value"].dataType.simpleString() == (
        "struct<id:bigint,note:string,price:decimal(9,2),day:date,at:timestamp,local:timestamp_ntz,status:string,"
        "hash:binary,tags:map<string,string>,lines:array<struct<item:string>>,either:struct<member0:int,member1:string>>"
    )


@proves("P1", "typed")
@pytest.mark.slow
def test_protobuf_and_json_schema_and_a_struct_type(spark: SparkSession) -> None:
    proto = 'syntax = "proto3"; message M { int64 id = 1; repeated string tags = 2; uint64 big = 3; }'
    rows = rows_of(spark, b"\x08\x05\x12\x01a\x12\x01b\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
    [made] = values_of(rows.transform(tidelog.spark.typed(proto)))
    assert made == {"id": 5, "tags": ["a", "b"], "big": Decimal(2**64 - 1)}
    text = b'{"id": 5, "tags": ["a", null], "at": "2026-11-15T12:30:00Z"}'
    schema = {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}},
    }
    [made] = values_of(rows_of(spark, text).transform(tidelog.spark.typed(schema)))
    assert made == {"id": 5, "tags": ["a", None]}


@proves("P1", "typed")
@pytest.mark.slow
def test_json_is_read_as_from_json_reads_it(spark: SparkSession) -> None:
    ddl = (
        "id bigint, small tinyint, x double, y float, flag boolean, text string, day date, at timestamp, raw binary, "
        "price decimal(10,2), list array<struct<a:int>>, map map<string,double>"
    )
    texts = [
        '{"id":1,"small":-128,"x":0.1,"y":1e10,"flag":true,"text":"\\u00e9\\n","day":"2026-02-28","raw":"AQI="}',
        '{"price":12.345,"list":[{"a":1},null,{}],"map":{"k":1.5,"l":null},"at":"2026-02-28T12:30:00.123Z"}',
        '{"unknown":{"id":5},"id":null}',
        "{}",
    ]
    rows = rows_of(spark, *(text.encode() for text in texts))
    schema = StructType.fromDDL(ddl)
    theirs = rows.withColumn("value", f.from_json(f.col("value").cast("string"), schema))
    assert values_of(rows.transform(tidelog.spark.typed(schema))) == values_of(theirs)
    assert values_of(rows.transform(tidelog.spark.typed(ddl))) == values_of(theirs)
    with pytest.raises(UsageError, match="column 'id' is of type 'lnog', which Spark does not have; did you mean long"):
        tidelog.spark.typed("id lnog")
    with pytest.raises(UsageError, match="is neither columns nor a schema"):
        tidelog.spark.typed("id double precise")


@proves("P1", "typed")
@pytest.mark.slow
def test_another_column_may_be_typed(spark: SparkSession) -> None:
    rows = rows_of(spark, b"v").withColumn("key", f.lit('{"id": 1}'))
    made = rows.transform(
        tidelog.spark.typed({"type": "object", "properties": {"id": {"type": "integer"}}}, column="key")
    )
    assert made.first().key == Row(id=1)
    with pytest.raises(UsageError, match="column 'vlaue' does not exist; columns are key"):
        rows.transform(tidelog.spark.typed(SMALL, column="vlaue"))
    with pytest.raises(UsageError, match="column 'offset' is bigint"):
        rows.transform(tidelog.spark.typed(SMALL, column="offset"))


# --- what is broken --------------------------------------------------------------------------------------------------


@proves("P1", "typed")
def test_a_broken_value_fails_the_query_with_its_place(spark: SparkSession) -> None:
    rows = rows_of(spark, avro(SMALL, {"id": 1}), b"\x80").coalesce(1)
    with pytest.raises(
        PySparkException, match="topic orders, partition 0, offset 101 cannot be decoded: id: it ends too early"
    ):
        rows.transform(tidelog.spark.typed(SMALL)).collect()


@proves("P1", "typed")
@pytest.mark.full
def test_a_broken_value_may_be_null(spark: SparkSession) -> None:
    rows = rows_of(spark, avro(SMALL, {"id": 1}), b"\x80", avro(SMALL, {"id": 2}))
    assert values_of(rows.transform(tidelog.spark.typed(SMALL, on_error="null"))) == [{"id": 1}, None, {"id": 2}]


@proves("P1", "typed")
@pytest.mark.slow
def test_broken_values_become_letters_with_the_headers_of_kafka_connect(spark: SparkSession) -> None:
    header = f.array(f.struct(f.lit("trace").alias("key"), f.lit(b"t").alias("value")))
    rows = rows_of(spark, avro(SMALL, {"id": 1}), b"\x80", None).withColumn("headers", header)
    good, letters = tidelog.spark.dead_letters(rows.transform(tidelog.spark.typed(SMALL, on_error="dead_letter")))
    assert good.columns == rows.columns
    assert values_of(good) == [{"id": 1}, None]
    [letter] = letters.collect()
    assert (letter.key, letter.value) == (b"k1", b"\x80")
    assert {one.key: bytes(one.value).decode() for one in letter.headers} == {
        "trace": "t",
        "__connect.errors.topic": "orders",
        "__connect.errors.partition": "0",
        "__connect.errors.offset": "101",
        "__connect.errors.stage": "VALUE_CONVERTER",
        "__connect.errors.class.name": "tidelog.spark.typed",
        "__connect.errors.exception.class.name": "tidelog.errors.UndecodableValue",
        "__connect.errors.exception.message": "id: it ends too early, at byte 0",
    }
    with pytest.raises(UsageError, match="the rows have no _error"):
        tidelog.spark.dead_letters(rows)


# --- by a registry, from a topic -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served() -> Iterator[tidelog.Broker]:
    with tidelog.Broker(settings={"tidelog.http.listener": "127.0.0.1:0"}) as broker:
        yield broker


def register(broker: tidelog.Broker, subject: str, schema: str, **more: Any) -> int:
    body = json.dumps({"schema": schema, **more}).encode()
    request = Request(f"{broker.http}/subjects/{subject}/versions", body, {"Content-Type": "application/json"})
    with urlopen(request, timeout=30) as answer:
        number: int = json.loads(answer.read())["id"]
    return number


def framed(number: int, data: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + data


@proves("P1", "typed")
@pytest.mark.full
def test_writers_of_two_versions_are_read_with_the_latest(spark: SparkSession, served: tidelog.Broker) -> None:
    newer = {**SMALL, "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string", "default": "-"}]}
    one, two = (register(served, "orders-value", json.dumps(schema)) for schema in (SMALL, newer))
    values = [
        framed(one, avro(SMALL, {"id": 1})),
        framed(two, avro(newer, {"id": 2, "note": "n"})),
        framed(9999, b""),
        b"x",
    ]
    for given in ({"subject": "orders-value"}, {"id": two}, {"schema": newer}):
        typed = tidelog.spark.typed(registry=served.http, on_error="dead_letter", **given)
        good, letters = tidelog.spark.dead_letters(rows_of(spark, *values).transform(typed))
        assert values_of(good) == [{"id": 1, "note": "-"}, {"id": 2, "note": "n"}]
        reasons = [bytes(row.headers[-1].value).decode() for row in letters.collect()]
        assert any("has no schema 9999" in reason for reason in reasons)
        assert any("no frame of a schema registry" in reason for reason in reasons)


@proves("P1", "typed")
@pytest.mark.slow
def test_protobuf_and_json_of_a_registry_with_references(spark: SparkSession, served: tidelog.Broker) -> None:
    line = 'syntax = "proto3"; message Line { string item = 1; }'
    register(served, "line", line, schemaType="PROTOBUF")
    order = 'syntax = "proto3"; import "line.proto"; message A { int32 x = 1; }'
    order += "message Order { int64 id = 1; Line line = 2; }"
    references = [{"name": "line.proto", "subject": "line", "version": 1}]
    number = register(served, "proto-value", order, schemaType="PROTOBUF", references=references)
    data = framed(number, b"\2\2" + b"\x08\x05\x12\x05\x0a\x03pen")
    typed = tidelog.spark.typed(registry=served.http, subject="proto-value", message="Order")
    assert values_of(rows_of(spark, data).transform(typed)) == [{"id": 5, "line": {"item": "pen"}}]
    schema = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}})
    number = register(served, "json-value", schema, schemaType="JSON")
    typed = tidelog.spark.typed(registry=served.http, id=number)
    assert values_of(rows_of(spark, framed(number, b'{"id": 5}')).transform(typed)) == [{"id": 5}]


def stream_of(spark: SparkSession, broker: tidelog.Broker, topic: str) -> DataFrame:
    """A thousand records, of which every hundredth is broken."""
    with Cluster(broker.bootstrap) as cluster, Producer(cluster) as producer:
        for n in range(1000):
            producer.send(topic, avro(SMALL, {"id": n}) if n % 100 else b"\x80", key=b"%d" % n)
    reader = spark.readStream.format("tidelog").option("kafka.bootstrap.servers", broker.bootstrap)
    return reader.option("subscribe", topic).option("startingOffsets", "earliest").load()


@proves("P1", "typed")
@pytest.mark.slow
def test_a_stream_from_a_topic_is_typed(
    spark: SparkSession, served: tidelog.Broker, tmp_path: Path, topic: str
) -> None:
    stream = stream_of(spark, served, topic)
    good, _ = tidelog.spark.dead_letters(stream.transform(tidelog.spark.typed(SMALL, on_error="dead_letter")))
    writer = good.select("value.id").writeStream.format("memory").queryName("typed_ids")
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert sorted(row.id for row in spark.table("typed_ids").collect()) == [n for n in range(1000) if n % 100]


@proves("P1", "typed", "secrets")
def test_a_login_travels_by_name_alone(monkeypatch: pytest.MonkeyPatch, served: tidelog.Broker) -> None:
    register(served, "secret-value", json.dumps(SMALL))
    monkeypatch.setenv("REGISTRY_LOGIN", "user:swordfish")
    typed = tidelog.spark.typed(registry=served.http, subject="secret-value", login_variable="REGISTRY_LOGIN")
    task = next(cell.cell_contents for cell in typed.__closure__ or () if hasattr(cell.cell_contents, "on_error"))
    assert b"REGISTRY_LOGIN" in pickle.dumps(task)
    assert b"swordfish" not in pickle.dumps(task)


@pytest.mark.full
@proves("P1", "typed")
def test_the_letters_of_a_stream_go_to_a_topic(
    spark: SparkSession, served: tidelog.Broker, tmp_path: Path, topic: str
) -> None:
    rows = stream_of(spark, served, topic).transform(tidelog.spark.typed(SMALL, on_error="dead_letter"))
    _, letters = tidelog.spark.dead_letters(rows)
    writer = letters.writeStream.format("tidelog").option("kafka.bootstrap.servers", served.bootstrap)
    writer = writer.option("topic", f"{topic}-dead").option("checkpointLocation", str(tmp_path))
    assert writer.trigger(availableNow=True).start().awaitTermination(120)
    dead = spark.read.format("tidelog").option("kafka.bootstrap.servers", served.bootstrap)
    dead = dead.option("subscribe", f"{topic}-dead").option("includeHeaders", "true").load()
    found = {bytes(row.key): {one.key: bytes(one.value) for one in row.headers} for row in dead.collect()}
    assert set(found) == {b"%d" % n for n in range(0, 1000, 100)}
    assert found[b"300"]["__connect.errors.topic"] == topic.encode()
