"""A driver that is asked for one query after the other, to be killed or stopped meanwhile.

    python driver.py FOLDER MASTER [SETTING=VALUE ...]

The first line of standard output is `ready` and the folder of its Java. Each line of standard input is a `Job`, each
further line of standard output its answer: `done`, or `failed: ` and why. A job copies a topic. One that is supervised
is started again whenever it fails, each time with the next parallelism, and one that runs for ever has to be killed.
What goes wrong in its Python workers is planned in FOLDER (`mortal_workers.py`).

Where no `java` is on the PATH it is as if the machine had none at all.
"""

from __future__ import annotations

import itertools
import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

DONE, FAILED, READY = "done", "failed: ", "ready"
SLOW = "Python worker failed to connect back"  # within 10 s, on a cluster and a busy machine; it is started again
SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # short lives are not worth compiling
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@dataclass
class Job:
    bootstrap: str
    source: str
    target: str
    checkpoint: str
    read: dict[str, str] = field(default_factory=dict)
    write: dict[str, str] = field(default_factory=dict)
    parallelism: list[int] = field(default_factory=lambda: [2])
    for_ever: bool = False
    supervised: bool = False

    def line(self) -> str:
        return json.dumps(asdict(self)) + "\n"


def main(folder: str, master: str, *given: str) -> None:
    import tidelog
    from tidelog.spark import java

    if shutil.which("java") is None:
        java.USUAL_FOLDERS = ()
    settings = {**SETTINGS, "spark.local.dir": str(Path(folder) / "local")}
    settings |= dict(one.split("=", 1) for one in given)
    spark = tidelog.spark_session(master=master, memory="1g", settings=settings)
    print(READY, spark._jvm.System.getProperty("java.home"), flush=True)  # type: ignore[union-attr]
    for line in sys.stdin:
        print(answer(spark, Job(**json.loads(line))), flush=True)


def answer(spark: SparkSession, job: Job) -> str:
    from tidelog.spark.worker_launch import is_local

    turns = itertools.cycle(job.parallelism)
    parallelism = next(turns)
    while True:
        try:
            start(spark, job, {"minPartitions": str(parallelism)}).awaitTermination()
            return DONE
        except Exception as error:
            text = " ".join(str(error).split())
            print(text, file=sys.stderr, flush=True)
            if SLOW in text and not is_local(spark.sparkContext.master):
                continue
            if not job.supervised:
                return FAILED + text
            parallelism = next(turns)


def start(spark: SparkSession, job: Job, options: Mapping[str, str]) -> StreamingQuery:
    reached = {"kafka.bootstrap.servers": job.bootstrap}
    read = spark.readStream.format("tidelog").options(
        **{**reached, "subscribe": job.source, "startingOffsets": "earliest", **options, **job.read}
    )
    write = read.load().select("key", "value").writeStream.format("tidelog").queryName(f"copy-{job.target}")
    write = write.options(**{**reached, "topic": job.target, "checkpointLocation": job.checkpoint, **job.write})
    write = write.trigger(processingTime="0 seconds") if job.for_ever else write.trigger(availableNow=True)
    return write.start()


if __name__ == "__main__":
    main(*sys.argv[1:])
