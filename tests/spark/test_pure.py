"""What the source decides without a broker: offsets as text, how far a micro-batch goes, how it is cut, options."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.client.metadata import TopicPartition
from tidelog.errors import ConfigError, UsageError
from tidelog.record.columns import Row
from tidelog.spark.admission import Pace, ceiling, end_below, share_out, waits_for_more
from tidelog.spark.offsets import from_json, to_json
from tidelog.spark.options import MAX_OFFSETS_PER_TRIGGER, AlignBy, SourceOptions, read_options
from tidelog.spark.ranges import cut
from tidelog.spark.registration import refusal
from tidelog.spark.value_times import time_reader

partitions = st.builds(TopicPartition, st.sampled_from(["a", "b", "topic.with-dots"]), st.integers(0, 12))
offsets = st.dictionaries(partitions, st.integers(0, 1 << 40), max_size=12)
spans = st.dictionaries(partitions, st.tuples(st.integers(0, 1 << 40), st.integers(0, 1 << 20)), max_size=8)

BROKERS = {"kafka.bootstrap.servers": "localhost:9092"}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def options(streaming: bool = True, **given: str) -> SourceOptions:
    named = {"subscribe": "t"} if not {"subscribe", "subscribePattern", "assign"} & given.keys() else {}
    return read_options({**BROKERS, **named, **given}, streaming=streaming)


# --- offsets ---------------------------------------------------------------------------------------------------------


@proves("P1")
@given(offsets)
def test_offsets_come_back_from_json_and_have_one_form(given: dict[TopicPartition, int]) -> None:
    text = json.dumps(to_json(given))
    assert from_json(json.loads(text)) == given
    assert json.dumps(to_json(dict(reversed(given.items())))) == text


@proves("P1")
def test_partitions_are_sorted_by_number_and_not_as_text() -> None:
    assert json.dumps(to_json({TopicPartition("t", n): n for n in (10, 9, 2)})) == '{"t": {"2": 2, "9": 9, "10": 10}}'


# --- how far ---------------------------------------------------------------------------------------------------------


@proves("P1")
@given(spans, st.integers(1, 1 << 21))
def test_a_limit_is_shared_out_and_nobody_starves(given: dict[TopicPartition, tuple[int, int]], limit: int) -> None:
    start = {at: first for at, (first, _) in given.items()}
    latest = {at: first + size for at, (first, size) in given.items()}
    ends = share_out(limit, start, latest)
    assert ends.keys() == latest.keys()
    assert all(start[at] <= ends[at] <= latest[at] for at in ends)
    taken = {at: ends[at] - start[at] for at in ends}
    assert sum(taken.values()) <= limit + len(ends)  # one each at least, however small the limit
    assert all(taken[at] > 0 for at in ends if latest[at] > start[at])
    if sum(size for _, size in given.values()) <= limit:
        assert ends == latest


@proves("P1")
def test_shares_are_those_of_the_connector() -> None:
    start, latest = {T0: 0, T1: 100}, {T0: 3000, T1: 1100}
    assert share_out(1000, start, latest) == {T0: 750, T1: 350}
    assert share_out(1, start, latest) == {T0: 1, T1: 101}
    assert share_out(852, {T0: 0, T1: 0}, {T0: 532, T1: 3444}) == {T0: 113, T1: 738}, "114 but for floating point"


@proves("P1")
def test_a_partition_that_has_lost_offsets_ends_where_it_now_ends() -> None:
    assert share_out(10, {T0: 50, T1: 0}, {T0: 20, T1: 100}) == {T0: 20, T1: 10}


@proves("P1")
def test_little_is_waited_for_and_not_for_ever() -> None:
    start, latest = {T0: 0}, {T0: 99}
    assert waits_for_more(100, start, latest, waited_ms=10, at_most_ms=1000)
    assert not waits_for_more(99, start, latest, waited_ms=10, at_most_ms=1000)
    assert not waits_for_more(100, start, latest, waited_ms=1000, at_most_ms=1000)


# --- together in time ------------------------------------------------------------------------------------------------


@proves("P7")
def test_the_oldest_next_record_and_the_lateness_make_the_ceiling() -> None:
    paces = {T0: Pace(5000), T1: Pace(9000)}
    assert ceiling(paces, lateness_ms=100, idle_after_ms=1000) == 5100


@proves("P7")
def test_a_partition_at_its_end_holds_others_for_a_while() -> None:
    at_end, behind = Pace(1000, at_end_ms=0.0), Pace(9000)
    assert ceiling({T0: at_end, T1: behind}, lateness_ms=100, idle_after_ms=500) == 1100
    assert ceiling({T0: at_end._replace(at_end_ms=500.0), T1: behind}, lateness_ms=100, idle_after_ms=500) == 9100
    assert ceiling({T0: at_end._replace(at_end_ms=500.0)}, lateness_ms=100, idle_after_ms=500) is None
    assert ceiling({T0: Pace(None), T1: behind}, lateness_ms=1, idle_after_ms=0) == 9001


@proves("P7")
@given(
    st.lists(st.lists(st.integers(0, 100), max_size=15), min_size=1, max_size=4), st.integers(0, 30), st.integers(1, 8)
)
def test_none_runs_ahead_by_more_than_the_lateness_and_all_is_read(
    gaps: list[list[int]], lateness: int, most: int
) -> None:
    """Partitions with times that go up, read to their ends: what was read is no younger than what is left allows."""
    logs = {TopicPartition("t", n): [sum(steps[: i + 1]) for i in range(len(steps))] for n, steps in enumerate(gaps)}
    at = dict.fromkeys(logs, 0)
    ends = {place: len(log) for place, log in logs.items()}
    for _ in range(sum(ends.values())):
        behind = [place for place in logs if at[place] < ends[place]]
        if not behind:
            break
        highest = ceiling({p: Pace(logs[p][at[p]]) for p in behind}, lateness_ms=lateness, idle_after_ms=0)
        assert highest is not None
        before = dict(at)
        for place in behind:
            log = logs[place]
            at[place] = end_below(highest, at[place], min(at[place] + most, ends[place]), lambda o, log=log: log[o])
        assert at != before, "nothing was read"
        left = [logs[p][before[p]] for p in behind]
        assert all(logs[p][i] <= min(left) + lateness for p in behind for i in range(before[p], at[p]))
    assert at == ends


@proves("P7")
@given(st.lists(st.none() | st.integers(0, 9), min_size=1, max_size=12), st.integers(0, 9), st.data())
def test_looking_by_halves_ends_within_the_range_and_before_a_record_above(
    times: list[int | None], highest: int, data: st.DataObject
) -> None:
    """Also where times go up and down, or are missing: then an end is found all the same, and something is read."""
    start = data.draw(st.integers(0, len(times)))
    end = data.draw(st.integers(start, len(times)))

    def above(offset: int) -> bool:
        found = times[offset]
        return found is not None and found > highest

    found = end_below(highest, start, end, lambda offset: times[offset])
    assert start <= found <= end
    assert found == end or above(found)
    assert found > start or start == end or above(start)


@proves("P7")
@pytest.mark.parametrize(
    ("value", "path", "time"),
    [
        (b'{"at": 1700000000000}', "at", 1700000000000),
        (b'{"event": {"at": "2023-11-14T22:13:20Z"}}', "event.at", 1700000000000),
        (b'{"at": "2023-11-14T22:13:20"}', "at", 1700000000000),
        (b'{"at": true}', "at", None),
        (b'{"at": "soon"}', "at", None),
        (b'{"other": 1}', "at", None),
        (b"[1]", "at", None),
        (b"not json", "at", None),
        (None, "at", None),
        (b"whatever", "timestamp", 7),
    ],
)
def test_the_time_of_a_record_is_its_own_or_a_field_of_its_value(
    value: bytes | None, path: str, time: int | None
) -> None:
    assert time_reader(AlignBy(path))(Row(0, 7, None, value, ())) == time


# --- ranges ----------------------------------------------------------------------------------------------------------


@proves("P1")
@given(spans, st.none() | st.integers(1, 40), st.none() | st.integers(1, 1 << 18))
def test_ranges_cover_every_offset_once_in_order(
    given: dict[TopicPartition, tuple[int, int]], min_partitions: int | None, max_records: int | None
) -> None:
    start = {at: first for at, (first, _) in given.items()}
    end = {at: first + size for at, (first, size) in given.items()}
    max_records = max_records and max(max_records, sum(size for _, size in given.values()) // 200 + 1)
    ranges = cut(start, end, min_partitions=min_partitions, max_records=max_records)
    for at in given:
        mine = [one for one in ranges if one.at == at]
        covered = [start[at], *(one.end for one in mine)]
        assert [one.start for one in mine] == covered[:-1]
        assert covered[-1] == end[at]
        assert all(one.size > 0 for one in mine)
        assert max_records is None or all(one.size <= max_records for one in mine)
    assert cut(start, end, min_partitions=min_partitions, max_records=max_records) == ranges


@proves("P1")
def test_large_partitions_are_cut_and_small_ones_stay_whole() -> None:
    ranges = cut({T0: 0, T1: 0}, {T0: 900, T1: 10}, min_partitions=4)
    assert [(one.at.partition, one.start, one.end) for one in ranges] == [
        (0, 0, 300),
        (0, 300, 600),
        (0, 600, 900),
        (1, 0, 10),
    ]


@proves("P1")
def test_without_a_wish_a_partition_is_a_range() -> None:
    assert [one.size for one in cut({T0: 5, T1: 7}, {T0: 9, T1: 7})] == [4]


# --- options ---------------------------------------------------------------------------------------------------------


@proves("P1")
def test_defaults_are_those_of_the_connector_but_a_backlog_is_many_micro_batches() -> None:
    streaming, batch = options(), options(streaming=False)
    assert (streaming.starting.everywhere, batch.starting.everywhere, batch.ending.everywhere) == (-1, -2, -1)
    assert streaming.fail_on_data_loss
    assert not streaming.headers
    assert not streaming.reach.read_committed
    assert streaming.max_offsets == MAX_OFFSETS_PER_TRIGGER
    assert options(maxOffsetsPerTrigger="unlimited").max_offsets is None
    assert options(minOffsetsPerTrigger=str(MAX_OFFSETS_PER_TRIGGER + 1)).max_offsets == MAX_OFFSETS_PER_TRIGGER + 1


@proves("P1")
def test_the_case_of_names_does_not_count() -> None:
    given = options(STARTINGOFFSETS="EARLIEST", failondataloss="False", **{"kafka.ISOLATION.level": "read_committed"})
    assert given.starting.everywhere == -2
    assert not given.fail_on_data_loss
    assert given.reach.read_committed


@proves("P1")
def test_boundaries_by_partition_and_by_time() -> None:
    by_offset = options(startingOffsets='{"t": {"0": 23, "1": -2}}').starting
    assert by_offset.offsets == {T0: 23, T1: -2}
    by_time = options(streaming=False, endingOffsetsByTimestamp='{"t": {"0": 99}}', startingTimestamp="7")
    assert by_time.ending.timestamps == {T0: 99}
    assert by_time.starting.timestamp == 7
    assert not by_time.starting.latest_if_none
    assert by_time.ending.latest_if_none
    assert options(startingTimestamp="7", startingOffsetsByTimestampStrategy="latest").starting.latest_if_none


@proves("P1")
def test_times_are_written_as_spark_writes_them() -> None:
    given = options(maxTriggerDelay="15m", alignment="10s", idleAfter="500")
    assert (given.max_delay_ms, given.alignment_ms, given.idle_after_ms) == (900_000, 10_000, 500)
    assert options().alignment_ms is None


@proves("P1")
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"subscribe": "a", "assign": '{"a": [0]}'}, "subscribe and assign are given"),
        ({"subscribe": " , "}, "name topics"),
        ({"subscribePattern": "("}, "which is not a regular expression"),
        ({"assign": "[0]"}, 'write it like {"topic": [0, 1]}'),
        ({"startingOffsets": "newest"}, "startingOffsets is 'newest'"),
        ({"startingOffsets": '{"t": {"0": "1"}}'}, "write it like"),
        ({"endingOffsets": "latest"}, "a streaming query has no end"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"minPartitions": "0"}, "above 0"),
        ({"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "9"}, "lower the first"),
        ({"maxTriggerDelay": "soon"}, "write a time"),
        ({"maxOffsetPerTrigger": "9"}, "did you mean maxOffsetsPerTrigger?"),
        ({"kafka.isolation.levle": "x"}, "did you mean isolation.level?"),
        ({"kafka.auto.offset.reset": "earliest"}, "set startingOffsets instead"),
        ({"kafka.isolation.level": "x"}, "read_uncommitted or read_committed"),
    ],
)
def test_a_wrong_option_is_refused_by_name(given: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError) as raised:
        options(**given)
    assert says in str(raised.value)


@proves("P1")
def test_no_broker_and_no_topic_are_said() -> None:
    with pytest.raises(UsageError, match=r"kafka\.bootstrap\.servers"):
        read_options({"subscribe": "t"}, streaming=True)
    with pytest.raises(UsageError, match="no topic is given"):
        read_options(BROKERS, streaming=True)


@proves("P1")
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"startingOffsets": "latest"}, "would read nothing"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "would read nothing"),
        ({"startingOffsets": '{"t": {"0": 5}}', "endingOffsets": '{"t": {"1": 5}}'}, r"differ.*t\[0\], t\[1\]"),
        ({"startingOffsets": '{"t": {"0": 5}}', "endingOffsets": '{"t": {"0": 4}}'}, "start before its end"),
    ],
)
def test_a_batch_read_that_could_read_nothing_is_refused(given: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        options(streaming=False, **given)


@proves("P1", "secrets")
@pytest.mark.parametrize(
    "key", ["kafka.sasl.jaas.config", "kafka.sasl.password", "kafka.ssl.key.password", "kafka.SASL.Password"]
)
def test_a_secret_among_the_options_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(ConfigError) as raised:
        options(**{key: "hunter2"})
    assert "hunter2" not in str(raised.value)
    assert "securityFile" in str(raised.value)


@proves("P1")
def test_what_spark_finds_by_itself_is_the_source_or_says_why_not() -> None:
    from pyspark_tidelog import DefaultSource, RefusedSource
    from tidelog.spark.source import TidelogSource

    assert DefaultSource is TidelogSource
    assert DefaultSource.name() == RefusedSource.name() == "tidelog"
    with pytest.raises(ConfigError):
        RefusedSource({})


@proves("P1")
def test_a_pyspark_without_admission_control_is_refused() -> None:
    assert refusal("4.2.0") is None
    assert refusal("4.3.0.dev1") is None
    assert refusal("5.0.0") is None
    assert "pyspark>=4.2" in str(refusal("4.1.1"))
    assert "admission control" in str(refusal("3.5.9"))
