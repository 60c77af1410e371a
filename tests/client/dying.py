"""Networks that end something at a request of one's choice: the client itself, or whatever a test wants done there.

Requests are counted over all connections of a cluster, and told apart by their API key.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from typing import Protocol

from tidelog.client.address import Address
from tidelog.client.transport import Buffer, Transport, plain


class Watcher(Protocol):
    """A network that looks at each request `before` it goes out and `after`; `await_answer` waits for its answer."""

    def before(self, api_key: int, /) -> None: ...

    def after(self, api_key: int, await_answer: Callable[[], None], /) -> None: ...


class WatchedTransport:
    def __init__(self, inner: Transport, network: Watcher) -> None:
        self._inner = inner
        self._network = network

    def send(self, chunks: Sequence[Buffer], deadline: float) -> None:
        api_key = int.from_bytes(b"".join(bytes(chunk) for chunk in chunks[:1])[4:6], "big")
        self._network.before(api_key)
        self._inner.send(chunks, deadline)
        self._network.after(api_key, lambda: self._inner.receive_into(memoryview(bytearray(4)), deadline))

    def receive_into(self, view: memoryview, deadline: float) -> None:
        self._inner.receive_into(view, deadline)

    def pending(self) -> bool:
        return self._inner.pending()

    def fileno(self) -> int:
        return self._inner.fileno()

    def close(self) -> None:
        self._inner.close()


class DyingNetwork:
    """A `Dial`: this very process is killed at step `step`; each request has two, before it goes out and when its
    answer is there.
    """

    def __init__(self, step: int) -> None:
        self._left = step

    def __call__(self, address: Address, timeout_s: float) -> Transport:
        return WatchedTransport(plain(address, timeout_s), self)

    def before(self, _api_key: int) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def after(self, _api_key: int, await_answer: Callable[[], None]) -> None:
        self._left -= 1
        if self._left == 0:
            await_answer()
            os.kill(os.getpid(), signal.SIGKILL)


class InterruptedNetwork:
    """A `Dial`: `act` once, before a request of this API goes out or when its answer is there, and the connection is
    gone.
    """

    def __init__(self, api_key: int, act: Callable[[], None], *, answered: bool) -> None:
        self._api_key = api_key
        self._act: Callable[[], None] | None = act
        self._answered = answered

    def __call__(self, address: Address, timeout_s: float) -> Transport:
        return WatchedTransport(plain(address, timeout_s), self)

    def before(self, api_key: int) -> None:
        if not self._answered:
            self._interrupt(api_key, lambda: None)

    def after(self, api_key: int, await_answer: Callable[[], None]) -> None:
        if self._answered:
            self._interrupt(api_key, await_answer)

    def _interrupt(self, api_key: int, first: Callable[[], None]) -> None:
        if api_key == self._api_key and self._act is not None:
            act, self._act = self._act, None
            first()
            act()
            raise ConnectionResetError(104, "broken on purpose")
