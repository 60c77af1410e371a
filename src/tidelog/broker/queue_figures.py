"""What the broker's status tells of share groups: how many records of each are where, at this moment.

in_flight      acquired: somebody works on them
redelivered    not done, and delivered before without success; in flight or waiting for the next delivery
delayed        not due yet
dying          on their way to the dead-letter topic
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.queues.window import LOCKED, PARKED

if TYPE_CHECKING:
    from tidelog.broker.queues.state import Queues

GROUPS_TOLD = 1000


def figures(state: Queues) -> dict[str, dict[str, int]]:
    return {group: _of_group(state, group) for group in sorted(state.groups)[:GROUPS_TOLD]}


def _of_group(state: Queues, group: str) -> dict[str, int]:
    windows = [queue.window for queue in state.queues.get(group, {}).values()]
    return {
        "in_flight": sum(window.held[LOCKED] for window in windows),
        "redelivered": sum(window.tried for window in windows),
        "delayed": sum(window.held[PARKED] for window in windows),
        "dying": sum(span.size for window in windows for span in window.dying()),
    }
