"""The mechanism under Spark: steps, timers, restarts, crashes, and what it refuses; `Counting` stands for any fold."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from pipelines.operators.state import counting as counting_fold
from pipelines.operators.state.counting import Counting
from proving import proves
from tidelog.errors import PipelineFailed, UsageError
from tidelog.pipelines.operators.state.operator import run_fold
from tidelog.pipelines.operators.state.reading import is_there, read_states
from tidelog.pipelines.operators.state.steps import FoldCounts, called_by
from tidelog.testing.pipeline import PipelineDriver
from tidelog.testing.pipeline_sinks import CRASH_POINTS, CrashPoint
from tries import tries

SCHEMA = "key string, value long, at timestamp"


@pytest.fixture(scope="module", autouse=True)
def workers_know_the_fold() -> Iterator[None]:
    """Spark's workers cannot import modules of the tests: what they hold travels with the query."""
    cloudpickle.register_pickle_by_value(counting_fold)
    yield
    cloudpickle.unregister_pickle_by_value(counting_fold)


@pytest.fixture
def driver(spark: SparkSession) -> Iterator[PipelineDriver]:
    with PipelineDriver(spark) as made:
        yield made


def counting(rows: DataFrame) -> DataFrame:
    return run_fold(rows.selectExpr("key", "value", "unix_millis(at) as at"), ["key"], Counting())


def forgetting(rows: DataFrame) -> DataFrame:
    timed = rows.withWatermark("at", "10 seconds").selectExpr("key", "value", "unix_millis(at) as at")
    return run_fold(timed, ["key"], Counting(forget_after=60_000))


def counts(rows: list) -> Counter[str]:
    return Counter({row["key"]: row["n"] for row in rows})


@proves("P8")
def test_spark_has_one_hash_for_what_is_one_key_in_its_sql(spark: SparkSession) -> None:
    """So folds find it in one bucket and one page, also in state from before keys were made plain."""
    signed = "double('NaN')", "-double('NaN')", "sqrt(double(-1))", "double(0)", "-double(0)"
    nans, zeros = signed[:3], signed[3:]
    hashes = spark.sql(f"select {', '.join(f'xxhash64({one})' for one in signed)}").first()
    assert hashes is not None
    assert len(set(hashes[: len(nans)])) == 1 and len(set(hashes[len(nans) :])) == 1 and len(zeros) == 2
    with pytest.raises(UsageError, match="UTF8_LCASE"):
        counting(spark.sql("select 'a' collate UTF8_LCASE key, 1L value, now() at"))


@proves("P1", "B1")
@pytest.mark.slow
def test_any_split_into_micro_batches_ends_at_the_batch_answer(driver: PipelineDriver) -> None:
    words = driver.input("words", SCHEMA, partitions=2)
    run = driver.run(counting, words)
    expected = Counter[str]()
    for batch in ("abca", "b", "", "cab" * 20):
        words.add([(key, n, "12:00") for n, key in enumerate(batch)])
        expected.update(batch)
        assert counts(run.step()) == {key: expected[key] for key in batch}
    assert counts(run.batch()) == expected


@proves("P1", "P7")
@pytest.mark.slow
def test_what_is_due_comes_when_the_watermark_has_reached_it_and_not_before(driver: PipelineDriver) -> None:
    words = driver.input("words", SCHEMA)
    run = driver.run(forgetting, words)
    words.add([("a", 1, "12:00:00"), ("b", 1, "12:00:30")])
    assert [row["forgotten"] for row in run.step()] == [False, False]
    words.add([("c", 1, "12:01:09.999")])
    assert [(row["key"], row["forgotten"]) for row in run.step()] == [("c", False)]
    words.add([("c", 2, "12:01:10")])
    assert sorted((row["key"], row["forgotten"]) for row in run.step()) == [("a", True), ("c", False)]
    assert sorted(row["key"] for row in run.finish() if row["forgotten"]) == ["b", "c"]


@proves("P1", "P7")
@pytest.mark.slow
def test_late_rows_reach_the_fold(driver: PipelineDriver) -> None:
    words = driver.input("words", SCHEMA)
    run = driver.run(forgetting, words)
    words.add([("a", 1, "12:30")])
    run.step()
    words.add([("late", 7, "12:00")])
    assert [(row["key"], row["n"], row["forgotten"]) for row in run.step()] == [("late", 1, False), ("late", 1, True)]


@proves("P1", "F1", "F2")
@pytest.mark.parametrize(
    "point", [pytest.param(one, marks=() if one == "between tasks" else pytest.mark.full) for one in CRASH_POINTS]
)
@pytest.mark.slow
def test_a_crash_at_any_point_neither_loses_nor_doubles_state(driver: PipelineDriver, point: CrashPoint) -> None:
    words = driver.input("words", SCHEMA, partitions=2)
    run = driver.run(counting, words)
    words.add([(key, 0, "12:00") for key in "aab"])
    run.step()
    words.add([(key, 0, "12:00") for key in "abc"])
    run.crash(point)
    run.restart()
    words.add([("a", 0, "12:00")])
    assert counts(run.step()) == {"a": 4}
    (state,) = read_states(driver._spark, run.checkpoint)
    assert dict(zip(state.rows["key"].to_pylist(), state.rows["n"].to_pylist(), strict=True)) == {
        "a": 4,
        "b": 2,
        "c": 1,
    }
    assert state.counts == {"in": 7}


@proves("P1", "P7")
@pytest.mark.slow
def test_what_became_of_rows_is_told_while_the_query_runs(driver: PipelineDriver) -> None:
    words = driver.input("words", SCHEMA, partitions=2)
    counts = FoldCounts()
    with called_by(counts.step_of):
        run = driver.run(lambda rows: counting(counting(rows).selectExpr("key", "n as value", "now() as at")), words)
        words.add([(key, 0, "12:00") for key in "aab"])
        run.step()
    words.add([("c", 0, "12:00")])
    run.step()
    assert counts.read() == {"counting": {"in": 4}, "counting 2": {"in": 3}}
    assert [state.counts for state in run.fold_states()] == [{"in": 3}, {"in": 4}]


@proves("P1", "P7", "F4")
@pytest.mark.slow
def test_a_wrong_key_another_key_and_a_missing_event_time_are_told(driver: PipelineDriver) -> None:
    words = driver.input("words", SCHEMA)

    def by(keys: str | list[str], fold: Counting) -> Callable[[DataFrame], DataFrame]:
        return lambda rows: rows.selectExpr("key", "value", "unix_millis(at) as at").transform(run_fold, keys, fold)

    with pytest.raises(UsageError, match="fold 'counting' is by 'kye', and its rows have only key, value, at"):
        driver.run(by("kye", Counting()), words)
    words.add([("a", 1, "12:00")])
    never_woken = driver.run(by("key", Counting(forget_after=60_000)), words)
    with pytest.raises(PipelineFailed, match=r"fold 'counting' kept a row with a '_due'.* no event time"):
        never_woken.step()
    run = driver.run(by("key", Counting()), words)
    assert counts(run.step()) == {"a": 1}
    run.restart(by(["key", "value"], Counting()))
    words.add([("a", 2, "12:00")])
    with pytest.raises(PipelineFailed, match=r"made with key columns \['key'\], and the query now has key columns"):
        run.step()


@pytest.mark.full
@proves("P1", "F1")
@tries(2, suppress_health_check=[HealthCheck.function_scoped_fixture])  # each is a run on Spark
@given(st.lists(st.tuples(st.text("abcde", max_size=12), st.sampled_from(["step", "restart"])), min_size=1, max_size=5))
@example([("abca", "restart"), ("", "step"), ("bcd", "step"), ("aa", "restart"), ("e", "step")])
def test_restarts_change_nothing(driver: PipelineDriver, script: list[tuple[str, str]]) -> None:
    words = driver.input("words", SCHEMA, partitions=2)
    run = driver.run(counting, words)
    for keys, then in script:
        words.add([(key, 0, "12:00") for key in keys])
        run.step()
        if then == "restart":
            run.restart()
    latest = {row["key"]: row["n"] for row in run.output}
    assert latest == Counter("".join(keys for keys, _ in script))


@pytest.mark.full
@proves("P1", "F4")
def test_a_checkpoint_keeps_its_partitions_and_a_new_one_rebuilds_the_state_over_more(driver: PipelineDriver) -> None:
    partitions = "spark.sql.shuffle.partitions"
    words = driver.input("words", SCHEMA)
    run = driver.run(counting, words)
    words.add([(key, 0, "12:00") for key in "abcabcaab"])
    before = counts(run.step())
    kept = driver._spark.conf.get(partitions)
    driver._spark.conf.set(partitions, "8")
    try:
        run.restart()
        words.add([("a", 0, "12:00")])
        assert counts(run.step()) == {"a": before["a"] + 1}
        rebuilt = driver.run(counting, words)
        assert counts(rebuilt.step()) == before + Counter("a")
        layouts = [state.layout for one in (run, rebuilt) for state in read_states(driver._spark, one.checkpoint)]
        assert layouts == [(8, 2), (32, 8)]
    finally:
        driver._spark.conf.set(partitions, str(kept))


@proves("P1")
@pytest.mark.slow
def test_the_command_shows_what_is_kept(
    driver: PipelineDriver, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidelog.cli import state as command

    words = driver.input("words", SCHEMA)
    run = driver.run(forgetting, words)
    words.add([("a", 5, "12:00:00"), ("b", 6, "12:00:30")])
    run.step()
    monkeypatch.setattr(command, "read", lambda options: read_states(driver._spark, options.checkpoint))
    assert command.run([str(run.checkpoint), "--rows", "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert {row["key"]: (row["n"], row["last"]) for row in shown["state"]} == {"a": (1, 5), "b": (1, 6)}
    assert (shown["fold"], shown["buckets"], shown["partitions"], shown["counts"]["in"]) == ("counting", 8, 2, 2)
    assert command.run([str(run.checkpoint / "offsets")]) == 0
    assert "is that the checkpointLocation of one?" in capsys.readouterr().out
    assert command.run([str(run.checkpoint), "--rows"]) == 0
    assert "2 of 2 rows" in capsys.readouterr().out


@proves("P1")
def test_the_command_fails_for_a_checkpoint_that_is_not_there(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tidelog.cli.main import FAILED, main

    assert main(["state", str(tmp_path / "nowhere")]) == FAILED
    assert "nowhere does not exist; give the checkpointLocation of a query" in capsys.readouterr().err
    assert is_there(spark, f"file://{tmp_path}")
    assert not is_there(spark, f"file://{tmp_path}/nowhere")
