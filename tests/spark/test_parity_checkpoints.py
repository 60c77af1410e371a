"""One checkpoint, two formats: a query goes from Spark's own Kafka connector to ours and back, and each finds in the
checkpoint what it would have written itself.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from contract import Broker
from proving import proves
from spark.connector import CONNECTOR, connector_jars
from spark.filling import fill, numbers
from spark.parity import FORMATS, OURS, checkpoint_offsets, run_to_end, stream, table
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster

pytestmark = pytest.mark.external

PARTITIONS = 12  # so that "10" comes before "2" where they are sorted as text


@pytest.fixture
def filled(cluster: Cluster, topic: str) -> str:
    connector_jars()
    topics.create(cluster, topic, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        fill(cluster, topic, partition, numbers(partition * 10, partition * 10 + 10))
    return topic


@proves("P1", "F1", "T10")
@pytest.mark.parametrize("there_and_back", [(CONNECTOR, OURS, CONNECTOR), (OURS, CONNECTOR, OURS)], ids="-".join)
def test_a_checkpoint_goes_from_one_connector_to_the_other_and_back(
    spark: SparkSession,
    broker: Broker,
    cluster: Cluster,
    filled: str,
    tmp_path: Path,
    there_and_back: tuple[str, str, str],
) -> None:
    options = {"subscribe": filled, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "70"}
    begin = 0
    for turn, kind in enumerate(there_and_back):
        seen = run_to_end(stream(spark, broker.bootstrap, kind, options), tmp_path)
        end = 10 * PARTITIONS + 15 * turn
        assert sum(one.rows for one in seen) == end - begin
        fill(cluster, filled, turn, numbers(end, end + 15))
        begin = end
    values = [bytes(row.value) for row in table(spark, tmp_path)]
    assert sorted(values, key=int) == numbers(0, begin)


@proves("P1", "F1", "T10")
def test_offsets_in_a_checkpoint_are_the_connectors_to_the_byte_but_for_spaces(
    spark: SparkSession, broker: Broker, filled: str, tmp_path: Path
) -> None:
    """PySpark writes the JSON of a Python source, with a space after each colon and comma; Kafka's has none."""
    options = {"subscribe": filled, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "50"}
    for kind in FORMATS:
        run_to_end(stream(spark, broker.bootstrap, kind, options), tmp_path / kind)
    theirs, ours = (checkpoint_offsets(tmp_path / kind) for kind in FORMATS)
    assert len(theirs) == 3
    assert [text.replace(" ", "") for text in ours] == theirs
    assert list(json.loads(theirs[0])[filled]) == [str(partition) for partition in range(PARTITIONS)]


@proves("P1", "F1", "T10")
def test_offsets_of_several_topics_mean_the_same(
    spark: SparkSession, broker: Broker, cluster: Cluster, filled: str, tmp_path: Path
) -> None:
    """In which order the connector names topics is that of a hash table."""
    names = [f"{filled}-{letter}" for letter in "zay"]
    for name in names:
        topics.create(cluster, name, partitions=1)
        fill(cluster, name, 0, numbers(0, 4))
    options = {"subscribePattern": filled, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "60"}
    for kind in FORMATS:
        run_to_end(stream(spark, broker.bootstrap, kind, options), tmp_path / kind)
    theirs, ours = (list(map(json.loads, checkpoint_offsets(tmp_path / kind))) for kind in FORMATS)
    assert theirs == ours
    assert theirs[-1].keys() == {filled, *names}
