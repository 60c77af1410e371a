"""Calls from the JVM into this process: foreachBatch, listeners of queries, sinks of the test driver.

py4j answers them in a thread that waits with select(), and select() knows no descriptor of 1024 or above: with one, the
thread ends, nobody is told, and who calls from the JVM waits for ever. A process with a broker has so many soon. So the
server is started with the session, when descriptors are mostly few, and not when it is first needed; and where they are
not few, py4j is given poll() in the place of select(), for this one wait.
"""

from __future__ import annotations

import os
import select
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SELECTABLE = 1024  # FD_SETSIZE, compiled into Python


def answer_calls(session: SparkSession) -> None:
    """As foreachBatch would when it is first used. A session of Spark Connect has no JVM here, and no need of it."""
    gateway: Any = getattr(getattr(session, "_sc", None), "_gateway", None)
    if gateway is None or gateway.__dict__.get("_callback_server") is not None:
        return
    from py4j import java_gateway as waiting
    from pyspark import java_gateway

    if _next_descriptor() >= SELECTABLE:
        waiting.select = Polling
    start: Any = java_gateway.ensure_callback_server_started
    start(gateway)


class Polling:
    """What py4j uses of the module `select`, for descriptors of any height."""

    @staticmethod
    def select(
        readable: Sequence[Any], writable: Sequence[Any], failed: Sequence[Any], timeout_s: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        poll = select.poll()
        by_descriptor = {one.fileno(): one for one in readable}
        for descriptor in by_descriptor:
            poll.register(descriptor, select.POLLIN)
        ready = poll.poll(None if timeout_s is None else timeout_s * 1000)
        return [by_descriptor[descriptor] for descriptor, _ in ready], [], []


def _next_descriptor() -> int:
    descriptor = os.open(os.devnull, os.O_RDONLY)
    os.close(descriptor)
    return descriptor
