"""A capture that ends at a step of its own, as a process ends that is killed: nothing is tidied up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tidelog.capture import running
from tidelog.client.transactions import State
from tidelog.control.owner import Owner

STEPS = ("before produce", "after produce", "before commit", "after commit", "before confirm", "after confirm")


class Killed(BaseException):
    """Nobody catches it."""


@contextmanager
def killing(monkeypatch: pytest.MonkeyPatch, stream: type[Any], step: str, turn: int) -> Iterator[Callable[[], int]]:
    """Ends a capture at the nth time that it comes to a step. How often it has come there."""
    seen = 0
    owners: list[Owner] = []
    store, transaction, confirm = running._Session._store, Owner.transaction, stream.confirm

    def at(name: str, owner: Owner | None) -> None:
        nonlocal seen
        seen += name == step
        if name == step and seen == turn:
            for one in [owner] if owner is not None else owners:
                one._transactions.state = State.NEW  # so that nothing is aborted: a dead process sends nothing
            raise Killed

    def stored(self: Any, outgoing: Any, progress: Any, complete_ms: int | None = None) -> None:
        at("before produce", self._owner)
        store(self, outgoing, progress, complete_ms)
        outgoing._transactions.producer.flush()
        at("after produce", self._owner)

    @contextmanager
    def transacted(self: Owner) -> Iterator[Any]:
        owners.append(self)
        with transaction(self) as outgoing:
            yield outgoing
            at("before commit", self)
        at("after commit", self)

    def confirmed(self: Any, position: Any) -> None:
        at("before confirm", None)
        confirm(self, position)
        if hasattr(self, "prune"):
            self.prune()
        at("after confirm", None)

    with monkeypatch.context() as patched:
        patched.setattr(running._Session, "_store", stored)
        patched.setattr(Owner, "transaction", transacted)
        patched.setattr(stream, "confirm", confirmed)
        yield lambda: seen
