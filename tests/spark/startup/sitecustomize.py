"""Python runs this at the start of each process that has this folder on its path: Spark's workers come out mortal."""

from __future__ import annotations

import os
import sys

MORTAL = ("pyspark.worker", "pyspark.sql.worker.python_streaming_sink_runner")  # who stages, and who commits

if "TIDELOG_TEST_PLAN" in os.environ and sys.orig_argv[-1] in MORTAL:
    from spark import mortal_workers

    mortal_workers.install()
