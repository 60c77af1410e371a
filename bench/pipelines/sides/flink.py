"""Nexmark's queries by PyFlink: Flink's SQL, in a cluster inside of this process's JVM, two slots.

Runs in PyFlink's own environment. Checkpoints every second, at least once, state on the heap (Flink's default), into
files: what the job manager keeps by default may have 5 MB, and a job with more restarts again and again. The source is
bounded by what the topics hold, lateness is 4 s. Results that change go to an upsert topic. What each answers:
`oracle.py`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from bench.pipelines.sides.marks import ended, say, work

TABLES = {
    "person": "id BIGINT, name STRING, city STRING, state STRING, `dateTime` BIGINT",
    "auction": "id BIGINT, itemName STRING, seller BIGINT, category BIGINT, `dateTime` BIGINT, expires BIGINT",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` BIGINT",
}
TIMED = "moment AS TO_TIMESTAMP_LTZ(`dateTime`, 3), WATERMARK FOR moment AS moment - INTERVAL '4' SECOND"

MILLIS = "CAST(1000 * UNIX_TIMESTAMP(CAST({} AS STRING)) AS BIGINT)"

WINNING = """SELECT auction, bidder, price, `dateTime`, category FROM (
    SELECT B.auction, B.bidder, B.price, B.`dateTime`, A.category,
           ROW_NUMBER() OVER (PARTITION BY B.auction ORDER BY B.price DESC, B.`dateTime` ASC) AS place
    FROM auction A JOIN bid B ON A.id = B.auction AND B.`dateTime` BETWEEN A.`dateTime` AND A.expires)
    WHERE place <= 1"""

COUNTS = """SELECT auction, COUNT(*) AS n, window_start, window_end
    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(moment), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end"""

QUERIES = {
    "q0": "SELECT auction, bidder, price, `dateTime` FROM bid",
    "q3": """SELECT A.id, P.name, P.city, P.state FROM auction A JOIN person P ON A.seller = P.id
        WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')""",
    "q4": """SELECT category, AVG(CAST(final AS DOUBLE)) AS average FROM (
        SELECT MAX(B.price) AS final, A.category FROM auction A JOIN bid B
        ON A.id = B.auction AND B.`dateTime` BETWEEN A.`dateTime` AND A.expires GROUP BY A.id, A.category)
        GROUP BY category""",
    "q5": f"""SELECT {MILLIS.format("A.window_start")} AS `start`, A.auction, A.n FROM ({COUNTS}) A JOIN (
        SELECT MAX(n) AS most, window_start, window_end FROM ({COUNTS}) GROUP BY window_start, window_end) M
        ON A.window_start = M.window_start AND A.window_end = M.window_end AND A.n >= M.most""",
    "q7": f"""SELECT {MILLIS.format("window_start")} AS `start`, auction, bidder, price, `dateTime` FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY price DESC) AS place
        FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(moment), INTERVAL '10' SECOND))) WHERE place <= 1""",
    "q8": f"""SELECT P.id, P.name, {MILLIS.format("P.window_start")} AS `start` FROM (
        SELECT id, name, window_start, window_end
        FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(moment), INTERVAL '10' SECOND))
        GROUP BY id, name, window_start, window_end) P JOIN (
        SELECT seller, window_start, window_end
        FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(moment), INTERVAL '10' SECOND))
        GROUP BY seller, window_start, window_end) A
        ON P.id = A.seller AND P.window_start = A.window_start AND P.window_end = A.window_end""",
    "q9": WINNING,
    "q11": """SELECT bidder, first_at AS `start`, n FROM (
        SELECT bidder, MIN(`dateTime`) AS first_at, COUNT(*) AS n, window_start, window_end
        FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(moment), INTERVAL '10' SECOND))
        GROUP BY bidder, window_start, window_end)""",
    "q18": """SELECT bidder, auction, price, `dateTime` FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY moment DESC) AS place FROM bid)
        WHERE place <= 1""",
    "q20": """SELECT B.auction, B.bidder, B.price, B.`dateTime`, A.itemName, A.seller, A.expires
        FROM bid B JOIN auction A ON B.auction = A.id WHERE A.category = 10""",
}
ANSWERS = {
    "q0": "auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` BIGINT",
    "q3": "id BIGINT, name STRING, city STRING, state STRING",
    "q4": "category BIGINT, average DOUBLE, PRIMARY KEY (category) NOT ENFORCED",
    "q5": "`start` BIGINT, auction BIGINT, n BIGINT",
    "q7": "`start` BIGINT, auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` BIGINT",
    "q8": "id BIGINT, name STRING, `start` BIGINT",
    "q9": """auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` BIGINT, category BIGINT,
        PRIMARY KEY (auction) NOT ENFORCED""",
    "q11": "bidder BIGINT, `start` BIGINT, n BIGINT",
    "q18": """bidder BIGINT, auction BIGINT, price BIGINT, `dateTime` BIGINT,
        PRIMARY KEY (bidder, auction) NOT ENFORCED""",
    "q20": """auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` BIGINT, itemName STRING, seller BIGINT,
        expires BIGINT""",
}


def main() -> None:
    given = work()
    environment = made(given)
    drain(environment, given, "warm", given["warm_output"])
    say("begin")
    drain(environment, given, "topics", given["output"])
    ended()
    os._exit(0)  # the JVM takes its time to end, and nothing is left to do


def made(given: dict[str, Any]) -> Any:
    from pyflink.table import EnvironmentSettings, TableEnvironment

    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    jars = sorted((Path(sys.prefix) / "jars").glob("*.jar"))
    settings = {
        "pipeline.jars": ";".join(jar.as_uri() for jar in jars),
        "parallelism.default": str(given["partitions"]),
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.mode": "AT_LEAST_ONCE",
        "execution.checkpointing.storage": "filesystem",
        "execution.checkpointing.dir": (Path(given["folder"]) / "flink").as_uri(),
        "table.local-time-zone": "UTC",
        "taskmanager.memory.network.max": "128m",
    }
    for name, value in settings.items():
        environment.get_config().set(name, value)
    return environment


def drain(environment: Any, given: dict[str, Any], which: str, output: str) -> None:
    for kind, topic in given[which].items():
        environment.execute_sql(f"DROP TABLE IF EXISTS {kind}")
        environment.execute_sql(f"CREATE TABLE {kind} ({TABLES[kind]}, {TIMED}) WITH ({source(given, topic)})")
    environment.execute_sql("DROP TABLE IF EXISTS answers")
    answers = ANSWERS[given["query"]]
    environment.execute_sql(f"CREATE TABLE answers ({answers}) WITH ({sink(given, output, 'PRIMARY KEY' in answers)})")
    environment.execute_sql(f"INSERT INTO answers {QUERIES[given['query']]}").wait()


def source(given: dict[str, Any], topic: str) -> str:
    return options(
        {
            "connector": "kafka",
            "topic": topic,
            "properties.bootstrap.servers": given["bootstrap"],
            "scan.startup.mode": "earliest-offset",
            "scan.bounded.mode": "latest-offset",
            "format": "json",
        }
    )


def sink(given: dict[str, Any], topic: str, upserts: bool) -> str:
    common = {"topic": topic, "properties.bootstrap.servers": given["bootstrap"]}
    if upserts:
        return options({"connector": "upsert-kafka", **common, "key.format": "json", "value.format": "json"})
    return options({"connector": "kafka", **common, "format": "json"})


def options(values: dict[str, str]) -> str:
    return ", ".join(f"'{name}' = '{value}'" for name, value in values.items())


if __name__ == "__main__":
    main()
