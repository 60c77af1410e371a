"""States of now and of then, for who has no code of the app (HTTP): found beside the owner, answered by it.

    of now    as the owner has it in memory
    of then   {"version":3} or {"at_ms":...}, and "since": a version whose state it is compared with. The partition is
              read by a thread of its own, so that commands do not wait for it; then the owner's next transaction
              has the reply

Rules:
- Personal fields of a state are not shown: replies are read by whoever may send commands.
- A question of then is lost with its owner: who asks is not answered, and asks again. QUESTIONS_MAX wait at most.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from threading import Thread
from typing import Any

from tidelog.client.cluster import Cluster
from tidelog.errors import TidelogError, UsageError
from tidelog.sourcing.decider import Decider
from tidelog.sourcing.entity import Folding, LoadedEntity
from tidelog.sourcing.requests import PAST, Joint, PastAnswer, Request
from tidelog.sourcing.store_topics import StoreTopics
from tidelog.sourcing.time_travel import PERSONAL, PastState, difference, states

QUESTIONS_MAX = 100


def answer_from(decider: Decider[Any], entity: LoadedEntity, found: PastAnswer | Exception | None) -> PastAnswer:
    """`found` of then; else of now."""
    if isinstance(found, Exception):
        raise found
    return found or PastAnswer(shown(decider, entity.state), entity.version, entity.closed)


def shown(decider: Decider[Any], state: Any) -> Any:
    fields = decider.states.fields(state)
    if not isinstance(fields, dict):
        return fields
    return {**fields, **{one.name: PERSONAL for one in decider.states.personal if fields.get(one.name) is not None}}


class PastReader:
    """`offer` hands an answer to the owner. Its thread begins with the first question."""

    def __init__(
        self,
        named: StoreTopics,
        folding: Folding,
        connect: Callable[[], Cluster],
        offer: Callable[[Joint], bool],
    ) -> None:
        self._named, self._folding, self._connect, self._offer = named, folding, connect, offer
        self._queue: SimpleQueue[Joint | None] = SimpleQueue()
        self._thread: Thread | None = None

    def passed_on(self, joint: Joint) -> Joint:
        """What the owner is to be given instead: nothing but the position, where the answer comes later."""
        if len(joint.requests) != 1 or joint.fault is not None:
            return joint
        if joint.requests[0].kind != PAST or joint.requests[0].value in (None, b"{}"):
            return joint
        if self._queue.qsize() >= QUESTIONS_MAX:
            joint.requests[0].found = UsageError(f"{QUESTIONS_MAX} questions of then wait already; ask again later")
            return joint
        if self._thread is None:
            self._thread = Thread(target=self._run, name=f"store-{self._named.name}-past", daemon=True)
            self._thread.start()
        self._queue.put(joint)
        return Joint((), joint.position)

    def stop(self) -> None:
        """Does not wait: whatever it still finds, the owner takes nothing any more."""
        self._queue.put(None)

    def _run(self) -> None:
        while (joint := self._queue.get()) is not None:
            (request,) = joint.requests
            try:
                with self._connect() as cluster:
                    request.found = self._find(cluster, request)
            except TidelogError as error:
                request.found = error
            self._offer(Joint((request,), -1, joint.to))

    def _find(self, cluster: Cluster, request: Request) -> PastAnswer:
        wanted = moment_of(request.value or b"{}")
        history = states(cluster, self._named, request.entity, self._folding)
        return past_answer(self._folding.decider, history, **wanted)


def moment_of(value: bytes) -> dict[str, int | None]:
    try:
        fields = json.loads(value)
        return {name: _number(fields, name) for name in ("version", "at_ms", "since")}
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{value[:200]!r} does not say of when a state is asked for: {error!r}") from error


def _number(fields: Mapping[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name} is {value!r}")
    return value


def past_answer(
    decider: Decider[Any], history: Any, version: int | None, at_ms: int | None, since: int | None
) -> PastAnswer:
    """One walk over a history; no more than two of its states are kept. Pure."""
    then: PastState | None = None
    before: Any = None
    last = 0
    for past in history:
        last = past.version
        if past.version == since:
            before = shown(decider, past.state)
        if version is None and (at_ms is None or past.last is None or past.last.timestamp_ms <= at_ms):
            then = past
        if past.version == version:
            then = past
            break
    if then is None:
        raise UsageError(f"the history has {last} versions, and version {version} is asked for")
    if since is not None and since > then.version:
        raise UsageError(f"since is {since}, and the state is of version {then.version}; it is an elder one")
    fields = shown(decider, then.state)
    changes = None if since is None else [tuple(one) for one in difference(before, fields)]
    at = None if then.last is None else then.last.timestamp_ms
    return PastAnswer(fields, then.version, then.closed, at, changes)
