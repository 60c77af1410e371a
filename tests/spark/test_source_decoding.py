"""The source's option `decode`: values are decoded by the stage that reads them, as `typed` does it behind; and
`waitForRecords`: a query at rest waits at the broker.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from contract import Broker
from proving import proves
from spark.filling import Query, fill, reader, rows_of, source
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.control.registry import RegistryAddress
from tidelog.errors import UndecodableValue
from tidelog.spark.schema_registry import Text
from tidelog.spark.ticks import Tick, tick_of
from tidelog.spark.typed_values import Task, task_from, task_of

SCHEMA = StructType([StructField("id", LongType()), StructField("name", StringType())])
VALUES = [b'{"id": 1, "name": "tea"}', b"{", b'{"id": 2}']
WOKEN_WITHIN_S = 60.0


def option(on_error: str = "fail") -> str:
    return task_of(SCHEMA, on_error=on_error).option


def read(bootstrap: str, topic: str, **more: str) -> list[dict[str, Any]]:
    made = reader(bootstrap, subscribe=topic, **more)
    return [row for one in made.partitions() for row in rows_of(made.read(one))]


@proves("typed")
def test_what_the_option_says_is_what_was_asked_for() -> None:
    asked = Task(Text("AVRO", "{}", (("a", "b"),)), "M", RegistryAddress("http://there:1", "LOGIN"), "value", "null")
    assert task_from(asked.option) == asked
    assert task_from(option()) == task_of(SCHEMA)


@proves("P1", "typed")
def test_the_source_has_the_columns_that_typed_would_give() -> None:
    _, schema = source("localhost:1", subscribe="orders", decode=option("dead_letter"))
    assert schema["value"].dataType.simpleString() == "struct<id:bigint,name:string>"
    assert schema.names[-2:] == ["_error", "_undecoded"]


@proves("P1", "typed")
def test_values_are_decoded_where_they_are_read(broker: Broker, cluster: Cluster, topic: str) -> None:
    fill(cluster, topic, 0, VALUES)
    at = broker.bootstrap
    with pytest.raises(UndecodableValue, match=f"column value of topic {topic}, partition 0, offset 1 cannot be"):
        read(at, topic, decode=option())
    found = read(at, topic, decode=option("null"))
    assert [row["value"] for row in found] == [{"id": 1, "name": "tea"}, None, {"id": 2, "name": None}]
    assert [row["offset"] for row in found] == [0, 1, 2]
    letters = read(at, topic, decode=option("dead_letter"))
    assert [row["_undecoded"] for row in letters] == [None, b"{", None]
    assert [row["_error"] is None for row in letters] == [True, False, True]


@proves("P1", "typed")
def test_only_the_columns_that_are_asked_for_go_to_spark(broker: Broker, cluster: Cluster, topic: str) -> None:
    fill(cluster, topic, 0, VALUES[:1])
    made, schema = source(broker.bootstrap, subscribe=topic, decode=option())
    few = made.reader(StructType([schema["value"], schema["timestampType"]]))
    (row,) = [row for one in few.partitions() for row in rows_of(few.read(one))]
    assert row == {"value": {"id": 1, "name": "tea"}, "timestampType": 0}


@proves("P7", "typed")
def test_a_tick_has_no_value_to_decode(broker: Broker, cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic, partitions=1)
    ticking = {"ticks": "true", "idleAfter": "1ms"}
    query = Query(broker.bootstrap, subscribe=topic, startingOffsets="earliest", decode=option(), **ticking)
    while tick_of(query.offsets) is None:
        query.trigger()
    assert isinstance(tick_of(query.offsets), Tick)
    assert {(row["value"], row["offset"]) for row in query.rows} == {(None, -1)}


# At rest --------------------------------------------------------------------------------------------------------------


@proves("P1")
def test_a_query_at_rest_waits_for_a_record_and_not_at_its_first_look(
    broker: Broker, cluster: Cluster, topic: str
) -> None:
    fill(cluster, topic, 0, [b"1"])
    query = Query(broker.bootstrap, subscribe=topic, startingOffsets="earliest", waitForRecords="10m")
    assert query.trigger() == 1
    assert query.trigger() == 0, "a look that finds nothing new, the first, does not wait"
    came: list[int] = []
    waiting = threading.Thread(target=lambda: came.append(query.trigger()), daemon=True)
    waiting.start()
    fill(cluster, topic, 0, [b"2"])
    waiting.join(WOKEN_WITHIN_S)
    assert came == [1], "the record has ended the wait"
    query.stream.stop()


@proves("P1")
def test_a_wait_ends_without_a_record(broker: Broker, cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic, partitions=1)
    query = Query(broker.bootstrap, subscribe=topic, startingOffsets="earliest", waitForRecords="50ms")
    assert [query.trigger() for _ in range(4)] == [0, 0, 0, 0]
    query.stream.stop()


@proves("P1")
def test_what_a_limit_holds_back_is_not_waited_for(broker: Broker, cluster: Cluster, topic: str) -> None:
    """A record is there already: the wait would end at once, again and again."""
    fill(cluster, topic, 0, [b"1"])
    query = Query(
        broker.bootstrap, subscribe=topic, startingOffsets="earliest", waitForRecords="10m", minOffsetsPerTrigger="5"
    )
    assert query.trigger() == 1
    fill(cluster, topic, 0, [b"2"])
    assert [query.trigger() for _ in range(3)] == [0, 0, 0]
    assert not query.stream.planner.rests(query.stream.planner.latest, found={})
    query.stream.stop()
