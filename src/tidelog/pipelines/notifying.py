"""What a supervisor such as systemd is told: ready, alive, stopping. Nothing where no NOTIFY_SOCKET is set."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

READY, STOPPING, ALIVE = "READY=1", "STOPPING=1", "WATCHDOG=1"


def notify(*lines: str) -> bool:
    """Whether somebody was told."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.sendto("\n".join(lines).encode(), address)
        return True
    return False
