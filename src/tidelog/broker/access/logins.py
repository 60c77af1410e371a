"""One login by SASL: what the client says, what it is answered, and who it is in the end.

    PLAIN           one message with the name and the password; checking it takes milliseconds (`Unverified`)
    SCRAM-SHA-256   two messages each way (`wire.scram`); checking costs microseconds
    SCRAM-SHA-512   the same

Rules:
- A name that nobody has is answered as one that somebody has: with a salt that is always the same for it, as long as
  users' salts are, with as many iterations as users have, and refused at the end with the same words after the same
  work. So nobody learns who has an account.
- What is wrong is not told in parts: wrong name, wrong password and wrong proof are one refusal.
"""

from __future__ import annotations

import hmac
import math
from typing import NamedTuple

from tidelog.broker.access.state import AccessState, Shape
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
DIGEST, DIGEST_BYTES = "sha512", 64
USUAL = Shape(MAX_ITERATIONS, SALT_BYTES)  # where there are no users yet: as `tidelog users add` makes them


class LoginRefused(PeerError):
    """A login that failed; `user` is whom it was for, where that was said."""

    def __init__(self, message: str, user: str | None = None) -> None:
        super().__init__(message)
        self.user = user


class LoginReply(NamedTuple):
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

    def step(self, message: bytes, state: AccessState) -> LoginReply | Unverified:
        """LoginRefused or ScramFault when it has failed."""
        if self.mechanism == PLAIN:
            return _plain(message, state)
        if self._exchange is None:
            first = read_client_first(message)
            self.user = first.user
            nobodys = decoy(state, first.user, self.mechanism)  # made for everybody: it takes its time
            self.kept = state.users.get((first.user, self.mechanism))
            self._exchange = ServerExchange(self.mechanism, first, self.kept or nobodys, self._nonce)
            return LoginReply(self._exchange.reply)
        reply = self._exchange.finish(message)
        if self.kept is None:  # nobody knows a password for a decoy; if somebody did, it would still be nobody's
            raise LoginRefused("no such user", self.user)
        if state.users.get((self.user or "", self.mechanism)) != self.kept:
            raise LoginRefused("the password was changed meanwhile", self.user)
        return LoginReply(reply, self.user)


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
    usual = next((mechanism for mechanism in HASHES if state.shapes.get(mechanism)), SHA_256)
    return Unverified(user, usual, decoy(state, user, usual), password)


def decoy(state: AccessState, user: str, mechanism: str) -> Credential:
    """What a name that nobody has is answered with: always the same, and no password's.

    It rests on a secret of this broker, so that nobody else can tell it from a real one.
    """
    assert state.secret, "made before the first login"
    shape = _shape_for(state, user, mechanism)

    def derived(what: str, size: int) -> bytes:
        """Another one with another shape: a user whose count of iterations has changed has a new salt, too."""
        told = f"{what}\0{mechanism}\0{user}\0{shape.iterations}\0{shape.salt_bytes}"
        blocks = range(math.ceil(size / DIGEST_BYTES))
        return b"".join(hmac.digest(state.secret, f"{told}\0{n}".encode(), DIGEST) for n in blocks)[:size]

    key_bytes = 32 if mechanism == SHA_256 else 64
    salt, stored_key, server_key = (
        derived(*one) for one in (("salt", shape.salt_bytes), ("stored", key_bytes), ("server", key_bytes))
    )
    return Credential(salt, shape.iterations, stored_key, server_key)


def _shape_for(state: AccessState, user: str, mechanism: str) -> Shape:
    """One that users have, as often as they have it. The highest draw of all shapes wins (weighted rendezvous hashing):
    when a user comes or goes, few names move to another shape, and the others are told what they were told before.
    """
    shapes = state.shapes.get(mechanism)
    if not shapes:
        return USUAL
    if len(shapes) == 1:
        return next(iter(shapes))

    def draw(shape: Shape) -> float:
        told = f"shape\0{mechanism}\0{user}\0{shape.iterations}\0{shape.salt_bytes}"
        drawn = int.from_bytes(hmac.digest(state.secret, told.encode(), DIGEST)[:6], "big")
        return shapes[shape] / -math.log((drawn + 0.5) / 2**48)

    return max(sorted(shapes), key=draw)
