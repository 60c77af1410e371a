"""The two roads of a view's rows from Spark to its topic: netted and encoded by the driver, or by tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.app.driven import Driven, make_topic, produce
from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.errors import UsageError
from tidelog.pipelines.app import App
from tidelog.pipelines.envelopes import Netted, Source, net_changelog, net_rows, records_of
from tidelog.pipelines.faults import fault_of
from tidelog.pipelines.queries import Written, start_query
from tidelog.pipelines.view_texts import DRIVER, OFFSETS_MAX, STAGED, STATE_BYTES_MAX, road_of, texts_of
from tidelog.testing.broker import TestBroker

# Netting --------------------------------------------------------------------------------------------------------------

TAIL = Source("carts", 3, 7).tail(12)


@proves("eo.12")
def test_rows_become_one_envelope_a_key_and_a_deleted_one_is_followed_by_a_tombstone() -> None:
    changes = net_rows([('{"id":1}', '{"id":1,"of":"tea"}'), (None, "{}"), ('{"id":2}', None)])
    told = '"source":{"connector":"tidelog","name":"carts","generation":3,"batch":7},"ts_ms":12}'
    assert list(records_of(changes, TAIL, is_changelog=False)) == [
        ('{"id":1}', '{"before":null,"after":{"id":1,"of":"tea"},"op":"u",' + told),
        ('{"id":2}', '{"before":null,"after":null,"op":"d",' + told),
        ('{"id":2}', None),
    ]


@proves("eo.12")
def test_two_rows_of_one_key_are_refused_with_the_key() -> None:
    with pytest.raises(UsageError, match=r'two rows of one key .* give order= for the key \{"id":1\}'):
        net_rows([('{"id":1}', "{}"), ('{"id":1}', "{}")])


@proves("eo.12", "eo.13")
@pytest.mark.parametrize(
    ("rows", "net"),
    [
        ([("a", "+I", 1)], [Netted("k", None, "a")]),
        ([("b", "+U", 2), ("a", "-U", 1)], [Netted("k", "a", "b")]),
        ([("a", "-U", -1), ("b", "+U", 2), ("b", "-U", 3), ("c", "+U", 4)], [Netted("k", "a", "c")]),
        ([("a", "-U", 1), ("b", "+U", 2), ("b", "-D", 3)], [Netted("k", "a", None)]),
        ([("a", "-U", 1), ("a", "+U", 2)], []),
        ([("a", "+I", 1), ("a", "-D", 2)], []),
    ],
    ids=["new", "replaced", "twice", "gone", "the same", "came and went"],
)
def test_a_changelog_is_its_first_before_and_its_last_after(rows: list[Any], net: list[Netted]) -> None:
    assert net_changelog([("k", *row) for row in rows], ("id",)) == net
    assert net_changelog([(None, *row) for row in rows], ("id",)) == [], "what has no key is not a row of a view"


@proves("eo.12")
def test_a_changelog_with_another_key_or_another_op_is_refused() -> None:
    with pytest.raises(UsageError, match="id is not a key of this changelog: it has two rows at the same time for k"):
        net_changelog([("k", "a", "+I", 1), ("k", "b", "+I", 2)], ("id",))
    with pytest.raises(UsageError, match="it has two rows at the same time for k"):
        net_changelog([("k", "a", "-U", -2), ("k", "b", "-U", -1), ("k", "c", "+U", 1), ("k", "d", "+U", 2)], ("id",))
    with pytest.raises(UsageError, match=r"as _op; other for k"):
        net_changelog([("k", "a", "?", 1)], ("id",))


# Which road -----------------------------------------------------------------------------------------------------------


@proves("P1")
def test_the_road_is_chosen_by_the_offsets_to_be_read_and_by_state_that_may_come_out_at_once() -> None:
    assert road_of(OFFSETS_MAX, 3, None, is_bounded=True) == DRIVER
    assert road_of(OFFSETS_MAX + 1, 3, None, is_bounded=True) == STAGED
    assert road_of(0, 0, None, is_bounded=False) == DRIVER, "there is no state before the first micro-batch"
    assert road_of(0, 3, None, is_bounded=False) == STAGED, "how much state there is nobody knows yet"
    assert road_of(0, 3, STATE_BYTES_MAX, is_bounded=False) == DRIVER
    assert road_of(0, 3, STATE_BYTES_MAX + 1, is_bounded=False) == STAGED


# On Spark -------------------------------------------------------------------------------------------------------------

ORDERS = "id long, product string, price decimal(10,2), at timestamp"


def shop() -> App:
    """An aggregate, a table's changelog, and plain rows of which some are deleted."""
    app = App("shop")
    app.stream("orders", value=ORDERS)
    app.table("prices", key="product", value="product string, cents long")

    @app.view("revenue", key=("day", "product"), partitions=3)
    def revenue(orders: DataFrame) -> DataFrame:
        by = orders.groupBy(F.to_date("at").alias("on"), "product")
        return by.agg(F.sum("price").alias("price"), F.max("at").alias("last")).withColumnRenamed("on", "day")

    @app.view("priced", key="product", partitions=3)
    def priced(prices: DataFrame) -> DataFrame:
        return prices

    @app.view("newest", key="id", partitions=3)
    def newest(orders: DataFrame) -> DataFrame:
        return orders.withColumn("_deleted", F.col("product") == "gone")

    return app


STEPS = (
    (
        [
            {"id": 1, "product": 'tea \u2615 "x"', "price": 1.5, "at": "2026-01-01T10:00:00.000001Z"},
            {"id": 2, "product": "cup", "price": 2, "at": None},
            {"id": None, "product": None, "price": None, "at": None},
        ],
        [{"product": "tea", "cents": 1}, {"product": "cup", "cents": 2}, {"product": "tea", "cents": 3}],
    ),
    (
        [
            {"id": 3, "product": 'tea \u2615 "x"', "price": 0.25, "at": "2026-01-01T11:00:00Z"},
            {"id": 1, "product": "gone", "price": None, "at": "2026-01-02T10:00:00Z"},
        ],
        [{"product": "tea", "cents": 3}, {"product": "cup", "cents": None}, None],
    ),
)


def written(
    road: str, spark: SparkSession, broker: TestBroker, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """What the topics of the views have, and which roads were taken."""
    monkeypatch.setattr("tidelog.pipelines.queries.road_of", lambda *_, **__: road)
    taken: dict[str, list[str]] = {}
    with Cluster(broker.bootstrap) as cluster:
        make_topic(cluster, "orders")
        make_topic(cluster, "prices", partitions=1, configs={"cleanup.policy": "compact"})
        run = Driven(shop(), spark, cluster, broker.bootstrap, folder)
        for orders, prices in STEPS:
            produce(cluster, "orders", orders)
            produce(cluster, "prices", prices, key=["tea", "cup", "tea"])
            for name, target in run.targets.items():
                frame, seen = run.reader.result(target.node), Written()
                query = start_query(frame, target, run.settings.options, trigger={"availableNow": True}, written=seen)
                query.awaitTermination()
                taken[name] = taken.get(name, []) + list(seen.roads)
        return {name: _in_order(run, target.topic) for name, target in run.targets.items()}, taken


def _in_order(run: Driven, topic: str) -> dict[tuple[int, bytes | None], list[bytes | None]]:
    """By partition and key: there is no order between keys."""
    found: dict[tuple[int, bytes | None], list[bytes | None]] = {}
    for at, row in run.records(topic):
        found.setdefault((at.partition, row.key), []).append(row.value)
    return found


@pytest.mark.slow
@proves("P1", "eo.12", "eo.13")
def test_both_roads_give_the_same_bytes(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tail = Source.tail
    monkeypatch.setattr(Source, "tail", lambda self, _: tail(self, 12))
    found = {}
    for road in (DRIVER, STAGED):
        (tmp_path / road).mkdir()
        with TestBroker(tmp_path / road / "broker") as broker:
            found[road], taken = written(road, spark, broker, tmp_path / road, monkeypatch)
            assert {one for roads in taken.values() for one in roads} == {road}
    assert found[DRIVER] == found[STAGED]
    tea = b'{"product":"tea"}'
    (values,) = [those for (_, key), those in found[DRIVER]["priced"].items() if key == tea]
    assert [None if one is None else one[:60] for one in values][-1] is None, "the last is a tombstone"
    assert sum(map(len, found[DRIVER]["revenue"].values())) == 3
    assert sum(map(len, found[DRIVER]["newest"].values())) == 5


@pytest.mark.slow
@proves("P1", "eo.12")
def test_of_two_rows_of_one_key_the_one_that_was_read_later_counts_on_either_road(
    spark: SparkSession, tidelog_broker: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App("shop")
    app.stream("orders", value="id long, amount long")
    app.view("latest", key="id")(lambda orders: orders.where("amount < 9"))
    with Cluster(tidelog_broker.bootstrap) as cluster:
        make_topic(cluster, "orders", 1)
        run = Driven(app, spark, cluster, tidelog_broker.bootstrap, tmp_path)
        for road, amounts in ((DRIVER, (3, 8, 2, 9)), (STAGED, (7, 1, 5, 9))):
            monkeypatch.setattr("tidelog.pipelines.queries.road_of", lambda *_, road=road, **__: road)
            produce(cluster, "orders", [{"id": 1, "amount": one} for one in amounts])
            run.step()
            assert run.view("latest") == {(1,): {"id": 1, "amount": amounts[-2]}}
        assert run.batch("latest") == run.view("latest")


@pytest.mark.full
@proves("P1", "eo.12")
def test_a_changelog_whose_order_is_a_short_number_is_written_all_the_same(
    spark: SparkSession, tidelog_broker: TestBroker, tmp_path: Path
) -> None:
    app = App("shop")
    app.stream("orders", value="id long")
    app.view("all", key="id")(lambda orders: orders.selectExpr("'+I' as _op", "cast(id as int) as _seq", "id"))
    with Cluster(tidelog_broker.bootstrap) as cluster:
        make_topic(cluster, "orders")
        produce(cluster, "orders", [{"id": 1}, {"id": 2}])
        run = Driven(app, spark, cluster, tidelog_broker.bootstrap, tmp_path)
        run.step()
        assert run.view("all") == {(1,): {"id": 1}, (2,): {"id": 2}}


@pytest.mark.full
@proves("P1")
@pytest.mark.parametrize("road", [DRIVER, STAGED])
def test_no_class_is_compiled_anew_in_a_micro_batch(
    spark: SparkSession, tidelog_broker: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, road: str
) -> None:
    """A number of the micro-batch in its plan, as its time or its batch, would make new ones each time."""
    monkeypatch.setattr("tidelog.pipelines.queries.road_of", lambda *_, **__: road)
    jvm: Any = spark.sparkContext._jvm
    compiled = jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME().getCount
    app = App("shop")
    app.stream("orders", value="id long, product string")
    app.view("sold", key="product")(lambda orders: orders.groupBy("product").count())
    app.table("prices", key="product", value="product string, cents long")
    app.view("priced", key="product")(lambda prices: prices)
    with Cluster(tidelog_broker.bootstrap) as cluster:
        make_topic(cluster, "orders")
        make_topic(cluster, "prices", partitions=1, configs={"cleanup.policy": "compact"})
        run = Driven(app, spark, cluster, tidelog_broker.bootstrap, tmp_path)
        counts = []
        for step in range(6):
            produce(cluster, "orders", [{"id": step, "product": f"{one}"} for one in range(step, step + 3)])
            produce(cluster, "prices", [{"product": "tea", "cents": step}], key=["tea"])
            run.step()
            counts.append(int(compiled()))
        assert run.view("sold") == run.batch("sold")
    assert counts[2] == counts[-1], f"compiled by the end of each step: {counts}"


@proves("P1")
@pytest.mark.slow
def test_two_rows_of_one_key_are_refused_on_either_road(
    spark: SparkSession, tidelog_broker: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App("shop")
    app.stream("orders", value="id long")
    app.view("all", key="id")(lambda orders: orders.repartition(2))
    monkeypatch.setattr("tidelog.pipelines.analysing.check_settled", lambda *_, **__: None)  # it was built before that
    with Cluster(tidelog_broker.bootstrap) as cluster:
        make_topic(cluster, "orders")
        produce(cluster, "orders", [{"id": 1}, {"id": 1}])
        run = Driven(app, spark, cluster, tidelog_broker.bootstrap, tmp_path)
        for road in (DRIVER, STAGED):
            monkeypatch.setattr("tidelog.pipelines.queries.road_of", lambda *_, road=road, **__: road)
            with pytest.raises(Exception, match=r'two rows of one key .* \{"id":1\}') as failed:
                run.step()
            assert fault_of(failed.value, str(failed.value), "shop.py").final
        assert run.records(run.targets["all"].topic) == []


@proves("P1")
def test_which_views_are_made_texts_in_the_plan(
    spark: SparkSession, tidelog_broker: TestBroker, tmp_path: Path
) -> None:
    app = App("shop")
    app.stream("orders", value="id long, product string, price double, at timestamp")
    made = {
        "by_product": ("product", lambda orders: orders.groupBy("product").count()),
        "by_both": ("product", lambda orders: orders.groupBy("product", "id").count()),
        "by_length": ("size", lambda orders: orders.groupBy(F.length("product").alias("size")).count()),
        "computed": ("p", lambda orders: orders.groupBy("product").count().withColumn("p", F.upper("product"))),
        "plain": ("id", lambda orders: orders),
    }
    for name, (key, function) in made.items():
        app.view(name, key=key)(function)
    app.view("ordered", key="id", order="at")(lambda orders: orders)
    with Cluster(tidelog_broker.bootstrap) as cluster:
        make_topic(cluster, "orders")
        run = Driven(app, spark, cluster, tidelog_broker.bootstrap, tmp_path)
        found = {name: texts_of(run.reader.result(one.node), one) for name, one in run.targets.items()}
    assert {name for name, one in found.items() if one is not None} == {"by_product", "by_length", "plain"}
    assert all(one.is_bounded for one in found.values() if one is not None)
    assert len(run.reader.loaded) == 1, "all views read one topic, and its source is looked up once"
