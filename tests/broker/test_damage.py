"""A bad batch on disk is answered with CORRUPT_MESSAGE, for its own partition and no other; neighbours are read."""

from __future__ import annotations

from pathlib import Path

from raw import RawConnection, batch_of, produce

from proving import proves
from tidelog.record.columns import decode
from tidelog.testing.broker import TestBroker
from tidelog.testing.disk import flip_bit
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tidelog.wire.messages.produce import ProduceResponse


def ask(raw: RawConnection, *wanted: tuple[str, int]) -> dict[str, tuple[int, list[bytes | None]]]:
    """Error code and values by topic, all in one fetch."""
    topics = [
        FetchTopic(
            topic=name, partitions=[FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)]
        )
        for name, offset in wanted
    ]
    response = raw.call(FetchRequest(max_wait_ms=100, min_bytes=1, topics=topics), 12, FetchResponse)
    assert response.error_code == 0
    found = {}
    for topic in response.responses:
        (part,) = topic.partitions
        values = [row.value for row in decode(part.records).rows()] if part.records else []
        found[topic.topic] = (part.error_code, values)
    return found


@proves("T1")
def test_damage_is_answered_for_its_own_partition_again_and_again(tmp_path: Path) -> None:
    with TestBroker(tmp_path / "data") as broker, RawConnection(broker.bootstrap) as raw:
        for name in ("bad", "good"):
            broker.create_topic(name)
            for number in range(3):
                raw.call(produce(name, batch_of(b"%s %d" % (name.encode(), number))), 9, ProduceResponse)
    (path,) = [path for path in (tmp_path / "data").glob("*/*.log") if b"bad 1" in path.read_bytes()]
    flip_bit(path, path.read_bytes().index(b"bad 1"))
    with TestBroker(tmp_path / "data") as broker, RawConnection(broker.bootstrap) as raw:
        good = (0, [b"good 0", b"good 1", b"good 2"])
        for _ in range(2):
            found = ask(raw, ("bad", 1), ("good", 0))
            assert found == {"bad": (ErrorCode.CORRUPT_MESSAGE, []), "good": good}
        assert ask(raw, ("bad", 0)) == {"bad": (0, [b"bad 0"])}
        assert ask(raw, ("bad", 2)) == {"bad": (0, [b"bad 2"])}
