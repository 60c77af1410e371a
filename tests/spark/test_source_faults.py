"""What may become of a topic under a query: it is made anew, cut, broken. Either a clear error, or, where the user has
said that losses may be, the query goes on with what there is.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from contract import TIMEOUT_S, Broker
from proving import proves
from spark.filling import Query, fill, numbers, reader, rows_of
from spark.mortal_broker import MortalBroker
from spark.test_reading import _create_again
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.errors import DataLoss, PeerError

pytestmark = pytest.mark.full

EARLIEST = {"startingOffsets": "earliest"}


@proves("P1", "T10")
@pytest.mark.parametrize("filled", [20, 3], ids=["as far as before", "with less"])
def test_a_topic_made_anew_between_planning_and_reading_is_not_read_as_the_one_that_was_planned(
    broker: Broker, cluster: Cluster, topic: str, filled: int
) -> None:
    topics.create(cluster, topic, partitions=1)
    fill(cluster, topic, 0, numbers(0, 10))
    strict = Query(broker.bootstrap, subscribe=topic, **EARLIEST)
    lenient = Query(broker.bootstrap, subscribe=topic, failOnDataLoss="false", **EARLIEST)
    batch = reader(broker.bootstrap, subscribe=topic)
    of_batch = batch.partitions()
    planned = []
    for query in (strict, lenient):
        end = query.stream.latestOffset(query.offsets, query.stream.getDefaultReadLimit())
        planned.append(query.stream.partitions(query.offsets, end))
        assert len(rows_of(query.stream.read(planned[-1][0]))) == 10, "and now its worker is connected, and knows it"
        query.offsets = end
    topics.delete(cluster, topic)
    _create_again(cluster, topic)
    fill(cluster, topic, 0, numbers(100, 100 + filled))
    for one, ranges in ((strict.stream, planned[0]), (batch, of_batch)):
        with pytest.raises(DataLoss, match=r"created again|was to be read from . up to 10 and now"):
            rows_of(one.read(ranges[0]))
    left = rows_of(lenient.stream.read(planned[1][0]))
    assert left == [], "of another topic, whatever offsets it has"
    fill(cluster, topic, 0, numbers(100 + filled, 130))
    lenient.trigger()
    assert lenient.values() == numbers(100, 130)
    strict.stop()
    lenient.stop()


@proves("P1", "T6", "T10")
def test_a_log_that_was_truncated_is_data_loss_or_read_on(mortal_broker: MortalBroker) -> None:
    """One that promises nothing over a power cut."""
    with Cluster(mortal_broker.bootstrap, timeout_s=TIMEOUT_S) as cluster:
        memory = {"tidelog.durability": "memory"} if cluster.is_tidelog() else {}
        topics.create(cluster, "t", partitions=1, configs=memory)
        for start in range(0, 100, 10):
            fill(cluster, "t", 0, [number * 1000 for number in numbers(start, start + 10)])
        strict = Query(mortal_broker.bootstrap, subscribe="t", **EARLIEST)
        lenient = Query(mortal_broker.bootstrap, subscribe="t", failOnDataLoss="false", **EARLIEST)
        behind = Query(mortal_broker.bootstrap, subscribe="t", **EARLIEST)
        end = behind.stream.latestOffset(behind.offsets, behind.stream.getDefaultReadLimit())
        (planned,) = behind.stream.partitions(behind.offsets, end)
        assert (strict.trigger(), lenient.trigger()) == (100, 100)
        mortal_broker.kill()
        cut_log(mortal_broker, b"99" * 1000)
        mortal_broker.start()
    with Cluster(mortal_broker.bootstrap, timeout_s=TIMEOUT_S, patient=True) as cluster:
        fill(cluster, "t", 0, numbers(500, 505))
        with pytest.raises(DataLoss, match="truncated"):
            strict.trigger()
        with pytest.raises(DataLoss, match=r"now (ends at|has)"):
            rows_of(behind.stream.read(planned))
        lenient.trigger()
        fill(cluster, "t", 0, numbers(505, 510))
        lenient.trigger()
        assert lenient.values()[-5:] == numbers(505, 510)
    for query in (strict, lenient, behind):
        query.stop()


def cut_log(broker: MortalBroker, text: bytes) -> None:
    """Its file to about a third, as a power cut may leave it."""
    log = log_with(broker, text)
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size // 3)


def log_with(broker: MortalBroker, text: bytes) -> Path:
    (log,) = (path for path in (broker.folder / "data").rglob("*.log") if text in path.read_bytes())
    return log


@proves("P1", "T6", "T10")
def test_a_batch_that_rots_in_the_log_is_said_with_its_place(mortal_broker: MortalBroker) -> None:
    with Cluster(mortal_broker.bootstrap, timeout_s=TIMEOUT_S) as cluster:
        topics.create(cluster, "t", partitions=1)
        for start in range(0, 30, 10):
            fill(cluster, "t", 0, [b"rotten" if number == b"15" else number for number in numbers(start, start + 10)])
    mortal_broker.stop()
    flip(mortal_broker, b"rotten")
    mortal_broker.start()
    query = Query(mortal_broker.bootstrap, subscribe="t", **EARLIEST)
    with pytest.raises(PeerError, match=r"t\[0\] is broken at offset 10: .*startingOffsets|offset 10 of t\[0\]"):
        query.trigger()
    query.stop()
    query = Query(mortal_broker.bootstrap, subscribe="t", startingOffsets='{"t":{"0":20}}')
    assert query.trigger() == 10, "what lies behind it can be read"
    query.stop()


def flip(broker: MortalBroker, text: bytes) -> None:
    log = log_with(broker, text)
    position = log.read_bytes().index(text)
    with log.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 1]))
