"""By PyFlink: Flink's SQL, one slot, exactly once, with a checkpoint each tenth of a second. A checkpoint ends the
transaction, so no reader of committed records sees a row before that. Runs in PyFlink's own environment.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from bench.pipelines.sides.flink import options
from bench.pipelines.sides.marks import work

EVERY = "100 ms"


def main() -> None:
    from pyflink.table import EnvironmentSettings, TableEnvironment

    given = work()
    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in settings_of(given).items():
        environment.get_config().set(name, value)
    environment.execute_sql(f"CREATE TABLE measured (`key` BIGINT, number BIGINT) WITH ({source(given)})")
    columns = "`key` BIGINT, records BIGINT, newest BIGINT, PRIMARY KEY (`key`) NOT ENFORCED"
    environment.execute_sql(f"CREATE TABLE fresh ({columns}) WITH ({sink(given)})")
    counted = "SELECT `key`, COUNT(*), MAX(number) FROM measured GROUP BY `key`"
    environment.execute_sql(f"INSERT INTO fresh {counted}").wait()


def settings_of(given: dict[str, Any]) -> dict[str, str]:
    jars = sorted((Path(sys.prefix) / "jars").glob("*.jar"))
    return {
        "pipeline.jars": ";".join(jar.as_uri() for jar in jars),
        "parallelism.default": "1",
        "execution.checkpointing.interval": EVERY,
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.storage": "filesystem",
        "execution.checkpointing.dir": (Path(given["folder"]) / "flink").as_uri(),
        "table.local-time-zone": "UTC",
        "taskmanager.memory.network.max": "128m",
    }


def source(given: dict[str, Any]) -> str:
    return options(
        {
            "connector": "kafka",
            "topic": given["topic"],
            "properties.bootstrap.servers": given["bootstrap"],
            "scan.startup.mode": "earliest-offset",
            "format": "json",
        }
    )


def sink(given: dict[str, Any]) -> str:
    return options(
        {
            "connector": "upsert-kafka",
            "topic": given["output"],
            "properties.bootstrap.servers": given["bootstrap"],
            "properties.transaction.timeout.ms": "60000",  # by itself an hour, which brokers refuse
            "key.format": "json",
            "value.format": "json",
            "sink.delivery-guarantee": "exactly-once",
            "sink.transactional-id-prefix": "fresh",
        }
    )


if __name__ == "__main__":
    main()
