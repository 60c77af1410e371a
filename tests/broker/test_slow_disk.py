"""A disk that takes its time: what waits for it, and how much."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import pytest
from raw import RawConnection, batch_of, fetch, frame_of, produce

from proving import proves
from tidelog.broker.server import Server
from tidelog.broker.settings.configuring import load_broker_config
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.log.files import Buffer, RealFiles
from tidelog.logger import Logger
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.fetch import FetchResponse
from tidelog.wire.messages.produce import ProduceResponse

HELLO = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
PATIENCE_S = 180.0
STUCK_S = 1.0
MEMORY = 2 << 20
BATCHES = 5000


class HeldFiles(RealFiles):
    """Writes and syncs wait while they are held."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.go.set()

    def write(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        assert self.go.wait(PATIENCE_S)
        return super().write(fd, buffers, position)

    def sync(self, fd: int) -> None:
        assert self.go.wait(PATIENCE_S)
        super().sync(fd)


class HeldSyncs(HeldFiles):
    """Writes go through; syncs wait while they are held, and `written` says that one has been asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Event()

    def write(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        return RealFiles.write(self, fd, buffers, position)

    def sync(self, fd: int) -> None:
        self.written.set()
        super().sync(fd)


@contextmanager
def serving(folder: Path, files: HeldFiles) -> Iterator[str]:
    """A broker with a topic `t` that has a record; its address."""
    settings = {"log.dirs": str(folder), "listeners": "127.0.0.1:0", "queued.max.request.bytes": MEMORY}
    server = Server(load_broker_config(settings), Logger(StringIO()), files)
    server.start()
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    bootstrap = f"127.0.0.1:{server.addresses[0][1]}"
    try:
        with Cluster(bootstrap) as cluster:
            topics.create(cluster, "t")
        assert append(bootstrap, b"first") == 0
        yield bootstrap
    finally:
        files.go.set()
        server.stop_soon()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def append(bootstrap: str, value: bytes) -> int:
    with RawConnection(bootstrap) as connection:
        response = connection.call(produce("t", batch_of(value)), 9, ProduceResponse)
        return response.responses[0].partition_responses[0].base_offset


def is_answered(connection: RawConnection, bootstrap: str) -> bool:
    """Asked after the broker has had two turns for others, and so one for this."""
    with RawConnection(bootstrap) as other:
        for _ in range(2):
            other.call(HELLO, 3, ApiVersionsResponse)
    return connection.has_answer()


@proves("T1", "T6")
@pytest.mark.parametrize("acks", [1, -1])
def test_what_is_written_and_not_synced_is_neither_acked_nor_seen(tmp_path: Path, acks: int) -> None:
    files = HeldSyncs()
    with (
        serving(tmp_path, files) as bootstrap,
        RawConnection(bootstrap) as writer,
        RawConnection(bootstrap) as reader,
    ):
        files.written.clear()
        files.go.clear()
        writer.send(produce("t", batch_of(b"second"), acks=acks), 9)
        assert files.written.wait(PATIENCE_S), "it is in its file, and its sync has begun"
        assert not is_answered(writer, bootstrap)
        assert seen_at(reader, 1) == (1, b"")
        files.go.set()
        (answer,) = writer.receive(ProduceResponse, 9)[1].responses[0].partition_responses
        assert (answer.error_code, answer.base_offset) == (0, 1)
        high_watermark, records = seen_at(reader, 1)
        assert high_watermark == 2 and b"second" in records


def seen_at(reader: RawConnection, offset: int) -> tuple[int, bytes]:
    """The end of what may be seen, and what is there from this offset on."""
    (part,) = reader.call(fetch("t", offset), 12, FetchResponse).responses[0].partitions
    return part.high_watermark, bytes(part.records or b"")


@proves("T1")
def test_a_batch_that_is_sent_again_is_not_acked_before_its_first_copy_is_synced(tmp_path: Path) -> None:
    files = HeldFiles()
    request = produce("t", batch_of(b"once", producer_id=7, producer_epoch=0, base_sequence=0))
    with (
        serving(tmp_path, files) as bootstrap,
        RawConnection(bootstrap) as first,
        RawConnection(bootstrap) as second,
    ):
        files.go.clear()
        for connection in (first, second):
            connection.send(request, 9)
            assert not is_answered(connection, bootstrap)
        files.go.set()
        offsets = [
            connection.receive(ProduceResponse, 9)[1].responses[0].partition_responses[0].base_offset
            for connection in (first, second)
        ]
        assert offsets == [1, 1]


@proves("T5")
def test_who_wants_no_acks_is_slowed_down_when_the_memory_for_requests_is_used_up(tmp_path: Path) -> None:
    files = HeldFiles()
    frames = memoryview(frame_of(produce("t", batch_of(b"x" * 7000), acks=0), 9) * BATCHES)
    with serving(tmp_path, files) as bootstrap, RawConnection(bootstrap) as connection:
        files.go.clear()
        connection.socket.settimeout(STUCK_S)
        sent = 0
        try:
            while sent < len(frames):
                sent += connection.socket.send(frames[sent:])
        except TimeoutError:
            pass
        assert sent < len(frames), "all of it is in memory, and none of it on disk"
        files.go.set()
        connection.socket.settimeout(PATIENCE_S)
        connection.socket.sendall(frames[sent:])
        connection.send(produce("t", batch_of(b"last")), 9)
        response = connection.receive(ProduceResponse, 9)[1]
        assert response.responses[0].partition_responses[0].base_offset == 1 + BATCHES
