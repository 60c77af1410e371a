"""Topics as DataFrames and DataFrames as topics, by pip alone: the Spark source, sink and session.

It never needs a jar of Kafka's, keeps no secret in a plan or a checkpoint, and loads PySpark only where a class of it
is inherited (`source.py`, `sink.py`) or a function needs it. It may import `record`, `wire`, `client`, `schema`,
`control` and PySpark; `pipelines`, `testing` and `cli` import it. Users have the names below, and `tidelog` has
`spark_session`.

    reading    `source.py` (what Spark calls), `discovery.py` and `admission.py` (which offsets), `reading.py` (rows)
    writing    `sink.py` (what Spark calls), `staging.py` (tasks), `commit.py` (the transaction), `foreach_batch.py`
    sessions   `session.py`, `cluster_python.py`, `worker_launch.py`, `java.py`
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.door import door

if TYPE_CHECKING:
    from tidelog.spark.dead_letter import dead_letters as dead_letters
    from tidelog.spark.foreach_batch import topic_writer as topic_writer
    from tidelog.spark.providers import state_store as state_store
    from tidelog.spark.registration import register as register
    from tidelog.spark.typed_values import typed as typed

HOMES = {
    "dead_letters": "tidelog.spark.dead_letter",
    "topic_writer": "tidelog.spark.foreach_batch",
    "state_store": "tidelog.spark.providers",
    "register": "tidelog.spark.registration",
    "typed": "tidelog.spark.typed_values",
}

__getattr__, __dir__ = door(__name__, HOMES)
