"""Access as the broker has it: the fold of `__tidelog.access`, the settings that go with it, and what is remembered.

What may be done is decided in `acls`, what is refused in `rules`, who somebody is in `session`; here their answers are
kept for the next time (`allows` is asked for every topic of every request) until a rule or a setting changes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.broker.access import acls
from tidelog.broker.access import state as fold
from tidelog.broker.access.acls import Asker
from tidelog.broker.access.changes import REQUEST_PERCENTAGE
from tidelog.broker.access.entities import applying
from tidelog.broker.access.session import ANONYMOUS, Session
from tidelog.broker.access.state import AccessState, secret_record
from tidelog.broker.access.throttling import Meters
from tidelog.broker.decision import Decision
from tidelog.broker.folds import Folded, OnLost
from tidelog.broker.internal import TopicFold
from tidelog.broker.topics import ACCESS_TOPIC
from tidelog.broker.waiting import Scheduler
from tidelog.config import BrokerConfig
from tidelog.errors import StorageError
from tidelog.logger import Logger
from tidelog.wire.scram import HASHES, Credential

if TYPE_CHECKING:
    from tidelog.broker.access.session import ForGateway
    from tidelog.broker.broker import Broker
    from tidelog.broker.connection import Connection

SECRET_BYTES = 32
REMEMBERED_MAX = 20_000
SUPER_USERS_SEPARATOR = ";"

Done = Callable[[object, BaseException | None], None]
Question = tuple[Asker, int, int, str | None]  # operation, resource, name; None is a resource of any name


class Access(Folded[AccessState]):
    """Loop thread only."""

    def __init__(self, broker: Broker, on_lost: OnLost) -> None:
        super().__init__(ACCESS_TOPIC, TopicFold(fold.fresh, fold.apply, fold.to_records), on_lost)
        self._broker = broker
        self.beside: Callable[[Callable[[], object], Done], None] = broker.scheduler.in_thread
        self.on_change: Callable[[], None] | None = None
        self._remembered: dict[Question, bool] = {}
        self._remembered_at: tuple[object, int, BrokerConfig] = None, 0, broker.config
        self._index = acls.Index(())
        self._meters: Meters | None = None
        self._connected: dict[str, int] = {}

    @property
    def config(self) -> BrokerConfig:
        return self._broker.config

    @property
    def logger(self) -> Logger:
        return self._broker.logger

    @property
    def scheduler(self) -> Scheduler:
        return self._broker.scheduler

    def commit(self, decision: Decision) -> None:
        """StorageError when it could not be written; then nothing of it was applied."""
        self.internal.commit(decision, time.time_ns() // 1_000_000)
        if decision.records and self.on_change is not None:
            self.on_change()

    def admit(self, user: str) -> bool:
        """Counts one more connection of a user who has proved to be one; False when that is one too many."""
        have = self._connected.get(user, 0)
        if have >= self.config.int("tidelog.max.connections.per.user"):
            return False
        self._connected[user] = have + 1
        return True

    def leave(self, user: str) -> None:
        left = self._connected[user] - 1
        if left:
            self._connected[user] = left
        else:
            del self._connected[user]

    def ensure_secret(self) -> None:
        """What decoys rest on; made once, before the first login. Where it cannot be written, it is for this run."""
        if not self.state.secret:
            secret = os.urandom(SECRET_BYTES)
            try:
                self.commit(Decision([secret_record(secret)], []))
            except StorageError:
                self.state.secret = secret

    def is_user(self, name: str) -> bool:
        return any((name, mechanism) in self.state.users for mechanism in HASHES)

    def credentials(self, name: str) -> tuple[Credential | None, ...]:
        return tuple(self.state.users.get((name, mechanism)) for mechanism in HASHES)

    def session(
        self,
        connection: Connection,
        *,
        sasl: bool,
        user: str = ANONYMOUS,
        gateway: ForGateway | None = None,
    ) -> Session:
        return Session(self, connection, sasl=sasl, user=user, gateway=gateway)

    # Rules -------------------------------------------------------------------------------------------------------

    @property
    def authorises(self) -> bool:
        return bool(self.config.text("authorizer.class.name"))

    @property
    def guards_everybody(self) -> bool:
        """Whether clients of a listener without authentication need a session too."""
        return self.authorises or bool(self.state.quotas)

    def allows(self, asker: Asker, operation: int, resource: int, name: str) -> bool:
        def look() -> bool:
            about = self._index.about(resource, name)
            return acls.allows(about, asker, operation, resource, name, if_none=self._if_none)

        return self._remember((asker, operation, resource, name), look)

    def may_describe(self, user: str | None, host: str, topic: str) -> bool:
        asker = Asker(f"User:{user if user is not None else ANONYMOUS}", host)
        return self.allows(asker, acls.DESCRIBE, acls.TOPIC, topic)

    def allows_some(self, asker: Asker, operation: int, resource: int) -> bool:
        def look() -> bool:
            return acls.allows_some(self.state.acls, asker, operation, resource, if_none=self._if_none)

        return self._remember((asker, operation, resource, None), look)

    def _remember(self, key: Question, look: Callable[[], bool]) -> bool:
        remembered = self._fresh()
        known = remembered.get(key)
        if known is None:
            known = self._is_super(key[0]) or look()
            if len(remembered) >= REMEMBERED_MAX:
                remembered.clear()
            remembered[key] = known
            if not known:
                asker, operation, resource, name = key
                self.logger.debug(
                    "denied", principal=asker.principal, operation=operation, resource=resource, name=name
                )
        return known

    def _fresh(self) -> dict[Question, bool]:
        of_state, revision, config = self._remembered_at
        state = self.state  # another object after a refold
        if of_state is not state or revision != state.revision or config is not self.config:
            self._remembered.clear()
            self._index = acls.Index(state.acls)
            self._remembered_at = state, state.revision, self.config
        return self._remembered

    @property
    def _if_none(self) -> bool:
        return self.config.flag("allow.everyone.if.no.acl.found")

    def _is_super(self, asker: Asker) -> bool:
        named = (self.config.optional_text("super.users") or "").split(SUPER_USERS_SEPARATOR)
        return asker.principal in [one.strip() for one in named]

    # Quotas ------------------------------------------------------------------------------------------------------

    @property
    def quota_span_s(self) -> float:
        """The time in which a quota can be used up at once."""
        return (self.config.int("quota.window.num") - 1) * self.config.int("quota.window.size.seconds") or 1

    def charge(self, key: str, user: str, client: str | None, amount: float, *, unless_idle: bool = False) -> float:
        """How long the client has to rest after this, in seconds.

        With `unless_idle` what is above the quota is not counted, because it will not be sent; unless nothing was of
        late: else what is above it at once could never be.
        """
        found = applying(self.state.quotas, key, user, client or "")
        if found is None:
            return 0.0
        if self._meters is None:
            window_s = self.config.int("quota.window.size.seconds")
            self._meters = Meters(self.config.int("quota.window.num"), window_s)
        now_s = time.monotonic()
        meter = self._meters.meter(key, found.sharers)
        used_before = meter.used(now_s)
        meter.record(amount, now_s)
        wait_s = meter.wait_s(found.limit, now_s)
        if unless_idle and wait_s > 0:
            if not used_before:
                return 0.0
            meter.record(-amount, now_s)
        if key == REQUEST_PERCENTAGE:
            wait_s = min(wait_s, self.config.int("quota.window.size.seconds"))
        return wait_s
