"""An app's captured table over a topic that a real Debezium connector wrote, with schemas in records and without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from against.apache_kafka import Missing
from against.brokers import BROKER_SETTINGS
from against.connect_worker import ConnectWorker
from against.patience import eventually
from against.test_kafka_connect import Database, all_of, captured, database
from against.tidelog_process import TidelogProcess
from pipelines.app.driven import Driven
from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.pipelines.app import App

__all__ = ["database"]

pytestmark = [pytest.mark.external, pytest.mark.full]


@pytest.fixture
def process(tmp_path: Path) -> Iterator[TidelogProcess]:
    started = TidelogProcess(tmp_path / "broker", dict(BROKER_SETTINGS)).start()
    yield started
    started.stop()


@pytest.fixture
def worker(process: TidelogProcess, tmp_path: Path) -> Iterator[ConnectWorker]:
    try:
        started = ConnectWorker(tmp_path / "worker", process.bootstrap, {}).start()
    except Missing as missing:
        pytest.skip(str(missing))
    yield started
    started.kill()


@proves("D1", "D4", "P1")
@pytest.mark.parametrize("schemas", ["true", "false"])
def test_an_app_reads_what_a_debezium_connector_wrote(
    spark: SparkSession,
    process: TidelogProcess,
    worker: ConnectWorker,
    database: Database,
    tmp_path: Path,
    schemas: str,
) -> None:
    converters = {f"{part}.converter.schemas.enable": schemas for part in ("key", "value")}
    converters |= {f"{part}.converter": "org.apache.kafka.connect.json.JsonConverter" for part in ("key", "value")}
    table = captured(database, **converters)
    database.run(f"ALTER TABLE {table.name} ADD COLUMN price numeric(8,2) DEFAULT 1.50, ADD COLUMN day date")
    worker.ask("POST", "/connectors", {"name": table.name, "config": {**table.config, **converters}})
    eventually(lambda: len(all_of(process, table.topic)), lambda count: count == 3)
    database.run(
        f"UPDATE {table.name} SET item = 'oat', day = '2025-03-01' WHERE id = 3",
        f"UPDATE {table.name} SET id = 20, price = -7 WHERE id = 2",
        f"DELETE FROM {table.name} WHERE id = 1",
    )
    eventually(lambda: len(all_of(process, table.topic)), lambda count: count == 9)
    app = App("shop")
    told = {} if schemas == "true" else {"key": "id", "value": "id int, item string, price decimal(8,2), day date"}
    app.table("stock", captured=table.topic, **told)  # type: ignore[arg-type]

    @app.view("items", key="id")
    def items(stock: DataFrame) -> DataFrame:
        return stock

    with Cluster(process.bootstrap) as cluster:
        run = Driven(app, spark, cluster, process.bootstrap, tmp_path)
        run.step()
        rows = {key[0]: (row["item"], str(row["price"]), str(row["day"])) for key, row in run.view("items").items()}
    assert rows == {3: ("oat", "1.50", "2025-03-01"), 20: ("rum", "-7.00", "None")}
