"""The group coordinator's shell: the fold of `__tidelog.groups`, and the clock that its pure machines ask for.

What a group decides is in `groups`; here it is appended, applied and answered (`internal`), and `tick` is called
when the next deadline has come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tidelog.broker.decision import Decision, Instant
from tidelog.broker.groups import state as fold
from tidelog.broker.groups.clock import awaken, next_deadline, rights_changed, tick, topics_changed
from tidelog.broker.groups.refusal import decide_abandonment, decide_refusal
from tidelog.broker.groups.settings import settings_from
from tidelog.broker.groups.state import Groups, MayDescribe
from tidelog.broker.internal import Fold, InternalTopic
from tidelog.broker.topics import GROUP_RESOURCE, GROUPS_TOPIC, Topics
from tidelog.broker.waiting import Scheduler, Timer
from tidelog.errors import StorageError
from tidelog.log.files import Files
from tidelog.log.log import Log


class Coordinator:
    def __init__(
        self,
        scheduler: Scheduler,
        now: Callable[[], Instant],
        on_lost: Callable[[StorageError], None],
        may_describe: MayDescribe | None = None,
        is_set_aside: Callable[[str], bool] | None = None,
    ) -> None:
        """Offsets of a topic that `is_set_aside` are kept: it may be given back."""
        self.internal = InternalTopic(GROUPS_TOPIC.name, Fold(fold.fresh, fold.apply, fold.to_records), on_lost)
        self._scheduler = scheduler
        self._now = now
        self._may_describe = may_describe
        self._is_set_aside = is_set_aside
        self._timer: Timer | None = None
        self._deadline: int | None = None

    @property
    def state(self) -> Groups:
        state: Groups = self.internal.state
        return state

    def start(self, log: Log, data: str, files: Files, settings: Mapping[str, object], topics: Topics) -> None:
        self.internal.recover(log, data, files)
        self._awaken(settings, topics)

    def refold(self, settings: Mapping[str, object], topics: Topics) -> None:
        """Back to what the log has. Members that it does not know join again, as they would after a restart."""
        abandoned = decide_abandonment(self.state)
        self.internal.refold()
        self._awaken(settings, topics)
        self.commit(abandoned)

    def _awaken(self, settings: Mapping[str, object], topics: Topics) -> None:
        self.state.live.overrides = lambda group: topics.altered(GROUP_RESOURCE, group)
        self.state.live.may_describe = self._may_describe
        if self._is_set_aside is not None:
            self.state.live.is_set_aside = self._is_set_aside
        self.commit(awaken(self.state, settings_from(settings), topics.by_name, self._now()))

    def commit(self, decision: Decision) -> None:
        try:
            self.internal.commit(decision, self._now().wall_ms)
        except StorageError:
            # Nothing of it was written or applied: everybody it concerns is told so, and tries again.
            self.internal.commit(decide_refusal(self.state, decision, self._now()), self._now().wall_ms)
        self._watch_clock()

    def answer_waiting(self) -> None:
        """Before a stop: whoever waits for the other members of a group is told to try again."""
        self.commit(decide_abandonment(self.state))

    def topics_changed(self, topics: Topics, changed: Iterable[str]) -> None:
        self.commit(topics_changed(self.state, topics.by_name, changed, self._now()))

    def rights_changed(self) -> None:
        self.commit(rights_changed(self.state, self._now()))

    def settings_changed(self, settings: Mapping[str, object]) -> None:
        self.state.live.settings = settings_from(settings)

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
