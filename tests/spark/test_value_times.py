"""The time of a record in a value of Avro, of Protobuf or of JSON with a schema: by the schema, or by a registry."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from functools import partial
from typing import Any
from urllib.request import Request, urlopen

import fastavro
import pytest

import tidelog
from proving import proves
from spark.filling import Query
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer
from tidelog.errors import Disconnected, UsageError
from tidelog.record.columns import Row
from tidelog.spark.options import AlignBy, check_names, read_options
from tidelog.spark.value_times import time_reader

T = 1_700_000_000_000
AT = datetime.fromtimestamp(T / 1000, UTC)
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Other { string x = 1; }
message Event { int64 at = 1; google.protobuf.Timestamp when = 2; Other other = 3; }
"""
JSON_SCHEMA = '{"type": "object", "properties": {"at": {"type": "string", "format": "date-time"}}}'


def record(kind: Any, name: str = "at") -> dict[str, Any]:
    inner = {"type": "record", "name": "Inner", "fields": [{"name": name, "type": kind}]}
    return {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}, {"name": "event", "type": inner}]}


def avro(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def event(at: int) -> bytes:
    """Both times of `Event`, in Protobuf's bytes."""
    when = b"\x08" + varint(at // 1000)
    return b"\x08" + varint(at) + b"\x12" + varint(len(when)) + when


def time_in(value: bytes | None, field: str, **how: Any) -> int | None:
    return time_reader(AlignBy(field, **how))(Row(0, 7, None, value, ()))


@proves("P7")
def test_numbers_that_look_like_seconds_are_warned_of_once_a_field(caplog: pytest.LogCaptureFixture) -> None:
    """They are read as milliseconds, by which partitions are aligned a thousand times too loosely."""
    for at in (T // 1000, T // 1000 + 1):
        assert time_in(json.dumps({"in_seconds": at}).encode(), "in_seconds") == at
    (said,) = caplog.messages
    assert "alignBy is 'in_seconds', which has 1700000000: numbers are milliseconds there" in said
    assert "align by a field in milliseconds" in said
    caplog.clear()
    for other in (T, 0, 5000, -1, "1971-05-05T00:00:00", None, True, 1.7e12):
        time_in(json.dumps({"in_ms": other}).encode(), "in_ms")
    assert caplog.messages == []


@proves("P7", "hostile")
@pytest.mark.parametrize("at", ["NaN", "-Infinity", "1e400", "1" * 40, "[" * 100_000, "{", '"yesterday"', "[1]"])
def test_what_is_no_time_is_none_and_ends_nothing(at: str) -> None:
    assert time_in(b'{"at": %s}' % at.encode(), "at") is None


@proves("P7", "typed")
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (MILLIS, AT),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, AT.replace(tzinfo=None)),
        ("long", T),
        (["null", "string"], AT.isoformat()),
        ("double", float(T)),
    ],
)
def test_a_field_of_avro_is_a_time(kind: Any, value: Any) -> None:
    schema = record(kind)
    written = avro(schema, {"id": 1, "event": {"at": value}})
    assert time_in(written, "event.at", schema=json.dumps(schema)) == T
    assert time_in(written[:1], "event.at", schema=json.dumps(schema)) is None, "what cannot be read has no time"
    assert time_in(None, "event.at", schema=json.dumps(schema)) is None


@proves("P7", "typed")
def test_a_day_is_a_time_and_a_year_beyond_all_calendars_is_none() -> None:
    day = record({"type": "int", "logicalType": "date"})
    written = avro(day, {"id": 1, "event": {"at": date(2023, 11, 14)}})
    assert time_in(written, "event.at", schema=json.dumps(day)) == 1_699_920_000_000
    beyond = avro(record("long"), {"id": 1, "event": {"at": 1 << 60}})
    assert time_in(beyond, "event.at", schema=json.dumps(record(MILLIS))) is None


@proves("P7", "typed")
def test_a_field_of_protobuf_and_one_of_a_json_schema_are_times() -> None:
    assert time_in(event(T), "at", schema=PROTO, message="Event") == T
    assert time_in(event(T), "when", schema=PROTO, message="Event") == T
    assert time_in(b"{}", "at", schema=JSON_SCHEMA) is None
    assert time_in(b'{"at": "2023-11-14T22:13:20Z"}', "at", schema=JSON_SCHEMA) == T


@proves("P7", "typed")
@pytest.mark.parametrize(
    ("field", "how", "said"),
    [
        ("event.on", {"schema": json.dumps(record("long"))}, r"alignSchema has no 'on' there; it has at"),
        ("event.at.more", {"schema": json.dumps(record("long"))}, r"has no 'more' there; it has a long"),
        ("event", {"schema": json.dumps(record("long"))}, r"is a struct, not a time"),
        ("event.at", {"schema": json.dumps(record("boolean"))}, r"is a boolean, not a time"),
        ("at", {"schema": PROTO}, r"has no 'at' there; it has x"),
    ],
)
def test_a_schema_without_such_a_time_is_refused(field: str, how: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        time_reader(AlignBy(field, **how))


@proves("P7")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"alignSchema": "{}"}, "set alignBy"),
        ({"alignBy": "at", "alignMessage": "M"}, "alignSchema, which is not given"),
        ({"alignBy": "at", "alignLoginVariable": "V"}, "alignRegistry, which is not given"),
    ],
)
def test_options_that_lack_another_are_refused(options: dict[str, str], said: str) -> None:
    given = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t", "alignment": "1s", **options}
    with pytest.raises(UsageError, match=said):
        read_options(given, streaming=True)


@proves("P7", "secrets")
@pytest.mark.parametrize(
    "url",
    [
        "http://user:hunter2@reg:8081",
        "https://user:hunter2@reg",
        "http://user:a/hunter2@reg:8081",
        "http://user:a?hunter2#@reg:8081",
        "http://user:a@hunter2@reg:8081",
        "http://hunter2@reg:8081",
        "http://user:hunter2",
        "user:hunter2@reg:8081",
        "ftp://user:hunter2@reg",
        "//user:hunter2@reg",
        "http://[user:hunter2@reg",
    ],
)
@pytest.mark.parametrize("alignment", [{}, {"alignment": "1s"}, {"alignment": "1s", "alignBy": "at"}])
@pytest.mark.parametrize(
    "check", [check_names, partial(read_options, streaming=True)], ids=["of a frame", "of a query"]
)
def test_a_login_in_a_registrys_address_is_refused_and_not_repeated(
    url: str, alignment: dict[str, str], check: Callable[[dict[str, str]], object]
) -> None:
    given = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t", "alignRegistry": url, **alignment}
    with pytest.raises(UsageError, match="the address of the registry") as raised:
        check(given)
    assert "hunter2" not in str(raised.value)
    assert raised.value.__cause__ is None
    assert "@" not in url or "alignLoginVariable" in str(raised.value)


@proves("P7")
@pytest.mark.parametrize("url", ["reg:8081", "ftp://reg", "http://", ""])
def test_what_is_no_registrys_address_is_named(url: str) -> None:
    given = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t", "alignBy": "at", "alignRegistry": url}
    with pytest.raises(UsageError, match=f"'{url}' is not an address of a registry"):
        read_options(given, streaming=True)


# --- by a registry ---------------------------------------------------------------------------------------------------


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


def framed(number: int, data: bytes, place: bytes = b"") -> bytes:
    return b"\0" + number.to_bytes(4, "big") + place + data


@proves("P7", "typed")
def test_each_value_is_read_with_the_schema_that_its_frame_names(served: tidelog.Broker) -> None:
    how = {"registry": served.http}
    old, new = record("long"), record(MILLIS)
    first = register(served, "avro-old", json.dumps(old))
    second = register(served, "avro-new", json.dumps(new))
    third = register(served, "proto", PROTO, schemaType="PROTOBUF")
    assert time_in(framed(first, avro(old, {"id": 1, "event": {"at": T}})), "event.at", **how) == T
    assert time_in(framed(second, avro(new, {"id": 1, "event": {"at": AT}})), "event.at", **how) == T
    assert time_in(framed(third, event(T), b"\x02\x02"), "when", **how) == T
    assert time_in(framed(third, b"\x0a\x01x", b"\0"), "when", **how) is None, "that is an Other"
    assert time_in(framed(12345, b""), "at", **how) is None
    assert time_in(b'{"at": 1}', "at", **how) is None, "it has no frame"


@proves("P7", "typed")
def test_with_a_schema_of_its_own_each_value_is_resolved_to_that(served: tidelog.Broker) -> None:
    wanted = record("long", "happened")
    wanted["fields"][1]["type"]["fields"][0]["aliases"] = ["at"]
    old = record("int")
    number = register(served, "avro-int", json.dumps(old))
    value = framed(number, avro(old, {"id": 1, "event": {"at": 77}}))
    assert time_in(value, "event.happened", schema=json.dumps(wanted), registry=served.http) == 77


@proves("P7")
def test_a_registry_that_cannot_be_reached_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.control.registry.PAUSES_S", ())
    with pytest.raises(Disconnected, match="cannot be asked for /schemas/ids/1"):
        time_in(framed(1, b""), "at", registry="http://127.0.0.1:1")


# --- partitions together ---------------------------------------------------------------------------------------------


@proves("P7", "typed")
@pytest.mark.parametrize("format", ["avro", "protobuf", "registry"])
def test_partitions_catch_up_together_by_a_field_that_is_not_json(served: tidelog.Broker, format: str) -> None:
    """Partition 0 has a record a second, partition 1 one in ten; the records' own timestamps are all the same."""
    schema, topic = record("long"), f"paces-{format}"
    number = register(served, "paces", json.dumps(schema)) if format == "registry" else 0
    how = {
        "avro": {"alignBy": "event.at", "alignSchema": json.dumps(schema)},
        "protobuf": {"alignBy": "when", "alignSchema": PROTO, "alignMessage": "Event"},
        "registry": {"alignBy": "event.at", "alignRegistry": served.http or ""},
    }[format]
    with Cluster(served.bootstrap) as cluster, Producer(cluster) as producer:
        topics.create(cluster, topic, partitions=2)
        for second in range(60):
            at = T + second * 1000
            value = event(at) if format == "protobuf" else avro(schema, {"id": 1, "event": {"at": at}})
            value = framed(number, value) if format == "registry" else value
            for partition in (0, 1) if second % 10 == 0 else (0,):
                producer.send(topic, value, key=b"%d" % at, partition=partition, timestamp=T)
                producer.flush()
    paced = {"maxOffsetsPerTrigger": "20", "alignment": "5s", "idleAfter": "0s", "startingOffsets": "earliest"}
    query = Query(served.bootstrap, subscribe=topic, **paced, **how)
    seen_up_to = 0
    while came := query.trigger():
        times = [int(row["key"]) for row in query.rows[-came:]]
        assert min(times) >= seen_up_to - 5000, "a row came later than the lateness allows"
        seen_up_to = max(seen_up_to, *times)
    assert len(query.rows) == 66
    query.stop()
