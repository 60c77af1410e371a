"""The group coordinator's shell: the fold of `__tidelog.groups`, and the clock that its pure machines ask for.

What a group decides is in `groups`; here it is appended, applied and answered (`internal`), and `tick` is called
when the next deadline has come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tidelog.broker.decision import Decision, Instant
from tidelog.broker.groups import state as fold
from tidelog.broker.groups.clock import awaken, next_deadline, tick, topics_changed
from tidelog.broker.groups.settings import settings_from
from tidelog.broker.groups.state import Groups
from tidelog.broker.internal import Fold, InternalTopic
from tidelog.broker.topics import GROUPS_TOPIC, Topic
from tidelog.broker.waiting import Scheduler, Timer
from tidelog.errors import StorageError
from tidelog.log.files import Files
from tidelog.log.log import Log


class Coordinator:
    def __init__(
        self, scheduler: Scheduler, now: Callable[[], Instant], on_lost: Callable[[StorageError], None]
    ) -> None:
        self.internal = InternalTopic(GROUPS_TOPIC.name, Fold(fold.fresh, fold.apply, fold.to_records), on_lost)
        self._scheduler = scheduler
        self._now = now
        self._timer: Timer | None = None
        self._deadline: int | None = None

    @property
    def state(self) -> Groups:
        state: Groups = self.internal.state
        return state

    def start(
        self, log: Log, data: str, files: Files, settings: Mapping[str, object], topics: Mapping[str, Topic]
    ) -> None:
        self.internal.recover(log, data, files)
        self.commit(awaken(self.state, settings_from(settings), topics, self._now()))

    def commit(self, decision: Decision) -> None:
        self.internal.commit(decision, self._now().wall_ms)
        self._watch_clock()

    def topics_changed(self, topics: Mapping[str, Topic], changed: Iterable[str]) -> None:
        self.commit(topics_changed(self.state, topics, changed, self._now()))

    def refold(self, settings: Mapping[str, object], topics: Mapping[str, Topic]) -> None:
        """Back to what the log has. Members that it does not know join again, as they would after a restart."""
        self.internal.refold()
        self.commit(awaken(self.state, settings_from(settings), topics, self._now()))

    def _watch_clock(self) -> None:
        deadline = next_deadline(self.state)
        if deadline == self._deadline:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._deadline = deadline
        if deadline is not None:
            delay_ms = max(0, deadline - self._now().monotonic_ms)
            self._timer = self._scheduler.call_later(delay_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._deadline = self._timer = None
        self.commit(tick(self.state, self._now()))
