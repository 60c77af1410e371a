"""The group coordinator's shell: the fold of `__tidelog.groups`, and the clock that its pure machines ask for.

What a group decides is in `groups`; here it is appended, applied and answered (`internal`), and `tick` is called
when the next deadline has come.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidelog.broker.decision import Decision
from tidelog.broker.folds import Folded, OnLost
from tidelog.broker.groups import state as fold
from tidelog.broker.groups.clock import awaken, next_deadline, rights_changed, tick, topics_changed
from tidelog.broker.groups.refusal import decide_abandonment, decide_refusal
from tidelog.broker.groups.settings import settings_from
from tidelog.broker.groups.state import Groups
from tidelog.broker.internal import TopicFold
from tidelog.broker.topics import GROUP_RESOURCE, GROUPS_TOPIC, Topics
from tidelog.broker.waiting import Timer
from tidelog.errors import StorageError

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker


class GroupCoordinator(Folded[Groups]):
    def __init__(self, broker: Broker, on_lost: OnLost) -> None:
        super().__init__(GROUPS_TOPIC, TopicFold(fold.fresh, fold.apply, fold.to_records), on_lost)
        self._broker = broker
        self._now = broker.now
        self._timer: Timer | None = None
        self._deadline: int | None = None

    def refold(self) -> None:
        """Members that the log does not know join again, as they would after a restart."""
        abandoned = decide_abandonment(self.state)
        super().refold()
        self.commit(abandoned)

    def awaken(self) -> None:
        topics, config, live = self._broker.topics, self._broker.config, self.state.live
        live.overrides = lambda group: topics.altered(GROUP_RESOURCE, group)
        live.may_describe = self._may_describe if config.text("authorizer.class.name") else None
        live.is_set_aside = self._broker.is_set_aside  # offsets of such a topic are kept: it may be given back
        self.commit(awaken(self.state, settings_from(config.values), topics.by_name, self._now()))

    def _may_describe(self, user: str | None, host: str, topic: str) -> bool:
        return self._broker.access.may_describe(user, host.removeprefix("/"), topic)

    def commit(self, decision: Decision) -> None:
        try:
            self.internal.commit(decision, self._now().wall_ms)
        except StorageError:
            # Nothing of it was written or applied: everybody it concerns is told so, and tries again.
            self.internal.commit(decide_refusal(self.state, decision, self._now()), self._now().wall_ms)
        self._watch_clock()

    def answer_waiting(self) -> None:
        """Whoever waits for the other members of a group."""
        self.commit(decide_abandonment(self.state))

    def topics_changed(self, topics: Topics, changed: Iterable[str]) -> None:
        self.commit(topics_changed(self.state, topics.by_name, changed, self._now()))

    def rights_changed(self) -> None:
        self.commit(rights_changed(self.state, self._now()))

    def settings_changed(self) -> None:
        self.state.live.settings = settings_from(self._broker.config.values)

    def _watch_clock(self) -> None:
        deadline = next_deadline(self.state)
        if deadline == self._deadline:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._deadline = deadline
        if deadline is not None:
            delay_ms = max(0, deadline - self._now().monotonic_ms)
            self._timer = self._broker.scheduler.call_later(delay_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._deadline = self._timer = None
        self.commit(tick(self.state, self._now()))
