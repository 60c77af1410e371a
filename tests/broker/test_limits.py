"""Limits: what is refused, by name, and that the rest goes on."""

from __future__ import annotations

import resource
import subprocess
import sys
import time

import pytest
from raw import RawConnection, batch_of, produce

from proving import proves
from tidelog.broker.embedded import Broker
from tidelog.broker.housekeeping import Sample, hours_left
from tidelog.logger import SELDOM_S
from tidelog.testing.broker import TestBroker
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog.wire.messages.produce import ProduceResponse

HELLO = ApiVersionsRequest(client_software_name="raw", client_software_version="1")


@proves("T5")
@pytest.mark.tidelog(settings={"max.connections.per.ip": 3})
def test_connections_of_one_address_are_limited_and_the_others_go_on(tidelog_broker: TestBroker):
    open_ones = [RawConnection(tidelog_broker.bootstrap) for _ in range(3)]
    for connection in open_ones:
        connection.call(HELLO, 3, ApiVersionsResponse)
    with RawConnection(tidelog_broker.bootstrap) as one_too_many:
        assert one_too_many.is_closed()
    open_ones.pop().socket.close()
    for connection in open_ones:
        assert connection.call(HELLO, 3, ApiVersionsResponse).error_code == 0
    for connection in open_ones:
        connection.socket.close()


@proves("T5")
def test_the_limit_of_connections_can_be_altered_while_the_broker_runs(tidelog_broker: TestBroker):
    limit = AlterableConfig(name="max.connections.per.ip", config_operation=0, value="1")
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[limit])
    with RawConnection(tidelog_broker.bootstrap) as first:
        request = IncrementalAlterConfigsRequest(resources=[resource])
        assert first.call(request, 1, IncrementalAlterConfigsResponse).responses[0].error_code == 0
        with RawConnection(tidelog_broker.bootstrap) as second:
            assert second.is_closed()


@proves("T5")
@pytest.mark.tidelog(settings={"socket.request.max.bytes": 10_000})
def test_a_request_above_the_limit_ends_its_connection(tidelog_broker: TestBroker):
    tidelog_broker.create_topic("t")
    with RawConnection(tidelog_broker.bootstrap) as connection:
        connection.send(produce("t", batch_of(b"x" * 20_000)), 9)
        assert connection.is_closed()
    with RawConnection(tidelog_broker.bootstrap) as connection:
        assert connection.call(produce("t", batch_of(b"x" * 5_000)), 9, ProduceResponse)


@proves("T5")
@pytest.mark.parametrize(
    ("said", "named"), [(b"\x16\x03\x01\x02\x00\x01", "speaks TLS"), (b"GET / HTTP/1.1\r\n\r\n", "speaks HTTP")]
)
def test_who_speaks_another_protocol_is_told_apart(tmp_path, capfd, said: bytes, named: str):
    settings = {"tidelog.log.level": "INFO"}
    with Broker(tmp_path, settings=settings) as broker, RawConnection(broker.bootstrap) as connection:
        connection.socket.sendall(said)
        assert connection.is_closed()
    assert named in capfd.readouterr().err


@pytest.mark.full
@proves("T5")
def test_without_file_descriptors_accepting_pauses_and_the_connected_go_on(tmp_path):
    def few_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))

    command = [sys.executable, "-m", "tidelog", "up", "--data", str(tmp_path), "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=few_files)
    assert process.stdout is not None and process.stderr is not None
    try:
        bootstrap = process.stdout.readline().split()[-1]
        connections = [RawConnection(bootstrap) for _ in range(60)]
        assert "accepting paused" in process.stderr.readline()
        assert connections[0].call(HELLO, 3, ApiVersionsResponse).error_code == 0
        began = time.monotonic()
        time.sleep(2.5)  # so long that accepting is tried again, in vain
        for connection in connections[1:]:
            connection.socket.close()
        with RawConnection(bootstrap) as late:
            assert late.call(HELLO, 3, ApiVersionsResponse).error_code == 0
        process.terminate()
        more = process.stderr.read().count("accepting paused")
        assert more <= (time.monotonic() - began) // SELDOM_S, "one line, however long it lasts"
    finally:
        process.terminate()
        process.wait(180)
        process.stdout.close()
        process.stderr.close()


@proves("T5")
def test_the_limit_of_open_files_is_raised_to_what_the_system_allows(tmp_path):
    def few_at_first() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 900))

    command = [sys.executable, "-m", "tidelog", "up", "--data", str(tmp_path), "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=few_at_first)
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith("ready on ")
        assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (900, 900)
    finally:
        process.terminate()
        process.wait(180)
        process.stdout.close()


def watched(*free_bytes: int, every_s: float = 1800) -> list[Sample]:
    return [Sample(number * every_s, free) for number, free in enumerate(free_bytes)]


@proves("T6")
@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        (watched(), None),
        (watched(100), None),
        (watched(100, 100, 100), None),
        (watched(100, 150, 200), None),
        (watched(100, 95, 90), 9.0),
        (watched(100, 99, 50), 25.0),
        (watched(100, 60, 50), 2.5),
    ],
)
def test_the_hours_until_the_disk_is_full_are_those_at_the_present_rate(samples, expected):
    assert hours_left(samples) == expected


@proves("T6")
@pytest.mark.parametrize(
    "samples",
    [
        watched(10_000, 9_000, every_s=10),
        watched(*range(10_000, 7_100, -100), every_s=10),  # not yet five minutes
        watched(10_000, *[4_000] * 40, every_s=10),  # one file, and then nothing
        watched(*[10_000] * 40, 4_000, every_s=10),
    ],
    ids=["two looks", "too short", "one jump at first", "one jump at last"],
)
def test_no_alarm_comes_from_the_first_minutes_or_from_one_large_file(samples):
    assert hours_left(samples) is None
