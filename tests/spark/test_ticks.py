"""Tick rows: when they come, what they are, and that a micro-batch that is run again has the same."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from contract import Broker
from proving import proves
from spark.filling import Query, fill, numbers, rows_of
from tidelog.client.cluster import Cluster
from tidelog.client.transactions import Transactions
from tidelog.spark.offsets import from_json
from tidelog.spark.query_log import parse_offsets_file
from tidelog.spark.ticks import Idleness, Tick, bounded, tick_of, tick_rows, with_tick

IDLE_MS = 10_000


def ticking(idle_after_ms: int, looks: list[float]) -> list[int]:
    """The looks, in seconds, at which an input that is silent from the first on ticks."""
    idleness = Idleness(idle_after_ms)
    found = []
    for now in looks:
        if (tick := idleness.tick(now=now, clock_ms=int(now * 1000))) is not None:
            idleness.ticked(now)
            assert tick.time_ms == now * 1000 - idle_after_ms
            found.append(int(now))
    return found


@proves("P7", "D1")
def test_a_tick_of_a_captured_table_is_not_beyond_what_its_capture_has_told() -> None:
    assert bounded(Tick(500), None) == Tick(500), "a capture without heartbeats bounds nothing"
    assert bounded(Tick(500), 900) == Tick(500) and bounded(Tick(500), 300) == Tick(300)


@proves("P7")
def test_an_input_ticks_after_it_has_been_silent_for_long_enough_and_then_now_and_then() -> None:
    every_half_second = [100 + half / 2 for half in range(60)]
    assert ticking(10_000, every_half_second)[:4] == [110, 112, 114, 116]
    assert ticking(2_000, every_half_second)[:4] == [102, 103, 104, 105]
    assert ticking(20_000, every_half_second) == [120, 124, 128]


@proves("P7")
def test_an_input_that_stirs_must_be_silent_anew_before_it_ticks() -> None:
    idleness = Idleness(IDLE_MS)
    assert idleness.tick(now=0.0, clock_ms=0) is None
    idleness.stir(now=5.0, clock_ms=5_000)
    assert idleness.tick(now=11.0, clock_ms=11_000) is None
    assert idleness.tick(now=20.9, clock_ms=20_900) is None
    assert idleness.tick(now=21.0, clock_ms=21_000) == Tick(11_000)


@proves("P7")
def test_no_tick_is_of_tomorrow_because_a_clock_was_wrong_for_some_minutes() -> None:
    idleness, day_ms = Idleness(IDLE_MS), 86_400_000
    assert idleness.tick(now=0.0, clock_ms=0) is None
    assert idleness.tick(now=10.0, clock_ms=10_000 + day_ms) == Tick(0)
    assert idleness.tick(now=590.0, clock_ms=590_000 + day_ms) == Tick(580_000)
    assert idleness.tick(now=591.0, clock_ms=591_000) == Tick(581_000)
    assert idleness.tick(now=700.0, clock_ms=700_000 + day_ms) == Tick(690_000), "and once more"


@proves("P7")
def test_a_step_forward_that_came_while_there_was_much_to_read_is_not_believed_when_the_input_falls_silent() -> None:
    idleness, day_ms = Idleness(IDLE_MS), 86_400_000
    assert idleness.tick(now=0.0, clock_ms=0) is None
    for now in range(10, 1200, 10):
        idleness.stir(now=float(now), clock_ms=now * 1000 + (day_ms if now >= 1190 else 0))
    assert idleness.tick(now=1200.0, clock_ms=1_200_000 + day_ms) is None
    assert idleness.tick(now=1210.0, clock_ms=1_210_000 + day_ms) == Tick(1_200_000)


@proves("P7", "F1")
def test_a_tick_in_offsets_is_no_partition_to_those_who_read_them() -> None:
    offsets = with_tick({"clicks": {"0": 12}}, Tick(1_763_236_800_000))
    assert json.loads(json.dumps(offsets)) == {"clicks": {"0": 12}, "tick:1763236800000": {}}
    assert tick_of(offsets) == Tick(1_763_236_800_000)
    assert tick_of({"clicks": {"0": 12}}) is None
    assert from_json(offsets) == from_json({"clicks": {"0": 12}})
    assert parse_offsets_file(f"v1\n{{}}\n{json.dumps(offsets)}").offsets == from_json({"clicks": {"0": 12}})


@proves("P7")
def test_a_tick_row_has_a_time_and_nothing_else() -> None:
    columns = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
    [row] = tick_rows(Tick(1500), columns).to_pylist()
    assert row["timestamp"].timestamp() == 1.5
    assert {name: row[name] for name in columns if name != "timestamp"} == {
        "key": None,
        "value": None,
        "topic": None,
        "partition": -1,
        "offset": -1,
        "timestampType": -1,
        "headers": None,
    }
    assert tick_rows(Tick(1500), ("value", "offset")).to_pylist() == [{"value": None, "offset": -1}]


# --- of a topic ------------------------------------------------------------------------------------------------------


def until_it_ticks(query: Query) -> dict[str, Any]:
    """Triggers until a tick came; its row."""
    while True:
        before = len(query.rows)
        if query.trigger() and query.rows[-1]["offset"] == -1:
            assert len(query.rows) == before + 1
            return query.rows[-1]
        time.sleep(0.05)


@proves("P7")
def test_a_silent_topic_ticks_behind_the_clock_and_a_record_takes_the_tick_out_of_the_offsets(
    broker: Broker, cluster: Cluster, topic: str
) -> None:
    fill(cluster, topic, 0, numbers(0, 3))
    options = {"subscribe": topic, "startingOffsets": "earliest", "ticks": "true", "idleAfter": "300ms"}
    query = Query(broker.bootstrap, **options)
    assert query.trigger() == 3
    plain = dict(query.offsets)
    tick = until_it_ticks(query)
    assert tick["timestamp"].timestamp() <= time.time() - 0.3
    assert {name: where for name, where in query.offsets.items() if not name.startswith("tick:")} == plain
    fill(cluster, topic, 0, numbers(3, 5))
    while len(query.values()) < 5:
        query.trigger()
    assert tick_of(query.offsets) is None
    query.stop()


@proves("P7", "F1")
def test_a_tick_that_is_run_again_has_the_same_time(broker: Broker, cluster: Cluster, topic: str) -> None:
    fill(cluster, topic, 0, numbers(0, 3))
    options = {"subscribe": topic, "startingOffsets": "earliest", "ticks": "true", "idleAfter": "200ms"}
    query = Query(broker.bootstrap, **options)
    query.trigger()
    before = dict(query.offsets)
    tick = until_it_ticks(query)
    query.stop()
    again = Query(broker.bootstrap, before, **options).stream
    [partition] = again.partitions(before, query.offsets)
    assert rows_of(again.read(partition)) == [tick]
    assert again.partitions(query.offsets, query.offsets) == []
    again.stop()


@proves("P7", "P1")
def test_without_the_option_there_are_no_ticks_however_long_a_topic_is_silent(
    broker: Broker, cluster: Cluster, topic: str
) -> None:
    fill(cluster, topic, 0, numbers(0, 3))
    query = Query(broker.bootstrap, subscribe=topic, startingOffsets="earliest", idleAfter="1ms")
    assert query.trigger() == 3
    time.sleep(0.05)
    assert [query.trigger() for _ in range(5)] == [0] * 5
    query.stop()


@proves("P7")
def test_a_query_that_is_bound_to_an_end_or_behind_it_never_ticks(broker: Broker, cluster: Cluster, topic: str) -> None:
    fill(cluster, topic, 0, numbers(0, 30))
    options = {"subscribe": topic, "startingOffsets": "earliest", "ticks": "true", "idleAfter": "1ms"}
    query = Query(broker.bootstrap, **options, maxOffsetsPerTrigger="10")
    query.stream.prepareForTriggerAvailableNow()
    for _ in range(8):
        query.trigger()
        time.sleep(0.01)
    assert query.values() == numbers(0, 30)
    query.stop()
    held = Query(broker.bootstrap, **options, minOffsetsPerTrigger="20")
    assert held.trigger() == 30
    fill(cluster, topic, 0, numbers(30, 35))
    for _ in range(5):
        assert held.trigger() == 0
        time.sleep(0.01)
    held.stop()


@proves("P7")
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_an_input_with_an_open_transaction_does_not_tick_for_those_who_wait_for_its_end(
    broker: Broker, cluster: Cluster, topic: str, isolation: str
) -> None:
    fill(cluster, topic, 0, numbers(0, 3))
    options = {"subscribe": topic, "startingOffsets": "earliest", "ticks": "true", "idleAfter": "1ms"}
    query = Query(broker.bootstrap, **options, **{"kafka.isolation.level": isolation})
    with Transactions(cluster, f"ticks-{topic}-{isolation}") as transaction:
        transaction.begin()
        transaction.producer.send(topic, b"open", partition=0)
        transaction.producer.flush()
        seen = 0
        for _ in range(6):
            seen += query.trigger()
            time.sleep(0.02)
        assert (seen == 3) is (isolation == "read_committed")
        transaction.commit()
    until_it_ticks(query)
    assert query.values()[:4] == [*numbers(0, 3), b"open"]
    query.stop()
