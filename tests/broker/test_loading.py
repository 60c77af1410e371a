"""Partitions that must be recovered first: whoever names one waits for it, in order, and the loop waits for nobody."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from raw import RawConnection, batch_of, fetch, produce
from test_partitions import connect, produced, serving

from proving import proves
from tidelog.broker.server import Server
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.log.files import Entry, RealFiles
from tidelog.record.columns import decode
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.fetch import FetchResponse
from tidelog.wire.messages.produce import ProduceResponse

PATIENCE_S = 60.0
PRODUCE, FETCH = 9, 12
HELLO = ApiVersionsRequest(client_software_name="raw", client_software_version="1")


class SlowFiles(RealFiles):
    """Who lists a folder of these waits until `go`: that is how loading begins."""

    def __init__(self) -> None:
        super().__init__()
        self.slow: set[str] = set()
        self.asked, self.go = threading.Event(), threading.Event()

    def list(self, path: str) -> list[Entry]:
        if path in self.slow:
            self.asked.set()
            assert self.go.wait(PATIENCE_S)
        return super().list(path)


@contextmanager
def recovering(data: Path, *, clean: bool = False) -> Iterator[tuple[Server, SlowFiles]]:
    """A broker after a stop, whose partition of topic `t`, with one record, takes its time to load."""
    files = SlowFiles()
    with serving(data, files) as server:
        host, port = server.addresses[0]
        with Cluster(f"{host}:{port}") as cluster:
            for name in ("t", "other"):
                topics.create(cluster, name)
            folder = f"{data}/{cluster.topic('t').topic_id.hex()}-0"
        with connect(server) as connection:
            for name in ("t", "other"):
                assert produced(connection.call(produce(name, batch_of(b"first")), PRODUCE, ProduceResponse)) == 0
    if not clean:
        (data / "clean").unlink()
    files.slow.add(folder)
    with serving(data, files) as server:
        try:
            yield server, files
        finally:
            files.go.set()


def check_that_others_go_on(server: Server, files: SlowFiles, *waiting: RawConnection) -> None:
    assert files.asked.wait(PATIENCE_S)
    with connect(server) as other:
        other.socket.settimeout(PATIENCE_S / 2)
        for _ in range(2):
            other.call(HELLO, 3, ApiVersionsResponse)
        assert produced(other.call(produce("other", batch_of(b"x")), PRODUCE, ProduceResponse)) == 0
    assert not any(connection.has_answer() for connection in waiting)


def values(server: Server, topic: str) -> list[bytes | None]:
    with connect(server) as connection:
        response = connection.call(fetch(topic, 0), FETCH, FetchResponse)
    return [row.value for row in decode(response.responses[0].partitions[0].records).rows()]


@proves("T6")
@pytest.mark.parametrize("clean", [False, True], ids=["after a crash", "after a clean stop"])
def test_batches_for_a_partition_that_is_being_loaded_wait_in_their_order_and_nobody_else_does(
    tmp_path: Path, clean: bool
) -> None:
    with recovering(tmp_path, clean=clean) as (server, files), connect(server) as one, connect(server) as two:
        for number in range(5):
            one.send(produce("t", batch_of(b"%d" % number, producer_id=7, base_sequence=number, producer_epoch=0)), 9)
        check_that_others_go_on(server, files, one)
        two.send(produce("t", batch_of(b"behind them")), PRODUCE)
        files.go.set()
        replies = [one.receive(ProduceResponse, PRODUCE)[1].responses[0].partition_responses[0] for _ in range(5)]
        assert [(reply.error_code, reply.base_offset) for reply in replies] == [(0, 1 + at) for at in range(5)]
        assert produced(two.receive(ProduceResponse, PRODUCE)[1]) == 0
        assert values(server, "t") == [b"first", b"0", b"1", b"2", b"3", b"4", b"behind them"]


@proves("T6")
def test_a_fetch_of_a_partition_that_is_being_recovered_waits_and_nobody_else_does(tmp_path: Path) -> None:
    with recovering(tmp_path) as (server, files), connect(server) as reader:
        reader.send(fetch("t", 0), FETCH)
        check_that_others_go_on(server, files, reader)
        files.go.set()
        (part,) = reader.receive(FetchResponse, FETCH)[1].responses[0].partitions
        assert [row.value for row in decode(part.records).rows()] == [b"first"]


@proves("T6")
def test_without_acks_batches_wait_for_their_partition_too_and_are_silent(tmp_path: Path) -> None:
    with recovering(tmp_path) as (server, files), connect(server) as connection:
        for number in range(3):
            connection.send(produce("t", batch_of(b"%d" % number), acks=0), PRODUCE)
        connection.send(HELLO, 3)
        check_that_others_go_on(server, files, connection)
        files.go.set()
        connection.receive(ApiVersionsResponse, 3)
        assert produced(connection.call(produce("t", batch_of(b"last")), PRODUCE, ProduceResponse)) == 0
        assert values(server, "t") == [b"first", b"0", b"1", b"2", b"last"]


@proves("T6")
def test_a_topic_that_is_deleted_while_it_is_loaded_takes_nothing(tmp_path: Path) -> None:
    with recovering(tmp_path) as (server, files), connect(server) as connection:
        connection.send(produce("t", batch_of(b"too late")), PRODUCE)
        assert files.asked.wait(PATIENCE_S)
        host, port = server.addresses[0]
        with Cluster(f"{host}:{port}") as cluster:
            topics.delete(cluster, "t")
        files.go.set()
        code = produced(connection.receive(ProduceResponse, PRODUCE)[1])
        assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@proves("T6", "T10")
def test_a_client_is_not_told_where_the_broker_keeps_its_files(tmp_path: Path) -> None:
    """Here everything is gone that a clean stop had left."""
    with recovering(tmp_path, clean=True) as (server, files), connect(server) as connection:
        (folder,) = files.slow
        for path in Path(folder).glob("*.log"):
            path.unlink()
        files.go.set()
        response = connection.call(produce("t", batch_of(b"x")), PRODUCE, ProduceResponse)
        reply = response.responses[0].partition_responses[0]
        assert reply.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert reply.error_message == "the broker cannot use its files of this partition; the broker's log says why"
        told = server.broker.logger._stream.getvalue()  # type: ignore[attr-defined]
        assert f"folder={folder} expected='offsets 0 to 0' found='no records'" in told
