"""A network that breaks on purpose, put in at the client's own seam: real sockets, cut before or after a request."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tidelog.client.address import Address
from tidelog.client.transport import Buffer, Transport, plain


class BreakingTransport:
    """Breaks at a send (nothing goes out), or at a receive (the request went out, its answer is lost)."""

    def __init__(self, inner: Transport, network: BreakingNetwork) -> None:
        self._inner = inner
        self._network = network

    def send(self, chunks: Sequence[Buffer], deadline: float) -> None:
        if self._network.breaks("send"):
            raise ConnectionResetError(104, "broken on purpose before a send")
        self._inner.send(chunks, deadline)
        if self._network.breaks("answer"):
            # Long enough for the broker to have worked on it: only its answer is lost.
            self._inner.receive_into(memoryview(bytearray(4)), deadline)
            raise ConnectionResetError(104, "broken on purpose after a send")

    def receive_into(self, view: memoryview, deadline: float) -> None:
        self._inner.receive_into(view, deadline)

    def pending(self) -> bool:
        return self._inner.pending()

    def fileno(self) -> int:
        return self._inner.fileno()

    def close(self) -> None:
        self._inner.close()


class BreakingNetwork:
    """A `Dial`. Each send breaks with chance `rate` while `armed`; half of the time after the broker has answered."""

    def __init__(self, seed: int, rate: float) -> None:
        self._random = Random(seed)
        self._rate = rate
        self.armed = False
        self.broken: list[str] = []

    def __call__(self, address: Address, timeout_s: float) -> Transport:
        return BreakingTransport(plain(address, timeout_s), self)

    def breaks(self, where: str) -> bool:
        if self.armed and self._random.random() < self._rate / 2:
            self.broken.append(where)
            return True
        return False
