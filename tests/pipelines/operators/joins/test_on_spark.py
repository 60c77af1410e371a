"""Joins on Spark: the same in a stream as in a batch, right after every step, and refused where they do not fit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from proving import proves
from tidelog.errors import UsageError
from tidelog.pipelines.operators.aggregates import count
from tidelog.pipelines.operators.changelog import DELETED, Table, as_changelog, as_upserts, latest_by_key
from tidelog.pipelines.operators.joins.enrich import enrich
from tidelog.pipelines.operators.joins.join_tables import join_tables
from tidelog.pipelines.operators.joins.stream_join import stream_join
from tidelog.pipelines.operators.time import event_time, event_time_column
from tidelog.pipelines.operators.windows.tumbling import tumbling
from tidelog.testing.pipeline import PipelineDriver

FULL = pytest.mark.full
OTHER_KINDS = ("string", "decimal(10,2)", "boolean", "timestamp_ntz")
SEARCHES = "session string, query string, searched_at timestamp"
CLICKS = "session string, url string, clicked_at timestamp"
SALES = "product string, cents bigint, sold_at timestamp"
RATES = "product string, percent bigint, since timestamp"
PEOPLE = "id string, name string, gone boolean, offset bigint"
ORDERS = "order bigint, customer string, removed boolean, place bigint"


@pytest.fixture
def driver(spark: SparkSession) -> Iterator[PipelineDriver]:
    with PipelineDriver(spark) as made:
        yield made


def tuples(rows: list[Row], *names: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row[name] for name in names) for row in rows), key=str)


# --- stream with stream ----------------------------------------------------------------------------------------------


def met(how: str) -> Any:
    def pipeline(searches: DataFrame, clicks: DataFrame) -> DataFrame:
        timed = clicks.transform(event_time("clicked_at", "0 seconds"))
        join = stream_join(timed, on="session", within=("0 seconds", "1 hour"), how=how)
        return searches.transform(event_time("searched_at", "0 seconds")).transform(join)

    return pipeline


LAST = "2030-01-01 00:00"
MET = {
    "inner": {("s1", "tides", "/moon"), ("s1", "tides", "/edge")},
    "left": {("s1", "tides", "/moon"), ("s1", "tides", "/edge"), ("s2", "boats", None)},
    "right": {("s1", "tides", "/moon"), ("s1", "tides", "/edge"), ("s1", None, "/late"), ("s3", None, "/alone")},
    "full": {
        ("s1", "tides", "/moon"),
        ("s1", "tides", "/edge"),
        ("s1", None, "/late"),
        ("s2", "boats", None),
        ("s3", None, "/alone"),
    },
    "semi": {("s1", "tides")},
    "anti": {("s2", "boats")},
}


@proves("P9")
@pytest.mark.parametrize("how", [pytest.param(how, marks=() if how == "full" else FULL) for how in MET])
def test_a_search_meets_its_clicks_of_an_hour_and_what_met_nothing_comes_when_its_time_is_over(
    driver: PipelineDriver, how: str
) -> None:
    searches, clicks = driver.input("searches", SEARCHES), driver.input("clicks", CLICKS)
    run = driver.run(met(how), searches, clicks)
    names = ["session", "query"] + (["url"] if how not in ("semi", "anti") else [])
    searches.add([("s1", "tides", "10:00"), ("s2", "boats", "10:05")])
    run.step()
    clicks.add(
        [("s1", "/moon", "10:20"), ("s1", "/edge", "11:00"), ("s1", "/late", "11:00:01"), ("s3", "/alone", "10:30")]
    )
    run.step()
    assert (None in [value for row in run.output for value in row]) is False
    searches.add([("last", "x", LAST)])
    clicks.add([("last too", "x", LAST)])
    run.step()
    found = {row for row in tuples(run.output, *names) if not row[0].startswith("last")}
    assert found == MET[how]
    batch = {row for row in tuples(run.batch(), *names) if not row[0].startswith("last")}
    assert batch == MET[how]


@proves("P9")
@pytest.mark.slow
def test_a_row_without_a_time_meets_nothing_and_is_not_kept(driver: PipelineDriver) -> None:
    searches, clicks = driver.input("searches", SEARCHES), driver.input("clicks", CLICKS)
    run = driver.run(met("full"), searches, clicks)
    searches.add([("s1", "tides", None), ("s2", "boats", "10:00")])
    clicks.add([("s1", "/moon", None), ("s2", "/boats", "10:01")])
    assert tuples(run.step(), "session", "query", "url") == [("s2", "boats", "/boats")]
    assert {row["session"] for row in run.state()} == {"s2"}
    assert tuples(run.batch(), "session", "query", "url") == [("s2", "boats", "/boats")]


@proves("P9")
@pytest.mark.full
def test_the_result_of_a_stream_join_has_one_event_time(driver: PipelineDriver) -> None:
    searches, clicks = driver.input("searches", SEARCHES), driver.input("clicks", CLICKS)
    found = {}

    def pipeline(how: str) -> Any:
        def joined(one: DataFrame, other: DataFrame) -> DataFrame:
            result = met(how)(one, other)
            found[how] = event_time_column(result)
            return result

        return joined

    for how in MET:
        driver.run(pipeline(how), searches, clicks).stop()
    assert found == {how: "clicked_at" if how == "right" else "searched_at" for how in MET}


# --- stream with table -----------------------------------------------------------------------------------------------


def taxed(**more: Any) -> Any:
    def pipeline(sales: DataFrame, rates: DataFrame) -> DataFrame:
        table = rates.transform(event_time("since", "1 minute"))
        timed = sales.transform(event_time("sold_at", "1 minute"))
        return timed.transform(enrich(table, on="product", **{"deleted": "percent is null", **more}))

    return pipeline


@pytest.mark.full
@proves("P9", "P10")
def test_a_sale_is_taxed_by_the_rate_of_its_time_over_restarts_and_in_a_batch(driver: PipelineDriver) -> None:
    sales, rates = driver.input("sales", SALES, partitions=2), driver.input("rates", RATES)
    run = driver.run(taxed(), sales, rates)
    rates.add([("tea", 7, "09:00")])
    sales.add([("tea", 100, "10:00"), ("rum", 200, "10:00")])
    assert run.step() == []
    rates.add([("tea", 19, "11:00"), ("rum", 30, "11:00")])
    sales.add([("tea", 110, "11:00"), ("tea", 109, "10:58:59")], partition=1)
    assert tuples(run.step(), "cents", "percent") == [(100, 7), (109, 7), (200, None)]
    run.restart()
    rates.add([("tea", None, "12:00")])
    sales.add([("tea", 120, "12:00"), ("rum", 210, "12:00"), ("tea", 99, "09:30")])
    assert tuples(run.step(), "cents", "percent") == [(110, 19)]
    rates.add([("end", 1, LAST)])
    sales.add([("end", 1, LAST)])
    run.step()
    said = [(100, 7), (109, 7), (110, 19), (120, None), (200, None), (210, 30)]
    assert tuples(run.output, "cents", "percent") == said
    assert tuples(run.batch(), "cents", "percent") == sorted([*said, (1, 1), (99, 7)], key=str)


@proves("P9", "P10", "B1")
@pytest.mark.full
def test_of_versions_of_one_time_the_order_says_which_counts_whichever_micro_batch_they_come_in(
    driver: PipelineDriver,
) -> None:
    sales, rates = driver.input("sales", SALES), driver.input("rates", f"{RATES}, revision int", partitions=2)
    run = driver.run(taxed(order="revision"), sales, rates)
    rates.add([("tea", 19, "09:00", 2), ("rum", 30, "09:00", 1)])
    run.step()
    run.restart()
    rates.add([("tea", 7, "09:00", 1), ("rum", 31, "09:00", 2)], partition=1)
    sales.add([("tea", 100, "10:00"), ("rum", 200, "10:00")])
    run.step()
    rates.add([("end", 1, LAST, 1)])
    sales.add([("end", 1, LAST)])
    run.step()
    assert tuples(run.output, "cents", "percent") == [(100, 19), (200, 31)]
    assert tuples(run.batch(), "cents", "percent") == [(1, 1), (100, 19), (200, 31)]


@proves("P7", "P9")
@pytest.mark.slow
def test_late_rows_are_diverted_where_that_is_asked_for(driver: PipelineDriver) -> None:
    sales, rates = driver.input("sales", SALES), driver.input("rates", RATES)
    run = driver.run(taxed(late="side_output", how="inner"), sales, rates)
    rates.add([("tea", 7, "09:00"), ("end", 1, "12:00")])
    sales.add([("tea", 100, "10:00"), ("rum", 1, "10:00"), ("end", 120, "12:00")])
    assert tuples(run.step(), "_late", "cents", "percent") == [(None, 100, 7)]
    sales.add([("tea", 99, "09:59")])
    assert tuples(run.step(), "_late", "cents", "percent") == [(True, 99, None)]


@proves("P7", "P9")
@pytest.mark.parametrize("late", [pytest.param("drop", marks=pytest.mark.full), "side_output"])
@pytest.mark.slow
def test_a_row_without_a_time_is_as_one_that_is_late(driver: PipelineDriver, late: str) -> None:
    sales, rates = driver.input("sales", SALES), driver.input("rates", RATES)
    run = driver.run(taxed(late=late), sales, rates)
    rates.add([("tea", 7, "09:00"), ("tea", 9, None)])
    sales.add([("tea", 100, None)])
    diverted = [("tea", 100, None)] if late == "side_output" else []
    assert tuples(run.step(), "product", "cents", "percent") == diverted
    assert tuples(run.batch(), "product", "cents", "percent") == diverted
    (state,) = run.fold_states()
    ways = {"diverted": 1, "without_time": 1} if late == "side_output" else {"dropped": 1, "without_time": 2}
    assert state.counts == {"in": 2, "joined": 0, **ways}, "the version without a time is lost in either case"


@proves("P9")
@pytest.mark.slow
def test_a_condition_is_asked_of_the_version_that_was_picked_and_of_no_other(driver: PipelineDriver) -> None:
    sales, rates = driver.input("sales", SALES), driver.input("rates", RATES)
    rates.add([("tea", 7, "09:00"), ("tea", 19, "10:00")])
    sales.add([("tea", 100, "09:30"), ("tea", 110, "10:30")])
    for how, said in (("left", [(100, 7), (110, None)]), ("inner", [(100, 7)])):
        assert tuples(driver.batch(taxed(how=how, where="percent < 10"), sales, rates), "cents", "percent") == said


@proves("P9")
@pytest.mark.full
def test_results_that_were_held_back_are_refused_on_either_side(driver: PipelineDriver) -> None:
    """By then they are behind the watermark."""
    sales, rates = driver.input("sales", SALES), driver.input("rates", RATES)
    hourly = tumbling("1 hour", by="product", aggregates={"total": count()})

    def held(one: DataFrame, other: DataFrame) -> DataFrame:
        counted = one.transform(event_time("sold_at", "1 minute")).transform(hourly)
        return counted.transform(enrich(other.transform(event_time("since", "1 minute")), on="product"))

    def table(one: DataFrame, other: DataFrame) -> DataFrame:
        counted = other.transform(event_time("since", "1 minute")).transform(hourly)
        return one.transform(event_time("sold_at", "1 minute")).transform(enrich(counted, on="product"))

    def behind_a_join(one: DataFrame, other: DataFrame) -> DataFrame:
        sold = one.transform(event_time("sold_at", "1 minute"))
        met = stream_join(other.transform(event_time("since", "1 minute")), on="product", within="1 hour")
        return sold.transform(met).transform(tumbling("1 hour", aggregates={"n": count()}, early=True))

    for pipeline in (held, table, behind_a_join):
        with pytest.raises(UsageError, match="would take results of an operator before it for late"):
            driver.run(pipeline, sales, rates)


@proves("P9", "P10")
def test_a_changelog_that_tells_what_changes_come_to_is_refused_as_of_event_time(
    driver: PipelineDriver, spark: SparkSession
) -> None:
    """Versions that came and went within a micro-batch are not in it, and what is gone has the time when it came."""
    sales, rates = driver.input("sales", SALES), driver.input("rates", RATES)

    def changing(one: DataFrame, other: DataFrame, as_of: str = "event time") -> DataFrame:
        versions = other.transform(as_changelog(by=["product"], deleted="percent is null"))
        table = versions.transform(event_time("since", "1 minute"))
        return one.transform(event_time("sold_at", "1 minute")).transform(enrich(table, on="product", as_of=as_of))

    for run in (driver.run, driver.batch):
        with pytest.raises(UsageError, match="give enrich the upserts themselves"):
            run(changing, sales, rates)
    driver.run(lambda one, other: changing(one, other, "latest"), sales, rates).stop()
    told = spark.createDataFrame([], f"_op string, _seq bigint, {RATES}").transform(event_time("since", "1 minute"))
    sold = spark.createDataFrame([], SALES).transform(event_time("sold_at", "1 minute"))
    assert sold.transform(enrich(told, on="product")).columns[-1] == "since", "every change is there"


@proves("P9")
@pytest.mark.slow
def test_the_latest_is_what_the_table_is_when_a_row_comes(driver: PipelineDriver) -> None:
    sales, rates = driver.input("sales", SALES), driver.input("rates", RATES)
    run = driver.run(taxed(as_of="latest"), sales, rates)
    sales.add([("tea", 100, "10:00")])
    assert tuples(run.step(), "cents", "percent") == [(100, None)]
    rates.add([("tea", 7, "12:00")])
    sales.add([("tea", 101, "10:00")])
    assert tuples(run.step(), "cents", "percent") == [(101, 7)]
    rates.add([("tea", None, "12:00")])
    run.step()
    sales.add([("tea", 102, "10:00")])
    assert tuples(run.step(), "cents", "percent") == [(102, None)]


# --- table with table ------------------------------------------------------------------------------------------------


def table_of_people(people: DataFrame) -> DataFrame:
    return people.transform(as_changelog(by=["id"], order="offset", deleted="gone")).drop("gone")


def orders_with_names(how: str) -> Any:
    def pipeline(orders: DataFrame, people: DataFrame) -> DataFrame:
        table = orders.transform(as_changelog(by=["order"], order="place", deleted="removed")).drop("removed")
        return table.transform(join_tables(table_of_people(people), foreign_key={"customer": "id"}, how=how))

    return pipeline


@pytest.mark.full
@proves("P9")
@pytest.mark.parametrize("how", ["inner", "full"])
def test_a_join_of_tables_is_right_after_every_step_over_restarts_and_in_a_batch(
    driver: PipelineDriver, how: str
) -> None:
    orders, people = driver.input("orders", ORDERS, partitions=2), driver.input("people", PEOPLE)
    run = driver.run(orders_with_names(how), orders, people)
    table = Table(by=["order"] if how == "inner" else [])

    def now() -> set[tuple[Any, ...]]:
        table.apply(row.asDict() for row in run.step())
        return {(row["order"], row["name"]) for row in table.to_list()}

    people.add([("a", "Ada", False, 0), ("b", "Bob", False, 1)])
    orders.add([(1, "a", False, 0), (2, "c", False, 1)])
    alone = {(None, "Bob"), (2, None)} if how == "full" else set()
    assert now() == {(1, "Ada")} | alone
    orders.add([(1, "b", False, 2)])
    people.add([("b", "Bo", False, 2)])
    alone = {(None, "Ada"), (2, None)} if how == "full" else set()
    assert now() == {(1, "Bo")} | alone
    run.restart()
    orders.add([(1, None, False, 3), (3, "a", False, 0)], partition=1)
    people.add([("c", "Cy", False, 3), ("b", None, True, 4)])
    alone = {(1, None)} if how == "full" else set()
    assert now() == {(3, "Ada"), (2, "Cy")} | alone
    batch = Table()
    batch.apply(row.asDict() for row in run.batch())
    assert batch.rows == table.rows


@proves("P9")
@pytest.mark.slow
def test_upserts_are_one_row_a_key_and_micro_batch_also_for_one_that_moved(driver: PipelineDriver) -> None:
    orders, people = driver.input("orders", ORDERS), driver.input("people", PEOPLE)

    def pipeline(one: DataFrame, other: DataFrame) -> DataFrame:
        return orders_with_names("inner")(one, other).transform(as_upserts(by=["order"]))

    run = driver.run(pipeline, orders, people)
    people.add([("a", "Ada", False, 0), ("b", "Bob", False, 1)])
    orders.add([(1, "a", False, 0), (2, "a", False, 1)])
    run.step()
    orders.add([(1, "b", False, 2), (2, None, True, 3)])
    assert tuples(run.step(), "order", "name", DELETED) == [(1, "Bob", False), (2, "Ada", True)]


@proves("P9", "B1")
def test_the_latest_by_key_of_a_batch_is_the_table(driver: PipelineDriver) -> None:
    people = driver.input("people", PEOPLE)
    people.add([("a", "Ada", False, 0), ("b", "Bob", False, 1), ("a", "Ann", False, 2), ("b", None, True, 3)])
    rows = driver.batch(lambda frame: frame.transform(latest_by_key(["id"], order="offset", deleted="gone")), people)
    assert [tuple(row) for row in rows] == [("a", "Ann", False, 2)]
    assert tuples(driver.batch(table_of_people, people), "_op", "id", "name") == [("+I", "a", "Ann")]


@proves("P9", "B1")
@pytest.mark.slow
def test_a_row_without_an_order_is_the_first_of_its_key(spark: SparkSession) -> None:
    rows = [("a", 1, None), ("b", 2, None), ("b", 3, 7)]
    frame = spark.createDataFrame(rows, "id string, v int, n int").coalesce(1)
    assert tuples(frame.transform(latest_by_key(["id"], order="n")).collect(), "id", "v") == [("a", 1), ("b", 3)]
    assert tuples(frame.transform(as_changelog(by=["id"], order="n")).collect(), "id", "v") == [("a", 1), ("b", 3)]


@proves("P9", "B1")
@pytest.mark.slow
def test_a_key_of_one_column_may_be_given_as_its_name(spark: SparkSession) -> None:
    """As in windows and joins. Its letters were taken for columns."""
    frame = spark.createDataFrame([("a", 1, 1), ("a", 2, 2)], "id string, v int, n int").coalesce(1)
    changed = frame.transform(as_changelog("id", order="n"))
    table = Table(by="id")
    table.apply(changed.collect())
    assert table.to_list() == [{"id": "a", "v": 2}]
    for made in (frame.transform(latest_by_key("id", order="n")), changed.transform(as_upserts("id"))):
        assert tuples(made.collect(), "id", "v") == [("a", 2)]


@proves("P9", "B1")
@pytest.mark.slow
def test_times_within_one_second_are_an_order(spark: SparkSession) -> None:
    kinds = "id string, v int, at timestamp"
    rows = [("a", 1, datetime(2026, 1, 1, 10, 0, 0, 900_000)), ("a", 2, datetime(2026, 1, 1, 10, 0, 0, 100_000))]
    frame = spark.createDataFrame(rows, kinds).coalesce(1)
    assert tuples(frame.transform(as_changelog(by=["id"], order="at")).collect(), "id", "v") == [("a", 1)]
    left = spark.createDataFrame([("a", 7)], "id string, n int")
    found = left.transform(enrich(frame, on="id", as_of="latest", order="at")).collect()
    assert tuples(found, "id", "n", "v") == [("a", 7, 1)]
    days = frame.withColumn("day", F.date_sub(F.to_date("at"), F.col("v"))).drop("at")
    assert tuples(days.transform(as_changelog(by=["id"], order="day")).collect(), "id", "v") == [("a", 1)]


@proves("P9")
@pytest.mark.parametrize(
    "kind",
    ["double", *(pytest.param(one, marks=FULL) for one in OTHER_KINDS)],
)
@pytest.mark.slow
def test_an_order_that_would_be_cut_to_a_whole_number_is_refused(spark: SparkSession, kind: str) -> None:
    frame = spark.createDataFrame([], f"id string, at {kind}")
    reason = rf"order is 'at', which is of type {re.escape(kind)}; .* cast it to one"
    with pytest.raises(UsageError, match=reason):
        frame.transform(as_changelog(by=["id"], order="at"))
    with pytest.raises(UsageError, match=reason):
        frame.select("id").transform(enrich(frame, on="id", as_of="latest", order="at"))


@proves("P9")
@pytest.mark.parametrize(("one", "other"), [("int", "double"), ("date", "timestamp"), ("string", "int")])
@pytest.mark.slow
def test_keys_of_two_types_are_refused_and_meet_nothing_that_they_are_not(
    spark: SparkSession, one: str, other: str
) -> None:
    left = spark.createDataFrame([], f"_op string, _seq bigint, k {one}, a int")
    right = spark.createDataFrame([], f"_op string, _seq bigint, k {other}, b int")
    reason = f"'k' is of type {one} on the left, and 'k' of type {other} on the right; .* cast one"
    for refused in (
        lambda: left.transform(join_tables(right, on="k")),
        lambda: left.drop("_op", "_seq").transform(enrich(right, on="k", as_of="latest")),
    ):
        with pytest.raises(UsageError, match=reason):
            refused()


@proves("P9", "B1")
@pytest.mark.parametrize("kinds", [("int", "bigint"), pytest.param(("bigint", "int"), marks=FULL)])
@pytest.mark.slow
def test_whole_numbers_meet_in_the_wider_type(spark: SparkSession, kinds: tuple[str, str]) -> None:
    large = [7, 2**40 if kinds[1] == "bigint" else 8]
    lefts, rights = [("+I", 0, 7, 1), ("+I", 1, 9, 2)], [("+I", place, key, 5) for place, key in enumerate(large)]
    left = spark.createDataFrame(lefts, f"_op string, _seq bigint, k {kinds[0]}, a int")
    right = spark.createDataFrame(rights, f"_op string, _seq bigint, k {kinds[1]}, b int")
    joined = left.transform(join_tables(right, on="k", how="full"))
    assert joined.schema["k"].dataType.simpleString() == "bigint"
    assert tuples(joined.collect(), "k", "a", "b") == sorted([(7, 1, 5), (9, 2, None), (large[1], None, 5)], key=str)


# --- refusals --------------------------------------------------------------------------------------------------------


@proves("P9")
def test_what_does_not_fit_is_refused_when_it_is_declared(spark: SparkSession) -> None:
    sales, rates = spark.createDataFrame([], SALES), spark.createDataFrame([], RATES)
    timed = rates.transform(event_time("since", "1 minute"))
    stream = spark.readStream.format("rate").load()
    nested = spark.createDataFrame([], "_op string, _seq bigint, tags array<string>, product string")
    for refused, reason in (
        (lambda: enrich(rates, on="product", how="right"), "how is 'right'; it is one of 'left', 'inner'"),
        (lambda: sales.transform(enrich(timed, on="product")), "declare one first"),
        (lambda: sales.transform(enrich(stream, on="product")), "the left is a batch and the table a stream"),
        (
            lambda: sales.transform(enrich(timed, on="colour", as_of="latest")),
            "column 'colour' to join by does not exist",
        ),
        (lambda: sales.transform(enrich(sales, on="product", as_of="latest")), "both sides have a column 'cents'"),
        (lambda: nested.transform(enrich(rates, on="product", as_of="latest")), "use join_tables for two tables"),
        (lambda: sales.transform(join_tables(rates, on="product")), "join_tables takes a changelog"),
        (lambda: nested.transform(join_tables(nested, on="product")), "'tags' is of type array<string>"),
        (lambda: join_tables(nested), "either on=... or foreign_key=..."),
        (lambda: join_tables(nested, on="product", how="cross"), "how is 'cross'"),
        (lambda: stream_join(rates, on="product", within="1 month"), "a month has no fixed length"),
        (lambda: stream_join(rates, on="product", within="1 hour", how="cross"), "how is 'cross'"),
        (lambda: sales.transform(stream_join(nested, on="product", within="1 hour")), "takes plain rows"),
        (lambda: stream.transform(latest_by_key(["value"], order="timestamp")), "use as_changelog"),
    ):
        with pytest.raises(UsageError) as error:
            refused()
        assert reason in str(error.value)
