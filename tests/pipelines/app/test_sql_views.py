"""Views in SQL: declared, refused and told by the line, fingerprinted, driven, rebuilt and run as functions are."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from pipelines.app.driven import Driven, make_topic, produce
from pipelines.app.run_in_thread import rebuilt
from proving import proves
from tidelog.cli.debug import debug
from tidelog.client.cluster import Cluster
from tidelog.errors import UsageError, ViewChanged
from tidelog.pipelines.app import App
from tidelog.pipelines.debugging import find
from tidelog.pipelines.fingerprints import fingerprint
from tidelog.pipelines.graph import as_text, graph_of
from tidelog.testing.broker import TestBroker
from tidelog.testing.pipeline import PipelineDriver
from tidelog.testing.pipeline_app import AppRun

HERE = Path(__file__).name
ORDERS = "id long, product string, amount double, at timestamp"


@pytest.fixture
def ours(tidelog_broker: TestBroker) -> Iterator[Cluster]:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        yield cluster


def shop(sql: str) -> App:
    app = App("shop")
    app.stream("orders", value=ORDERS)
    app.table("prices", key="product", value="product string, price double")

    @app.topic("big-orders")
    def big_orders(orders: DataFrame) -> DataFrame:
        return orders.where("amount > 2")

    @app.topic("totals", key="product")
    def totals(orders: DataFrame) -> DataFrame:
        return orders.groupBy("product").count()

    app.view("revenue", key="product", sql=sql)
    return app


REVENUE = "SELECT product, sum(amount) AS revenue FROM orders GROUP BY product"


# Without Spark --------------------------------------------------------------------------------------------------------


@proves("P1")
def test_the_plan_of_a_view_in_sql_is_that_of_a_function() -> None:
    graph = graph_of(shop("SELECT product, sum(amount) AS n FROM `big-orders` b JOIN orders USING (id) GROUP BY 1"))
    node = graph.node("revenue")
    assert [one.name for one in node.reads] == ["big-orders", "orders"]
    assert [one.name for one in graph.nodes].index("big-orders") < [one.name for one in graph.nodes].index("revenue")
    assert "reads big-orders, orders by SQL" in as_text(graph)


@proves("P1")
@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT * FROM oders", "reads 'oders', which is not declared; did you mean 'orders'?"),
        ("SELECT * FROM prices", "reads table 'prices', which has changes: SQL has no word for a row that is taken"),
        ("SELECT * FROM questions", "reads 'questions', which is not declared"),
        ("SELECT 1 AS product", "reads nothing; name a stream"),
        ("DROP TABLE orders", "its SQL has 'DROP' in it, and is one query: SELECT ..."),
        ("SELECT 1; SELECT 2", "its SQL has ';' in it, and is one query"),
        ("", "its SQL has nothing in it"),
        ("SELECT * FROM `a b`", "'a b' is not a name that an app can have"),
    ],
)
def test_what_a_view_in_sql_cannot_read_is_refused_with_what_to_write(sql: str, reason: str) -> None:
    with pytest.raises(UsageError) as refused:
        graph_of(shop(sql))
    assert reason in str(refused.value)
    assert str(refused.value).startswith(HERE)


@proves("P1")
def test_a_refusal_names_the_line_of_the_file_where_the_sql_says_it() -> None:
    app = App("shop")
    app.stream("orders", value=ORDERS)
    app.view(
        "revenue",
        key="product",
        sql="""
        SELECT product
        FROM oders
        """,
    )
    line = next(n for n, text in enumerate(Path(__file__).read_text().split("\n"), 1) if text == "        FROM oders")
    with pytest.raises(UsageError, match=f"^{HERE}:{line}: view 'revenue' reads 'oders', which is not declared"):
        graph_of(app)
    other = shop("SELECT product\nFROM oders")
    with pytest.raises(UsageError, match=rf"^{HERE}:\d+, line 2 of its SQL: view 'revenue' reads 'oders'"):
        graph_of(other)


@proves("P1", "P8")
def test_the_fingerprint_is_of_the_words() -> None:
    def of(sql: str) -> str:
        node = graph_of(shop(sql)).node("revenue")
        return fingerprint(node.output, list(node.reads))

    assert of(REVENUE) == of(REVENUE.replace(" FROM", "\n  -- all of them\n  FROM"))
    assert (
        len({of(REVENUE), of(REVENUE.replace("sum", "max")), of(REVENUE.replace("FROM orders", "FROM big_orders"))})
        == 3
    )


# On Spark -------------------------------------------------------------------------------------------------------------


@proves("P1")
@pytest.mark.slow
def test_errors_of_spark_name_the_line(tidelog_pipeline: PipelineDriver, tmp_path: Path) -> None:
    file = tmp_path / "shop_in_sql.py"
    file.write_text(
        "from tidelog import App\n"
        "app = App('shop')\n"
        f"app.stream('orders', value='{ORDERS}')\n"
        "app.view('unknown', key='product', sql='''SELECT product,\n"
        "       sum(amuont) AS revenue\n"
        "FROM orders GROUP BY product''')\n"
        "app.view('wrong', key='product', sql='''SELECT product\n"
        "FROM orders\n"
        "GRUOP BY product''')\n"
    )
    with pytest.raises(UsageError, match=r"^shop_in_sql.py:5: view 'unknown': .*`amuont` cannot be resolved"):
        AppRun(tidelog_pipeline, file, "unknown")
    with pytest.raises(UsageError, match=r"^shop_in_sql.py:9: view 'wrong': Syntax error at or near 'BY'"):
        AppRun(tidelog_pipeline, file, "wrong")


@proves("P1")
@pytest.mark.slow
def test_the_driver_and_a_batch_run_it_as_a_function(tidelog_pipeline: PipelineDriver, spark: SparkSession) -> None:
    app = shop(f"WITH orders AS (SELECT product, amount FROM orders) {REVENUE}")  # a name within what it declares
    run = AppRun(tidelog_pipeline, app, "revenue")
    run.add("orders", '{"id": 1, "product": "tea", "amount": 2.5}')
    run.add("orders", '{"id": 2, "product": "cup", "amount": 1.0}')
    assert sorted(run.step(), key=str) == [{"product": "cup", "revenue": 1.0}, {"product": "tea", "revenue": 2.5}]
    run.add("orders", '{"id": 3, "product": "tea", "amount": 1.5}')
    assert run.step() == [{"product": "tea", "revenue": 4.0}]
    query: Any = app.outputs["revenue"].function
    batch = query(orders=spark.createDataFrame([("tea", 1.0), ("tea", 2.0)], "product string, amount double"))
    assert [tuple(row) for row in batch.collect()] == [("tea", 3.0)]
    assert "orders" not in [one.name for one in spark.catalog.listTables()], "nothing of the session's is replaced"


@proves("P1")
@pytest.mark.slow
def test_a_topic_whose_rows_replace_each_other_is_refused_when_spark_knows_it(tidelog_pipeline: PipelineDriver) -> None:
    with pytest.raises(UsageError, match=rf"^{HERE}:\d+, line 1 of its SQL: view 'revenue': 'totals' has changes"):
        AppRun(tidelog_pipeline, shop("SELECT product, count FROM totals"), "revenue")


@proves("P1", "eo.14")
@pytest.mark.full
def test_a_view_in_sql_over_a_plain_derived_topic_is_run_and_goes_on(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    make_topic(ours, "orders", 2)
    sql = "SELECT product, sum(amount) AS revenue, count(*) AS orders FROM `big-orders` GROUP BY product"
    run = Driven(shop(sql), spark, ours, tidelog_broker.bootstrap, tmp_path)
    for amount in (1, 3, 5):
        produce(ours, "orders", [{"id": n, "product": f"p{n % 3}", "amount": amount} for n in range(9)])
        run.step("big-orders", "revenue")
    assert {key[0]: (row["revenue"], row["orders"]) for key, row in run.view("revenue").items()} == {
        f"p{n}": (24.0, 6) for n in range(3)
    }
    assert run.view("revenue") == run.batch("revenue")


@proves("P1", "eo.24")
@pytest.mark.full
def test_a_changed_query_is_told_rebuilt_and_debugged_as_a_function_is(
    spark: SparkSession,
    tidelog_broker: TestBroker,
    ours: Cluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_topic(ours, "orders", 1)
    produce(ours, "orders", [{"id": n, "product": "tea", "amount": n} for n in range(1, 4)])
    Driven(shop(REVENUE), spark, ours, tidelog_broker.bootstrap, tmp_path).step("revenue")
    highest = shop(REVENUE.replace("sum", "max"))
    run = Driven(highest, spark, ours, tidelog_broker.bootstrap, tmp_path)
    with pytest.raises(ViewChanged, match="changed: its SQL"):
        run.step("revenue")
    rebuilt(run, "revenue")
    after = Driven(highest, spark, ours, tidelog_broker.bootstrap, tmp_path)
    assert after.targets["revenue"].topic == "revenue.v2"
    assert {key[0]: row["revenue"] for key, row in after.view("revenue").items()} == {"tea": 3.0}

    case = find(ours, after.graph, "revenue", 0, after.settings.checkpoints)
    given = {"app": "shop.py", "stop": False, "export": None, "json": True, "limit": 20}
    assert debug(case, after.reader, Namespace(**given)) == 0
    assert '"revenue": 3.0' in capsys.readouterr().out
