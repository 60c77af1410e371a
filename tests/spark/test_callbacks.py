"""The JVM calls this process, also where it has more files open than select() knows."""

from __future__ import annotations

import subprocess
import sys

import pytest

from proving import proves

MANY = """
import os, sys
held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
import tidelog
spark = tidelog.spark_session(memory="512m", cores=1)
got = []
rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
query = rows.writeStream.foreachBatch(lambda frame, number: got.append(frame.count())).trigger(once=True).start()
print(query.awaitTermination(100), got, flush=True)
os._exit(0)
"""


@pytest.mark.full
@proves("P1", "T5")
def test_a_process_with_more_than_1024_files_is_called() -> None:
    ran = subprocess.run([sys.executable, "-c", MANY], capture_output=True, text=True, timeout=200)
    assert ran.stdout == "True [3]\n", ran.stderr[-2000:]
