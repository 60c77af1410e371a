"""One login by SASL: what the client says, what it is answered, and who it is in the end.

    PLAIN           one message with the name and the password; checking it takes milliseconds (`Unverified`)
    SCRAM-SHA-256   two messages each way (`wire.scram`); checking costs microseconds
    SCRAM-SHA-512   the same

Rules:
- A name that nobody has is answered as one that somebody has: with a salt that is always the same for it, and refused
  at the end with the same words after the same work. So nobody learns who has an account.
- What is wrong is not told in parts: wrong name, wrong password and wrong proof are one refusal.
"""

from __future__ import annotations

import hmac
from typing import NamedTuple

from tidelog.broker.access.state import AccessState
from tidelog.errors import PeerError
from tidelog.wire.scram import (
    HASHES,
    MAX_ITERATIONS,
    SALT_BYTES,
    SHA_256,
    SHA_512,
    Credential,
    ServerExchange,
    is_password,
    read_client_first,
)

PLAIN = "PLAIN"
MECHANISMS = (SHA_256, SHA_512, PLAIN)
PLAIN_BYTES_MAX = 2048


class LoginRefused(PeerError):
    """A login that failed; `user` is whom it was for, where that was said."""

    def __init__(self, message: str, user: str | None = None) -> None:
        super().__init__(message)
        self.user = user


class Answer(NamedTuple):
    """What the client is told; `user` is who it is, once that is certain."""

    reply: bytes
    user: str | None = None


class Unverified(NamedTuple):
    """A password to be checked elsewhere than on the loop: `check` takes milliseconds."""

    user: str
    mechanism: str
    kept: Credential
    password: str

    def check(self) -> bool:
        return is_password(self.mechanism, self.kept, self.password)

    def __repr__(self) -> str:
        return f"Unverified({self.user!r})"


class Login:
    def __init__(self, mechanism: str, nonce: str) -> None:
        self.mechanism = mechanism
        self._nonce = nonce
        self._exchange: ServerExchange | None = None
        self.user: str | None = None  # whom the client says it is; of SCRAM, once its first message is read
        self.kept: Credential | None = None  # of the user who is about to prove that it knows the password

    def step(self, message: bytes, state: AccessState) -> Answer | Unverified:
        """LoginRefused or ScramFault when it has failed."""
        if self.mechanism == PLAIN:
            return _plain(message, state)
        if self._exchange is None:
            first = read_client_first(message)
            self.user = first.user
            self.kept = state.users.get((first.user, self.mechanism))
            self._exchange = ServerExchange(
                self.mechanism, first, self.kept or decoy(state, first.user, self.mechanism), self._nonce
            )
            return Answer(self._exchange.reply)
        reply = self._exchange.finish(message)
        if self.kept is None:  # nobody knows a password for a decoy; if somebody did, it would still be nobody's
            raise LoginRefused("no such user", self.user)
        if state.users.get((self.user or "", self.mechanism)) != self.kept:
            raise LoginRefused("the password was changed meanwhile", self.user)
        return Answer(reply, self.user)


def _plain(message: bytes, state: AccessState) -> Unverified:
    parts = bytes(message).split(b"\0") if len(message) <= PLAIN_BYTES_MAX else []
    try:
        identity, user, password = (part.decode() for part in parts)
    except (ValueError, UnicodeDecodeError) as error:
        raise LoginRefused("a PLAIN message is not IDENTITY NUL NAME NUL PASSWORD") from error
    if not user or not password or identity not in ("", user):
        raise LoginRefused("a PLAIN message needs a name and a password, and no other identity", user or None)
    for mechanism in HASHES:
        kept = state.users.get((user, mechanism))
        if kept is not None:
            return Unverified(user, mechanism, kept, password)
    return Unverified(user, SHA_256, decoy(state, user, SHA_256), password)


def decoy(state: AccessState, user: str, mechanism: str) -> Credential:
    """What a name that nobody has is answered with: always the same, and no password's.

    It rests on a secret of this broker, so that nobody else can tell it from a real one.
    """
    assert state.secret, "made before the first login"

    def derived(what: str, size: int) -> bytes:
        return hmac.digest(state.secret, f"{what}\0{mechanism}\0{user}".encode(), "sha512")[:size]

    key_bytes = 32 if mechanism == SHA_256 else 64
    iterations = _usual_iterations(state, mechanism)
    return Credential(
        derived("salt", SALT_BYTES), iterations, derived("stored", key_bytes), derived("server", key_bytes)
    )


def _usual_iterations(state: AccessState, mechanism: str) -> int:
    """As many as the first user has: accounts are mostly made by one tool, with one count."""
    return next((kept.iterations for (_, kind), kept in state.users.items() if kind == mechanism), MAX_ITERATIONS)
