"""Files that somebody has taken away: noticed at the next start, after a clean stop and after a kill, and at the next
ack while the broker runs. No offset is given out twice, and nothing begins anew in silence.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from by_hand import ByHand
from raw import RawConnection, batch_of, fetch, produce
from test_partitions import connect, produced, serving

from against.patience import eventually
from log.resting import all_rest, at_work
from proving import proves
from tidelog.broker.server import Server
from tidelog.broker.topics import ACCESS_TOPIC, GROUPS_TOPIC, TOPICS_TOPIC, TRANSACTIONS_TOPIC, Topic
from tidelog.client.admin import access, configs, groups, topics, transactions
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.errors import StorageError, TidelogError
from tidelog.log import loading
from tidelog.log.ends import End, read_ends
from tidelog.log.files import RealFiles
from tidelog.testing.broker import TestBroker
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.fetch import FetchResponse
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.wire.messages.produce import ProduceResponse

PRODUCE, FETCH, METADATA = 9, 12, 12
NAMES = ("harmed", "whole")
BATCHES, RECORDS, IN_LAST = 30, 5, 5  # most segments have one batch, the last has several
END = BATCHES * RECORDS
STOPS = pytest.mark.parametrize("clean", [True, False], ids=["after a clean stop", "after a kill"])


class Written(NamedTuple):
    """The same records, by how the broker ended."""

    stopped: Path
    killed: Path  # while all partitions rested
    at_work: Path  # killed before they did: the last commit of each is in no slot
    folder: str  # of the partition that is harmed


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """`harmed` with many segments, `whole` beside it, and something in each topic of the broker's own."""
    data = tmp_path_factory.mktemp("missing") / "data"
    killed, working = data.parent / "killed", data.parent / "at work"
    with at_work(), serving(data, RealFiles()) as server, connect(server) as connection:
        host, port = server.addresses[0]
        with Cluster(f"{host}:{port}") as cluster:
            for name in NAMES:
                topics.create(cluster, name, configs={"segment.ms": "1", "retention.ms": "-1"})
            for number in range(3):
                groups.commit(cluster, f"readers {number}", {TopicPartition("whole", 0): 7})
                transactions.abort(cluster, f"id {number}")
                access.alter_quotas(cluster, {"user": f"user {number}"}, {"producer_byte_rate": 1e9})
            folder = f"{cluster.topic('harmed').topic_id.hex()}-0"
            for number in range(BATCHES):
                if number == BATCHES - IN_LAST:
                    for name in NAMES:
                        configs.alter(cluster, configs.TOPIC, name, set={"segment.ms": "100000000"})
                for name in NAMES:
                    batch = batch_of(*[b"%d of %s " % (number, name.encode()) * 10] * RECORDS)
                    assert produced(connection.call(produce(name, batch), PRODUCE, ProduceResponse)) == 0
        eventually(lambda: newest_ends(data).get(folder) == (0, END, 0))
        shutil.copytree(data, working)
        assert not all_rest(working)
    assert len(segments(data / folder)) > 6
    resting = shutil.copytree(working, data.parent / "resting")
    with serving(resting, RealFiles()):
        eventually(lambda: all_rest(resting))
        shutil.copytree(resting, killed)
    return Written(data, killed, working, folder)


@contextmanager
def harmed(written: Written, folder: Path, clean: bool, harm: Callable[[Path], None]) -> Iterator[Server]:
    """A broker on a copy from which something was taken."""
    data = written.stopped if clean else written.killed
    assert (data / "clean").exists() is clean
    with harmed_copy(data, folder, written.folder, harm) as server:
        yield server


@contextmanager
def harmed_copy(data: Path, folder: Path, partition: str, harm: Callable[[Path], None]) -> Iterator[Server]:
    copy = shutil.copytree(data, folder / "data")
    harm(copy / partition)
    with serving(copy, RealFiles()) as server:
        yield server


def newest_ends(data: Path) -> dict[str, End]:
    """What the file of ends says now."""
    return read_ends(RealFiles(), str(data)).table


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def without_first(folder: Path) -> None:
    segments(folder)[0].unlink()


def without_middle(folder: Path) -> None:
    segments(folder)[3].unlink()


def without_last(folder: Path) -> None:
    segments(folder)[-1].unlink()


def without_half(folder: Path) -> None:
    for path in segments(folder)[len(segments(folder)) // 2 :]:
        path.unlink()


def without_segments(folder: Path) -> None:
    for path in segments(folder):
        path.unlink()


def half_of_the_last(folder: Path) -> None:
    last = segments(folder)[-1]
    assert last.stat().st_size > 4096 + 100
    with last.open("r+b") as file:
        file.truncate(4096 + (last.stat().st_size - 4096) // 2)


HARMS = {
    "the folder": shutil.rmtree,
    "all segments": without_segments,
    "the first segment": without_first,
    "the last segment": without_last,
    "the newer half of the segments": without_half,
}


def codes(connection: RawConnection, topic: str) -> tuple[int, int, int]:
    """Of a produce, of a fetch at the beginning and of a fetch at the end."""
    written = connection.call(produce(topic, batch_of(b"more")), PRODUCE, ProduceResponse)
    first, last = (connection.call(fetch(topic, at), FETCH, FetchResponse) for at in (0, END))
    return (produced(written), *(one.responses[0].partitions[0].error_code for one in (first, last)))


def said(server: Server) -> str:
    return server.broker.logger._stream.getvalue()  # type: ignore[attr-defined,no-any-return]


def errors(server: Server) -> list[str]:
    return [line for line in said(server).splitlines() if " ERROR " in line]


# At the next start ----------------------------------------------------------------------------------------------------


@proves("T1", "T6")
@pytest.mark.parametrize(("what", "clean"), [(what, clean) for what in HARMS for clean in (True, False)])
def test_a_partition_without_what_it_had_goes_offline_and_gives_no_offset(
    written: Written, tmp_path: Path, what: str, clean: bool
) -> None:
    with harmed(written, tmp_path, clean, HARMS[what]) as server, connect(server) as connection:
        refused = ErrorCode.KAFKA_STORAGE_ERROR
        assert codes(connection, "harmed") == (refused, refused, refused)
        assert codes(connection, "whole") == (0, 0, 0)
        (line,) = errors(server)
        assert "topic=harmed partition=0" in line
        assert f"expected='offsets 0 to {END - 1}'" in line and "missing=" in line
        assert "tidelog repair" in line and "harmed 0 --skip" in line
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="harmed")])
        (part,) = connection.call(asked, METADATA, MetadataResponse).topics[0].partitions
        assert (part.error_code, part.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)


@proves("T1", "T6")
@STOPS
def test_what_is_put_back_is_used_at_the_next_start(written: Written, tmp_path: Path, clean: bool) -> None:
    kept = (written.stopped if clean else written.killed) / written.folder
    for harm in HARMS.values():
        with harmed(written, tmp_path, clean, harm) as server, connect(server) as connection:
            assert codes(connection, "harmed")[0] == ErrorCode.KAFKA_STORAGE_ERROR
        shutil.copytree(kept, tmp_path / "data" / written.folder, dirs_exist_ok=True)
        with serving(tmp_path / "data", RealFiles()) as server, connect(server) as connection:
            reply = connection.call(produce("harmed", batch_of(b"next")), PRODUCE, ProduceResponse)
            (part,) = reply.responses[0].partition_responses
            assert (part.error_code, part.base_offset) == (0, END)
            assert errors(server) == []
        shutil.rmtree(tmp_path / "data")


@proves("T1", "T6")
@pytest.mark.parametrize("ended", ["stopped", "killed"])
def test_bytes_at_the_end_that_are_gone_are_a_hole_and_their_offsets_are_not_given_again(
    written: Written, tmp_path: Path, ended: str
) -> None:
    """The last segment says that all of it was synced."""
    data = getattr(written, ended)
    with harmed_copy(data, tmp_path, written.folder, half_of_the_last) as server, connect(server) as connection:
        assert answers_at_the_end(connection) == (ErrorCode.CORRUPT_MESSAGE, (0, END))


@proves("T1", "T6")
def test_bytes_at_the_end_that_are_gone_are_missing_where_no_segment_but_the_file_of_ends_knew_of_them(
    written: Written, tmp_path: Path
) -> None:
    """The last commit of a partition at work is in doubt: it is cut, and then the partition is shorter than it was."""
    data, refused = written.at_work, ErrorCode.KAFKA_STORAGE_ERROR
    with harmed_copy(data, tmp_path, written.folder, half_of_the_last) as server, connect(server) as connection:
        assert answers_at_the_end(connection) == (refused, (refused, -1))


def answers_at_the_end(connection: RawConnection) -> tuple[int, tuple[int, int]]:
    """The code of a fetch of the last record, and that of a produce with the offset that it gave."""
    (part,) = connection.call(fetch("harmed", END - 1), FETCH, FetchResponse).responses[0].partitions
    reply = connection.call(produce("harmed", batch_of(b"next")), PRODUCE, ProduceResponse)
    (answer,) = reply.responses[0].partition_responses
    return part.error_code, (answer.error_code, answer.base_offset)


@proves("T1", "T6")
@STOPS
def test_a_partition_without_a_segment_in_the_middle_has_a_hole_there(
    written: Written, tmp_path: Path, clean: bool
) -> None:
    with harmed(written, tmp_path, clean, without_middle) as server, connect(server) as connection:
        first = int(segments(written.stopped / written.folder)[3].stem)
        for offset, code in ((first - 1, 0), (first, ErrorCode.CORRUPT_MESSAGE)):
            (part,) = connection.call(fetch("harmed", offset), FETCH, FetchResponse).responses[0].partitions
            assert part.error_code == code
        reply = connection.call(produce("harmed", batch_of(b"next")), PRODUCE, ProduceResponse)
        (answer,) = reply.responses[0].partition_responses
        assert (answer.error_code, answer.base_offset) == (0, END)


@proves("T1", "T6")
@pytest.mark.parametrize(
    "topic", [TOPICS_TOPIC, GROUPS_TOPIC, TRANSACTIONS_TOPIC, ACCESS_TOPIC], ids=lambda topic: topic.name
)
@pytest.mark.parametrize(
    ("harm", "ended", "fault"),
    [
        pytest.param(shutil.rmtree, "stopped", "missing", id="the folder after a clean stop"),
        pytest.param(shutil.rmtree, "killed", "missing", id="the folder after a kill"),
        pytest.param(half_of_the_last, "killed", "damaged", id="half of it after a kill at rest"),
        pytest.param(half_of_the_last, "at_work", "missing", id="half of it after a kill at work"),
    ],
)
def test_a_broker_without_its_own_decisions_does_not_start(
    written: Written, tmp_path: Path, topic: Topic, harm: Callable[[Path], None], ended: str, fault: str
) -> None:
    skip = f"tidelog repair --data .* {topic.name} 0 --skip"
    way_on = f"({skip}|tidelog repair adopt)" if topic is TOPICS_TOPIC else skip
    with (
        pytest.raises(TidelogError, match=f"{fault}.*{way_on}"),
        harmed_copy(getattr(written, ended), tmp_path, f"{topic.topic_id.hex()}-0", harm),
    ):
        pass


@proves("T1", "T6")
def test_a_file_that_is_put_back_while_the_broker_runs_is_used_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not the one that it had opened under the same name."""
    monkeypatch.setattr(loading, "LOAD_AGAIN_S", 0.0)
    data = tmp_path / "data"
    broker = ByHand(data).start()
    for name in NAMES:
        broker.create(name)
        broker.produce(name, b"first", b"second")
    broker.stop()
    own, other = (segments(data / f"{broker.broker.topics.by_name[name].topic_id.hex()}-0")[0] for name in NAMES)
    kept = Path(shutil.copy(own, tmp_path / "kept"))
    shutil.copy(other, own)
    broker = ByHand(data).start()
    with pytest.raises(StorageError, match="another partition"):
        broker.values("harmed")
    kept.replace(own)
    assert broker.values("harmed") == [b"first", b"second"]
    assert broker.produce("harmed", b"third") == 2
    broker.stop()


# What is legitimate ---------------------------------------------------------------------------------------------------


@proves("T6")
@STOPS
def test_what_retention_and_clients_have_deleted_is_not_missing(written: Written, tmp_path: Path, clean: bool) -> None:
    data = shutil.copytree(written.stopped, tmp_path / "data")
    with serving(data, RealFiles()) as server:
        host, port = server.addresses[0]
        with Cluster(f"{host}:{port}") as cluster:
            topics.delete_records(cluster, {TopicPartition("harmed", 0): END - 3})
            configs.alter(cluster, configs.TOPIC, "whole", set={"retention.ms": "1"})
            server.broker.housekeeping._next_retention_s = 0
            eventually(lambda: len(segments(data / f"{cluster.topic('whole').topic_id.hex()}-0")) == 1)
    if not clean:
        (data / "clean").unlink()
    with serving(data, RealFiles()) as server, connect(server) as connection:
        assert codes(connection, "harmed") == (0, ErrorCode.OFFSET_OUT_OF_RANGE, 0)
        assert codes(connection, "whole") == (0, ErrorCode.OFFSET_OUT_OF_RANGE, 0)
        assert errors(server) == []


@proves("T6")
def test_a_topic_that_was_deleted_is_not_missing(written: Written, tmp_path: Path) -> None:
    data = shutil.copytree(written.stopped, tmp_path / "data")
    with serving(data, RealFiles()) as server:
        host, port = server.addresses[0]
        with Cluster(f"{host}:{port}") as cluster:
            topics.delete(cluster, "harmed")
            eventually(lambda: not (data / written.folder).exists())
            eventually(lambda: written.folder not in newest_ends(data))
        copy = shutil.copytree(data, tmp_path / "killed", ignore=shutil.ignore_patterns("*.deleted"))
    for folder in (data, copy):
        with serving(folder, RealFiles()) as server, connect(server) as connection:
            assert codes(connection, "whole")[0] == 0
            assert errors(server) == []


@proves("T6")
@STOPS
@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_a_folder_whose_ends_are_not_known_is_used_as_it_is_and_that_is_said(
    written: Written, tmp_path: Path, how: str, clean: bool
) -> None:
    data = shutil.copytree(written.stopped if clean else written.killed, tmp_path / "data")
    if how == "missing":
        (data / "ends").unlink()
    else:
        content = bytearray((data / "ends").read_bytes())
        content[40] ^= 0x40
        (data / "ends").write_bytes(content)
    with serving(data, RealFiles()) as server, connect(server) as connection:
        (line,) = [line for line in said(server).splitlines() if " WARNING " in line and f"{data}/ends" in line]
        assert how in line
        assert codes(connection, "harmed") == (0, 0, 0)
        eventually(lambda: written.folder in newest_ends(data))
    assert newest_ends(data)[written.folder] == (0, END + 1, 0)


# While it runs --------------------------------------------------------------------------------------------------------


@proves("T1", "T6")
@pytest.mark.parametrize("durability", ["disk", "memory"])
@pytest.mark.parametrize("how", ["removed", "renamed"])
def test_no_ack_comes_from_a_folder_that_is_gone(tmp_path: Path, how: str, durability: str) -> None:
    with TestBroker(tmp_path / "data") as broker:
        for name in ("gone", "there"):
            broker.create_topic(name, configs={"tidelog.durability": durability})
            broker.produce(name, ["first"])
        folder = broker.data / f"{broker.cluster.topic('gone').topic_id.hex()}-0"
        if how == "removed":
            shutil.rmtree(folder)
        else:
            folder.rename(tmp_path / "elsewhere")
        with RawConnection(broker.bootstrap) as connection:
            for _ in range(2):
                reply = connection.call(produce("gone", batch_of(b"second"), acks=-1), PRODUCE, ProduceResponse)
                assert produced(reply) == ErrorCode.KAFKA_STORAGE_ERROR
            assert produced(connection.call(produce("there", batch_of(b"x")), PRODUCE, ProduceResponse)) == 0
        broker.kill()
        if how == "renamed":
            (tmp_path / "elsewhere").rename(folder)
            broker.start()
            assert [row.value for row in broker.records("gone")][:1] == [b"first"]


@proves("T1", "T6")
def test_an_end_is_known_a_second_after_it_was_acked_also_after_a_kill(tmp_path: Path) -> None:
    with TestBroker(tmp_path / "data") as broker:
        broker.create_topic("orders", partitions=2)
        broker.produce("orders", ["a", "b", "c"], partition=1)
        name = f"{broker.cluster.topic('orders').topic_id.hex()}-1"
        eventually(lambda: newest_ends(broker.data).get(name), lambda end: end == (0, 3, 0))
        broker.kill()
        shutil.rmtree(broker.data / name)
        broker.start()
        with RawConnection(broker.bootstrap) as connection:
            for partition, code in ((1, ErrorCode.KAFKA_STORAGE_ERROR), (0, 0)):
                asked = produce("orders", batch_of(b"d"), partition=partition)
                assert produced(connection.call(asked, PRODUCE, ProduceResponse)) == code
