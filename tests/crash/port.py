"""A port for a broker that is started later, or that dies and comes back while its clients try to reach it all the
time. No port is given twice, neither in a process nor to two that run tests side by side.
"""

from __future__ import annotations

import os
import random
import socket
from contextlib import suppress

# Below what the system gives to connections: such a port may be somebody's own end before the broker listens there. And
# a client that tries to reach a dead broker at such a port may be given that very port, is then connected to itself,
# and the broker cannot come back.
PORTS = range(20_000, 32_000)

_given: set[int] = set()


def free_port() -> int:
    """Of the ports of this process: with several workers (pytest-xdist) each has its own."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    ours = PORTS[worker :: int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))]
    while True:
        port = random.SystemRandom().choice(ours)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _given:
                _given.add(port)
                return port
