"""What a supervisor such as systemd is told: ready, alive, stopping. Nothing where no NOTIFY_SOCKET is set.

A stop waits for micro-batches, so it is told meanwhile that this process is alive, and, where all ends, that more time
is needed. Not for longer than a stop may take, though: one that hangs is the supervisor's to end.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Collection
from concurrent.futures import Future
from contextlib import suppress

READY, STOPPING, ALIVE = "READY=1", "STOPPING=1", "WATCHDOG=1"
MORE_TIME = f"EXTEND_TIMEOUT_USEC={10_000_000}"  # from when it is told: 10 seconds
TELL_EVERY_S = 0.2
LOOK_S = 0.02


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


def tell_until_done(futures: Collection[Future[None]], *lines: str, at_most_s: float) -> None:
    """By no `wait` of theirs: locks may wait by the time of day (`clock.rest`)."""
    tell_at = time.monotonic() + TELL_EVERY_S
    deadline = time.monotonic() + at_most_s
    while not all(one.done() for one in futures) and (now := time.monotonic()) < deadline:
        if now >= tell_at:
            notify(*lines)
            tell_at = now + TELL_EVERY_S
        time.sleep(LOOK_S)
