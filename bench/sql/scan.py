"""Rows a second of SQL over a topic of JSON records, beside DuckDB over a Parquet file of the same rows.

    python bench/sql/scan.py [--rows 1000000] [--times 5]

The broker, the question and DuckDB are on one machine. Each figure is the median of so many runs, with the spread; each
run is a new question, with its own DuckDB, connection, sample and binding. The file is the ceiling: its rows are typed,
columnar and in the page cache, and nothing is decoded from JSON. The first row is timed from the start of a process
`tidelog sql "select * from orders limit 10"` to its first line, with the processor's time that it took beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import tidelog
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer
from tidelog.record.columns import encode

TOPIC, PARTITIONS, BATCH = "orders", 4, 1000
VALUE = '{{"id":{id:07d},"product":"product-{product:02d}","x":{x},"amount":{amount:.2f},"note":"{note}"}}'
QUESTIONS = {
    "count(*)": "select count(*) from {t}",
    "sum(x)": "select sum(x) from {t}",
    "sum(x) by product": "select product, sum(x) from {t} group by 1",
    "where amount > 490": "select id, amount from {t} where amount > 490",
}


def row(number: int) -> dict[str, Any]:
    return {"id": 1_000_000 + number, "product": number % 50, "x": number % 1000, "amount": number % 50_000 / 100}


def value(number: int) -> bytes:
    made = VALUE.format(**row(number), note="")
    return VALUE.format(**row(number), note="n" * (100 - len(made))).encode()


def fill(bootstrap: str, rows: int) -> None:
    with Cluster(bootstrap) as cluster:
        topics.create(cluster, TOPIC, partitions=PARTITIONS)
        with Producer(cluster) as producer:
            for start in range(0, rows, BATCH):
                batch = encode([(None, value(n), None, n) for n in range(start, min(rows, start + BATCH))])
                producer.send_batch(TopicPartition(TOPIC, start // BATCH % PARTITIONS), batch)


def write_parquet(path: Path, rows: int) -> None:
    import duckdb

    engine = duckdb.connect()
    values = (
        f"select 1000000 + n as id, 'product-' || lpad((n % 50)::varchar, 2, '0') as product, n % 1000 as x,"
        f" (n % 50000) / 100.0::double as amount, repeat('n', 40) as note from range({rows}) r(n)"
    )
    engine.execute(f"copy ({values}) to '{path}' (format parquet)")
    engine.close()


def timed(run: Callable[[], Any], times: int) -> tuple[float, float, float]:
    run()
    spent = []
    for _ in range(times):
        begin = time.perf_counter()
        run()
        spent.append(time.perf_counter() - begin)
    return median(spent), min(spent), max(spent)


def of_topic(bootstrap: str, query: str) -> Any:
    return tidelog.sql(query.format(t=TOPIC), bootstrap=bootstrap).fetchall()


def of_file(path: Path, query: str) -> Any:
    import duckdb

    engine = duckdb.connect()
    rows = engine.execute(query.format(t=f"'{path}'")).fetchall()
    engine.close()
    return rows


def first_row(bootstrap: str) -> tuple[float, float]:
    """Seconds to the first line, and seconds of the processor to the end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    line = [sys.executable, "-m", "tidelog", "sql", f"select * from {TOPIC} limit 10"]
    environment = {**os.environ, "TIDELOG_BOOTSTRAP": bootstrap}
    with subprocess.Popen(line, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        spent = time.perf_counter() - begin
        process.stdout.read()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, tidelog.Broker(folder) as broker:
        fill(broker.bootstrap, options.rows)
        path = Path(folder) / "orders.parquet"
        write_parquet(path, options.rows)
        told: dict[str, Any] = {"rows": options.rows, "load": [round(one, 1) for one in os.getloadavg()]}
        for name, query in QUESTIONS.items():
            ours = timed(lambda query=query: of_topic(broker.bootstrap, query), options.times)  # type: ignore[misc]
            file = timed(lambda query=query: of_file(path, query), options.times)  # type: ignore[misc]
            told[name] = {
                "topic_rows_s": round(options.rows / ours[0]),
                "topic_s": [round(one, 3) for one in ours],
                "parquet_rows_s": round(options.rows / file[0]),
                "parquet_s": [round(one, 4) for one in file],
            }
        limited = "select * from {t} limit 10"
        told["limit 10, in a process"] = [
            round(one, 4) for one in timed(lambda: of_topic(broker.bootstrap, limited), 4 * options.times)
        ]
        starts = [first_row(broker.bootstrap) for _ in range(4 * options.times)]
        for name, each in (("first row, from the start of a process", 0), ("its processor's time", 1)):
            taken = sorted(one[each] for one in starts)
            told[name] = [round(one, 3) for one in (median(taken), taken[0], taken[-1])]
        print(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
