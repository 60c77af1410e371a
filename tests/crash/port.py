"""A port for a broker that dies and comes back, while its clients try to reach it all the time."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

# Below what the system gives to connections: a client that tries to reach a dead broker at such a port may be given
# that very port as its own, is then connected to itself, and the broker cannot come back.
PORTS = range(20_000, 32_000)


def free_port() -> int:
    while True:
        port = random.SystemRandom().choice(PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
