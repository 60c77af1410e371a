"""Connections to the JVM stay whole while this process has a child.

PySpark has one for each thread, and Spark an active session for each. A child that runs Python before it is a program
of its own (`preexec_fn`), or that goes on as a fork, has one thread. Python clears there what all others kept, py4j
ends their connections, and they are the very sockets of this process. The next question of such a thread then goes by a
new one, to a thread of the JVM that has no active session, where Spark finds no data source `tidelog` to write to.

So a child keeps what it was given, and uses none of it. Children of a thread meet this: those of a rebuild's appliers,
and a program's own.
"""

from __future__ import annotations

import os
from threading import get_ident
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_clients: list[Any] = []  # of py4j, for as long as this process lives
_kept: dict[int, list[Any]] = {}  # by the thread that forks: two may at once


def keep_connections(session: SparkSession) -> None:
    """From here on. A session of Spark Connect has none."""
    gateway: Any = getattr(getattr(session, "_sc", None), "_gateway", None)
    client = getattr(gateway, "_gateway_client", None)
    if not hasattr(client, "deque") or any(one is client for one in _clients):
        return
    _clients.append(client)
    if len(_clients) == 1 and hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_keep, after_in_parent=_let_go)


def _keep() -> None:
    """py4j alone has those that wait for a question; one that is under way is in the hands of who asked."""
    _kept[get_ident()] = [one for client in _clients for one in client.deque.copy()]


def _let_go() -> None:
    _kept.pop(get_ident(), None)
