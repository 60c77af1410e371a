"""What a checkpoint still has of its micro-batches, and the copy in which one of them is the next; without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer
from tidelog.errors import UsageError
from tidelog.pipelines.debugging import check_there
from tidelog.pipelines.micro_batches import CheckpointHistory, Read, state_partitions
from tidelog.spark.ticks import Tick
from tidelog.testing.broker import TestBroker

TOLD = '{"batchWatermarkMs":5,"batchTimestampMs":1000,"conf":{}}'


def checkpoint(folder: Path, planned: range, committed: range, versions: range | None = None) -> CheckpointHistory:
    """Two sources, of which the second has read nothing before micro-batch 2, and then ticks."""
    for number in planned:
        other = "-" if number < 2 else f'{{"b":{{"0":7}},"tick:{number}00":{{}}}}'
        text = f'v1\n{TOLD}\n{{"a":{{"0":{number * 10}}}}}\n{other}'
        write(folder / "offsets" / str(number), text)
        write(folder / "offsets" / f".{number}.crc", "")
    for number in committed:
        write(folder / "commits" / str(number), "v1\n{}")
    for number in versions or ():
        write(folder / "state" / "0" / "1" / f"{number}.delta", "")
        write(folder / "state" / "1" / "0" / f"{number}_a1.zip", "")
    write(folder / "metadata", '{"id":"x"}')
    if versions:
        write(folder / "state" / "0" / "_metadata" / "metadata", "")
        write(folder / "state" / "1" / "0" / "SSTs" / "000012-abc.sst", "")
    return CheckpointHistory(str(folder))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@proves("P1", "F1")
def test_the_copy_ends_where_the_micro_batch_is_planned_and_not_committed(tmp_path: Path) -> None:
    history = checkpoint(tmp_path / "original", range(6), range(6), range(1, 7))
    history.check(3)
    history.copy_before(3, tmp_path / "copy")
    found = {str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*") if path.is_file()}
    assert found == {
        "metadata",
        *(f"offsets/{number}" for number in range(4)),
        *(f"offsets/.{number}.crc" for number in range(4)),
        *(f"commits/{number}" for number in range(3)),
        *(f"state/0/1/{version}.delta" for version in (1, 2, 3)),
        *(f"state/1/0/{version}_a1.zip" for version in (1, 2, 3)),
        "state/0/_metadata/metadata",
        "state/1/0/SSTs/000012-abc.sst",
    }


@proves("P1", "F1")
def test_a_micro_batch_reads_from_the_offsets_before_it_to_its_own(tmp_path: Path) -> None:
    history = checkpoint(tmp_path, range(4), range(3))
    second = history.micro_batch(2)
    a, b = TopicPartition("a", 0), TopicPartition("b", 0)
    assert second.reads == (Read({a: 10}, {a: 20}), Read({}, {b: 7}, Tick(200)))
    assert (second.at_ms, second.watermark_ms, second.is_committed) == (1000, 5, True)
    assert history.micro_batch(3).reads[1] == Read({b: 7}, {b: 7}, Tick(300))
    assert not history.micro_batch(3).is_committed


@proves("P1", "F1")
def test_the_partitions_of_state_are_those_that_the_checkpoint_was_made_with(tmp_path: Path) -> None:
    assert state_partitions(str(tmp_path / "none")) is None and state_partitions("s3a://bucket/shop") is None
    checkpoint(tmp_path / "plain", range(3), range(3))
    assert state_partitions(str(tmp_path / "plain")) is None, "no operator has any"
    checkpoint(tmp_path / "kept", range(3), range(3), range(1, 4))
    assert state_partitions(str(tmp_path / "kept")) is None, "it is not said"
    told = TOLD.replace('"conf":{}', '"conf":{"spark.sql.shuffle.partitions":"3"}')
    write(tmp_path / "kept" / "offsets" / "2", f"v1\n{told}\n{{}}\n-")
    assert state_partitions(str(tmp_path / "kept")) == 3


@proves("P1", "F1")
@pytest.mark.parametrize(
    ("planned", "committed", "versions", "number", "reason"),
    [
        (range(6), range(6), None, 6, "micro-batch 6 does not exist yet; the last in .* is 5"),
        (range(50, 150), range(50, 150), None, 50, "needs the offsets of 49, which are gone: .* 50 to 149"),
        (range(50, 150), range(50, 150), None, 7, "needs the offsets of 7, which are gone"),
        (range(6), range(4), None, 5, "micro-batch 4 was not committed"),
        (range(6), range(6), range(4, 7), 3, "the state before micro-batch 3 is gone"),
    ],
)
def test_what_is_gone_is_refused_by_name(
    tmp_path: Path, planned: range, committed: range, versions: range | None, number: int, reason: str
) -> None:
    history = checkpoint(tmp_path, planned, committed, versions)
    with pytest.raises(UsageError, match=reason):
        history.check(number)


@proves("P1", "F1")
def test_a_checkpoint_elsewhere_is_to_be_copied_first() -> None:
    with pytest.raises(UsageError, match="copy it to a local folder"):
        CheckpointHistory("s3a://bucket/checkpoints/shop/revenue.v1")


@proves("P1", "F1")
def test_a_micro_batch_of_a_topic_that_was_made_anew_is_refused_and_not_waited_for(tidelog_broker: TestBroker) -> None:
    at = TopicPartition("orders", 0)
    with Cluster(tidelog_broker.bootstrap) as cluster:
        topics.create(cluster, "orders", partitions=1)
        with Producer(cluster) as producer:
            for _ in range(3):
                producer.send("orders", b"{}", key=None)
        check_there(cluster, 7, {at: (1, 3)})
        with pytest.raises(UsageError, match=r"reads orders\[0\] from 2 to 5, and the topic ends at 3 now"):
            check_there(cluster, 7, {at: (2, 5)})
