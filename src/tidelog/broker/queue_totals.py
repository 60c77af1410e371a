"""What the broker tells of its queues, in all: in its status, and so in metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.queues.window import LOCKED, PARKED

if TYPE_CHECKING:
    from tidelog.broker.queue_coordinator import QueueCoordinator


def queue_totals(queues: QueueCoordinator | None) -> dict[str, int]:
    """None where there are no share groups."""
    kept = queues.state.queues.values() if queues is not None else ()
    windows = [queue.window for by_place in kept for queue in by_place.values()]
    return {
        "queue_in_flight": sum(window.held[LOCKED] for window in windows),
        "queue_delayed": sum(window.held[PARKED] for window in windows),
        "queue_redelivered": queues.redelivered if queues is not None else 0,
        "queue_dead_letters": queues.burying.buried if queues is not None else 0,
        "queue_delays_refused": queues.delays_refused if queues is not None else 0,
    }
