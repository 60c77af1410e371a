"""A process with a store as a part of a deployment: what it is called, when it has worked, and who clears up after it.

    seats.web1-4711     of store `seats`, on host web1, process 4711: each process that runs it has a report of its own
    seats               all of them: a command to that name is one to each

Rules:
- Reports have `store`, `group`, and `member`: the id under which it was in the group last. Who is given partitions
  takes away the reports of members that are not there any more; one that has failed stays.
- To be started is not to work, and neither is to be loaded: one that fails on a command loads each time that it is
  tried. A store has worked when every partition that is its own has answered what came by topic before it looked, or
  found nothing there.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from threading import Event
from typing import Protocol

from tidelog.client.admin import groups
from tidelog.client.cluster import Cluster
from tidelog.control.health import FAILED, told_state
from tidelog.control.status import STORE, Report, read_status, take_away
from tidelog.errors import TidelogError
from tidelog.parts.blocking import Blocking, ThreadPart


class Working(Blocking, Protocol):
    """`worked` is set after work that came to its end, or where there was none; a follower's after each step."""

    worked: Event


class StorePart(ThreadPart):
    """`together` is the name of the store, which other processes run as well."""

    def __init__(self, store: Working) -> None:
        super().__init__(store)
        self.together = store.name
        self.name = part_name(store.name)
        self._worked = store.worked

    def start(self) -> None:
        self._worked.clear()
        super().start()

    def has_worked(self) -> bool:
        return self._worked.is_set()


def part_name(store: str) -> str:
    """Of this process."""
    return f"{store}.{socket.gethostname()}-{os.getpid()}"


def clear_reports(cluster: Cluster, store: str, group: str) -> None:
    """They are notes: where they cannot be read or taken away, they stay. One's own may have an older member's id."""
    with suppress(TidelogError):
        told = [one for one in read_status(cluster) if one.kind == STORE and one.name != part_name(store)]
        there = {one.member_id for one in groups.describe(cluster, group).members}  # after they told, not before
        for one in told:
            if _is_of_gone(one, group) and one.figures["member"] not in there:
                take_away(cluster, STORE, one.name)


def _is_of_gone(one: Report, group: str) -> bool:
    is_told = one.figures.get("group") == group and one.figures.get("member") is not None
    return is_told and told_state(one.figures) != FAILED
