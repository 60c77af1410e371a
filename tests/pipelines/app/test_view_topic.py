"""A view's topic, on Spark: one envelope a key and micro-batch, and its fold is the batch query, after every one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.app.driven import Driven, make_topic, produce
from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.control.marks import read_mark
from tidelog.errors import LostCheckpoint, UsageError, ViewChanged
from tidelog.pipelines.app import App
from tidelog.pipelines.envelopes import Source
from tidelog.pipelines.faults import fault_of
from tidelog.pipelines.operators.joins.join_tables import join_tables
from tidelog.pipelines.view_topic import ROWS, envelopes
from tidelog.record.columns import Row as Record
from tidelog.schema.declaration import declare
from tidelog.testing.broker import TestBroker
from tidelog.views.changes import changes_of

FULL = pytest.mark.full
ORDERS = "id long, product string, amount double"


def orders(*products: str, start: int = 0) -> list[dict[str, Any]]:
    return [{"id": start + n, "product": one, "amount": 1.5 * (start + n)} for n, one in enumerate(products)]


@pytest.fixture
def ours(tidelog_broker: TestBroker) -> Any:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        yield cluster


def driven(app: App, spark: SparkSession, cluster: Cluster, broker: TestBroker, folder: Path) -> Driven:
    return Driven(app, spark, cluster, broker.bootstrap, folder)


def revenue_app() -> App:
    app = App("shop")
    app.stream("orders", value=ORDERS)

    @app.view("revenue", key="product")
    def revenue(orders: DataFrame) -> DataFrame:
        return orders.groupBy("product").agg(F.sum("amount").alias("revenue"), F.count("*").alias("orders"))

    return app


@proves("P1", "eo.12", "eo.1")
def test_a_native_aggregate_folds_to_the_batch_query_after_every_step(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    make_topic(ours, "orders")
    run = driven(revenue_app(), spark, ours, tidelog_broker, tmp_path)
    for step in (orders("tea", "cup", "tea"), orders("tea", start=3), orders("pot", "cup", start=4)):
        produce(ours, "orders", step)
        run.step()
        assert run.view("revenue") == run.batch("revenue")
    told = run.envelopes("revenue")
    assert len(told) == 5, "one envelope for each key of each micro-batch"
    assert {(one["before"], one["op"]) for one in told} == {(None, "u")}
    assert told[0]["source"] | {"batch": 0} == {"connector": "tidelog", "name": "revenue", "generation": 1, "batch": 0}
    mark = read_mark(ours, "revenue.v1")
    places = [TopicPartition("revenue.v1", 0), TopicPartition("revenue.v1", 1)]
    ends = list_offsets(ours, dict.fromkeys(places, LATEST))
    # A commit's marker lies behind the last record of a partition that it wrote to.
    assert (
        mark is not None
        and mark.generation == 1
        and all(mark.ends[at] <= ends[at].offset <= mark.ends[at] + 1 for at in places)
    )


@pytest.mark.full
@proves("P1", "P3")
def test_a_restart_that_forgot_its_commit_writes_nothing_twice_and_a_lost_checkpoint_is_refused(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    make_topic(ours, "orders")
    run = driven(revenue_app(), spark, ours, tidelog_broker, tmp_path)
    produce(ours, "orders", orders("tea", "cup"))
    run.step()
    before = run.envelopes("revenue")
    run.forget_commits("revenue")
    run.step()
    assert run.envelopes("revenue") == before
    other = driven(revenue_app(), spark, ours, tidelog_broker, tmp_path / "elsewhere")
    with pytest.raises(LostCheckpoint, match=r"its checkpoint in .*elsewhere.* was lost, or belongs to another query"):
        other.step()


@pytest.mark.full
@proves("eo.12", "eo.13", "P1")
def test_a_changelog_tells_before_and_after_once_a_key_and_ends_keys_by_tombstones(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    app = App("people")
    app.table("users", key="user", value="user string, city string")
    app.table("cities", key="city", value="city string, country string")

    @app.view("homes", key="user")
    def homes(users: DataFrame, cities: DataFrame) -> DataFrame:
        return users.transform(join_tables(cities, on="city", how="left"))

    make_topic(ours, "users")
    make_topic(ours, "cities")
    run = driven(app, spark, ours, tidelog_broker, tmp_path)
    produce(ours, "cities", [{"city": "Oslo", "country": "no"}], key=["Oslo"])
    produce(ours, "users", [{"user": "ada", "city": "Oslo"}, {"user": "bob", "city": "Rome"}], key=["ada", "bob"])
    run.step()
    assert run.view("homes") == run.batch("homes")
    known = {(at, row.offset) for at, row in run.records("homes.v1")}
    produce(ours, "users", [{"user": "ada", "city": "Rome"}, None], key=["ada", "bob"])
    run.step()
    assert run.view("homes") == run.batch("homes") == {("ada",): {"user": "ada", "city": "Rome", "country": None}}
    news = [row.value for at, row in run.records("homes.v1") if (at, row.offset) not in known]
    told = [json.loads(value) if value is not None else {} for value in news]
    assert sorted(one.get("op", "tombstone") for one in told) == ["d", "tombstone", "u"]
    (changed,) = [one for one in told if one.get("op") == "u"]
    assert changed["before"] == {"user": "ada", "city": "Oslo", "country": "no"}
    rows = [(at, row) for at, row in run.records("homes.v1") if row.key == b'{"user":"bob"}']
    assert [row.value is None for _, row in rows[-2:]] == [False, True], "the envelope, then the tombstone"
    assert len({at for at, _ in rows}) == 1


@proves("eo.12")
@pytest.mark.slow
def test_plain_rows_are_upserts_and_deleted_ones_end_their_key(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    app = App("plain")
    app.stream("carts", value="cart string, items long, gone boolean, at long")

    @app.view("carts-now", key="cart", order="at")
    def carts_now(carts: DataFrame) -> DataFrame:
        return carts.withColumnRenamed("gone", "_deleted")

    make_topic(ours, "carts", partitions=1)
    run = driven(app, spark, ours, tidelog_broker, tmp_path)
    rows = [("a", 1, 1), ("b", 1, 2), ("a", 3, 4), ("a", 2, 3), ("b", 2, 2)]
    produce(ours, "carts", [{"cart": cart, "items": n, "gone": False, "at": at} for cart, n, at in rows])
    run.step()
    assert {key: row["items"] for key, row in run.view("carts-now").items()} == {("a",): 3, ("b",): 2}
    produce(ours, "carts", [{"cart": "b", "items": 0, "gone": True, "at": 9}])
    run.step()
    assert {key: row["items"] for key, row in run.view("carts-now").items()} == {("a",): 3}
    produce(ours, "carts", [{"cart": None, "items": 1, "gone": False, "at": 10}])
    run.step()
    assert len(run.view("carts-now")) == 1, "a row without a key is no row of a view"


@contextmanager
def spilling(spark: SparkSession, rows: int) -> Iterator[None]:
    """Sorts write to disk what they have after so many rows. It is a setting of the launch, which tasks look up."""
    settings: Any = spark.sparkContext._jsc.sc().conf()
    name = "spark.shuffle.spill.numElementsForceSpillThreshold"
    settings.set(name, str(rows))
    try:
        yield
    finally:
        settings.remove(name)


@proves("eo.12")
@pytest.mark.slow
def test_of_rows_with_the_same_order_the_one_that_was_read_later_wins(spark: SparkSession) -> None:
    """Also where a sort of Spark's spills, which then gives rows of one key in any order."""
    declared = declare({"cart": "string", "items": "long", "at": "long"}, ("cart",))
    rows = spark.range(0, 4000, 1, 4).selectExpr("cast(id % 5 as string) as cart", "id as items", "id div 2000 as at")
    with spilling(spark, 50):
        found = envelopes(rows, ROWS, declared, "at", Source("carts-now", 1, 0)).collect()
    told = {json.loads(one.key)["cart"]: json.loads(one.value)["after"]["items"] for one in found}
    assert told == {f"{n}": 3995 + n for n in range(5)}


@proves("eo.12")
@pytest.mark.full
def test_a_changelog_with_two_rows_of_one_key_at_once_is_refused(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    app = App("wrong")
    app.table("users", key="user", value="user string, city string")
    app.view("by-city", key="city")(lambda users: users)
    make_topic(ours, "users")
    run = driven(app, spark, ours, tidelog_broker, tmp_path)
    produce(ours, "users", [{"user": "ada", "city": "Rome"}, {"user": "bob", "city": "Rome"}], key=["ada", "bob"])
    with pytest.raises(Exception, match="city is not a key of this changelog"):
        run.step()


@proves("eo.12")
@pytest.mark.slow
def test_every_type_is_told_as_appliers_read_it(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    app = App("types")
    app.stream("orders", value=ORDERS)

    @app.view("all", key=("id", "day"))
    def every(orders: DataFrame) -> DataFrame:
        return orders.selectExpr(
            "id", "date'2026-01-31' as day", "cast(id as tinyint) as small", "cast('NaN' as double) as nan",
            "cast(0.5 as float) as half", "cast(12.50 as decimal(10,2)) as price", "cast('é' as string) as text",
            "cast('ab' as binary) as bytes", "timestamp'2026-01-31 23:59:59.000001Z' as at", "true as yes",
            "named_struct('a', 1, 'b', array(1, null)) as nested", "map('k', 2) as pairs", "cast(null as long) as none",
        )  # fmt: skip

    make_topic(ours, "orders")
    run = driven(app, spark, ours, tidelog_broker, tmp_path)
    produce(ours, "orders", orders("tea"))
    run.step()
    (row,) = run.view("all").values()
    assert row.pop("nan") != row
    assert row == {
        "id": 0,
        "day": date(2026, 1, 31),
        "small": 0,
        "half": 0.5,
        "price": Decimal("12.50"),
        "text": "é",
        "bytes": b"ab",
        "at": datetime(2026, 1, 31, 23, 59, 59, 1, tzinfo=UTC),
        "yes": True,
        "nested": {"a": 1, "b": [1, None]},
        "pairs": {"k": 2},
        "none": None,
    }
    (record,) = [row for _, row in run.records("all.v1")]
    assert record.key == b'{"id":0,"day":"2026-01-31"}'


@pytest.mark.full
@proves("P1", "eo.13")
def test_derived_topics_have_rows_upserts_and_tombstones_and_are_read_by_others(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    app = App("chain")
    app.stream("orders", value=ORDERS)
    app.table("users", key="user", value="user string, city string")
    app.topic("big-orders", key="id")(lambda orders: orders.where("amount > 1"))
    app.topic("romans", key="user")(lambda users: users.where("city = 'Rome'"))
    app.view("roman-count", key="city", mode="append")(lambda romans: romans.selectExpr("_op", "_seq", "city", "user"))
    app.view("big", key="id")(lambda big_orders: big_orders)
    make_topic(ours, "orders")
    make_topic(ours, "users")
    run = driven(app, spark, ours, tidelog_broker, tmp_path)
    produce(ours, "orders", orders("tea", "cup", "pot"))
    produce(ours, "users", [{"user": "ada", "city": "Rome"}], key=["ada"])
    run.step()
    rows = [json.loads(row.value or b"") for _, row in run.records("big-orders")]
    assert sorted(row["id"] for row in rows) == [1, 2]
    assert {row.key for _, row in run.records("big-orders")} == {b"1", b"2"}
    assert run.view("big") == run.batch("big")
    assert run.view("roman-count") == {("Rome",): {"city": "Rome", "user": "ada"}} == run.batch("roman-count")
    produce(ours, "users", [{"user": "ada", "city": "Oslo"}], key=["ada"])
    run.step()
    assert [row.value is None for _, row in run.records("romans")] == [False, True]
    assert run.view("roman-count") == run.batch("roman-count") == {}


@proves("eo.26", "P1")
@pytest.mark.slow
def test_a_changed_declaration_is_refused_and_names_rebuild_but_columns_may_be_added(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    def with_columns(*columns: str, key: str = "id") -> Driven:
        app = App("shop")
        app.stream("orders", value=ORDERS)
        app.view("all", key=key)(lambda orders: orders.select(*columns))
        return driven(app, spark, ours, tidelog_broker, tmp_path)

    make_topic(ours, "orders")
    assert with_columns("id", "product").targets["all"].generation == 1
    assert with_columns("id", "product").targets["all"].generation == 1
    for changed in (with_columns("id"), with_columns("id", "product", key="product"), with_columns("id", "amount")):
        with pytest.raises(ViewChanged, match=r"test_view_topic.py:\d+: .*`tidelog rebuild all --app FILE`"):
            assert changed.targets
    wider = with_columns("id", "product", "amount")
    with pytest.raises(ViewChanged, match=r"new columns \(amount\).* --grown all"):
        assert wider.targets
    wider.settings = replace(wider.settings, grown=("all",))
    grown = wider.targets["all"]
    assert grown.generation == 1 and grown.declared is not None and len(grown.declared.columns) == 3


@proves("eo.26", "P1")
@pytest.mark.slow
def test_a_query_with_state_takes_no_new_columns(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    def with_sums(*sums: str) -> Driven:
        app = App("shop")
        app.stream("orders", value=ORDERS)
        aggregates = [F.sum("amount").alias(name) for name in sums]
        app.view("sums", key="product")(lambda orders: orders.groupBy("product").agg(*aggregates))
        made = driven(app, spark, ours, tidelog_broker, tmp_path)
        made.settings = replace(made.settings, grown=("sums",))
        return made

    make_topic(ours, "orders")
    assert with_sums("total").targets["sums"].generation == 1
    with pytest.raises(ViewChanged, match=r"new columns \(more\), and its query keeps state.*--app FILE"):
        assert with_sums("total", "more").targets


@proves("P1")
def test_mistakes_that_spark_finds_name_the_users_line(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    def refused(make: Any, **options: Any) -> str:
        app = App("shop")
        app.stream("orders", value=ORDERS)
        app.view("all", **{"key": "id", **options})(make)
        with pytest.raises(UsageError) as raised:
            assert driven(app, spark, ours, tidelog_broker, tmp_path).targets
        return str(raised.value)

    make_topic(ours, "orders")
    here = Path(__file__).name
    unknown = refused(lambda orders: orders.select("nothing"))
    assert unknown.startswith(here) and ": view 'all': A column, variable, or function parameter" in unknown
    assert "SQLSTATE" not in unknown and "UNRESOLVED" not in unknown
    assert "returns None, not a DataFrame; does it end without `return`?" in refused(lambda orders: None)
    assert "has no column 'id'" in refused(lambda orders: orders.select("product"))
    assert "a key has" in refused(lambda orders: orders, key="amount")
    assert "is not a stream" in refused(lambda orders: orders.sparkSession.range(1))


@proves("P1")
def test_a_topic_that_is_not_there_is_named_and_never_made(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"reads topic 'orders', which is not there; .*tidelog topics create orders"):
        assert driven(revenue_app(), spark, ours, tidelog_broker, tmp_path).targets


@proves("eo.12")
@pytest.mark.slow
def test_a_row_whose_order_is_null_is_a_row_and_comes_before_others_of_its_key(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [("a", None, 1), ("b", None, 1), ("b", 5, 2), ("c", 7, 2), ("c", 6, 1)], "k string, at long, n long"
    )
    declared = declare({"k": "string", "at": "long", "n": "long"}, ("k",))
    told = envelopes(rows, ROWS, declared, "at", Source("v", 1, 0)).collect()
    afters = {one["k"]: one["n"] for one in (json.loads(row.value)["after"] for row in told)}
    assert (len(told), afters) == (3, {"a": 1, "b": 2, "c": 2})


@proves("eo.12", "F2")
@pytest.mark.slow
def test_decimals_within_others_lose_no_digit(spark: SparkSession) -> None:
    exact = "12345678901234567890.123456789"
    rows = spark.sql(
        f"select 'a' k, named_struct('price', cast('{exact}' as decimal(38, 9)), 'n', 1) one,"
        f" array(cast('{exact}' as decimal(38, 9))) several, map('x', cast('{exact}' as decimal(38, 9))) by"
    )
    declared = declare({"k": "string", "one": "json", "several": "json", "by": "json"}, ("k",))
    (told,) = envelopes(rows, ROWS, declared, None, Source("v", 1, 0)).collect()
    after = json.loads(told.value)["after"]
    assert after == {"k": "a", "one": {"price": exact, "n": 1}, "several": [exact], "by": {"x": exact}}


@proves("eo.12", "P3")
@pytest.mark.parametrize("kind", ["timestamp", *(pytest.param(one, marks=FULL) for one in ("date", "timestamp_ntz"))])
@pytest.mark.parametrize(
    "at", ["+10000-01-01", "0000-12-31", *(pytest.param(one, marks=FULL) for one in ("-0044-03-15", "+290000-01-01"))]
)
@pytest.mark.slow
def test_a_time_that_no_store_can_tell_fails_its_micro_batch_and_is_named(
    spark: SparkSession, kind: str, at: str
) -> None:
    rows = spark.sql(f"select 'a' k, cast('{at}' as {kind}) at union all select 'b', cast('2026-01-01' as {kind})")
    assert rows.where("at is not null").count() == 2, "Spark has such times"
    declared = declare({"k": "string", "at": "date" if kind == "date" else "timestamp"}, ("k",))
    with pytest.raises(Exception, match="'at' is not of the years 1 to 9999") as refused:
        envelopes(rows, ROWS, declared, None, Source("v", 1, 0)).collect()
    assert '{"k":"a"}' in str(refused.value)
    assert fault_of(refused.value, str(refused.value), "").final, "no other try would go better"


@proves("eo.12", "P3")
@pytest.mark.parametrize("at", ["0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"])
@pytest.mark.slow
def test_the_first_and_the_last_time_are_told(spark: SparkSession, at: str) -> None:
    rows = spark.sql(
        f"select 'a' k, timestamp_ltz'{at}Z' zoned, timestamp_ntz'{at}' plain, cast('{at}' as date) day,"
        " cast(null as timestamp) none"
    )
    kinds = {"k": "string", "zoned": "timestamp", "plain": "timestamp", "day": "date", "none": "timestamp"}
    declared = declare(kinds, ("k",))
    (told,) = envelopes(rows, ROWS, declared, None, Source("v", 1, 0)).collect()
    (change,) = changes_of(declared, TopicPartition("v", 0), [Record(0, 0, told.key.encode(), told.value.encode(), ())])
    expected = datetime.fromisoformat(at).replace(tzinfo=UTC)
    assert change.after == {"k": "a", "zoned": expected, "plain": expected, "day": expected.date(), "none": None}
