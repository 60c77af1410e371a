"""Thousands who connect by TLS and leave: the broker's memory and descriptors stay where they were."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from access import Client

import tidelog
from certificates import Certificates
from proving import proves
from tidelog.wire.messages.api_versions import ApiVersionsRequest

HELLO = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
RECONNECTS, THREADS = 5000, 4
GROWTH_MB = 40


def memory_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@proves("T10")
@pytest.mark.soak
def test_five_thousand_reconnects_by_tls_leave_nothing_behind(certificates: Certificates, tmp_path: Path) -> None:
    settings = {"ssl.keystore.location": certificates.broker}
    context = certificates.client_context()
    failed: list[BaseException] = []

    def reconnect(port: int, times: int) -> None:
        try:
            for _ in range(times):
                with Client(port, context) as client:
                    assert client.call(HELLO, 3).error_code == 0
        except BaseException as error:
            failed.append(error)

    with tidelog.Broker(tmp_path / "data", listen="SSL://127.0.0.1:0", settings=settings) as broker:
        assert broker.pid is not None
        port = int(broker.bootstrap.rpartition(":")[2])
        reconnect(port, 200)
        before = memory_mb(broker.pid), descriptors(broker.pid)
        threads = [threading.Thread(target=reconnect, args=(port, RECONNECTS // THREADS)) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        reconnect(port, 1)
        assert failed == []
        assert memory_mb(broker.pid) - before[0] < GROWTH_MB
        assert descriptors(broker.pid) <= before[1] + THREADS
