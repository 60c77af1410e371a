"""Who a request is, and the connections to the broker that are opened as that user.

The gateway knows no users: `Authorization: Basic` opens a SASL connection with that name and password, and whether they
are right is the broker's to say. So a connection that is open is the proof, and it is kept for the next request with
the same credentials. A bearer token is the same in one word, for programs that have a place for no more:

    tidelog_ + URL-safe base64 of USER:PASSWORD, without padding          made by `token`

A client's certificate opens a connection only beside the broker that started this gateway: that one gave it a secret to
say by which user a certificate was shown (`certified`), and names the user itself.

    idle        in `_idle`, logged in; taken by the next lease of the same credentials, closed after CLUSTER_IDLE_S
    leased      belongs to one thread until the end of `with`
    closed      after CLUSTER_AGE_MAX_S, after a refused login, or when its place is needed for another user

Rules:
- Credentials are in no log line, no error and no repr.
- Whose credentials were right of late (`proven`) has threads of his own. All others share some, so that neither who
  guesses passwords nor who uses somebody's name keeps that one waiting.
- In front of a broker without authentication everybody is the same user, and only this machine gets in (`server.py`).
"""

from __future__ import annotations

import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from json import dumps
from threading import Lock
from typing import NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.errors import BrokerError
from tidelog.gateway.limits import CLUSTER_AGE_MAX_S, CLUSTER_IDLE_S, CLUSTERS_MAX, PROVEN_MAX
from tidelog.gateway.route import Refusal
from tidelog.wire.error_code import ErrorCode

LOGIN_REFUSED = (ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.ILLEGAL_SASL_STATE)
TOKEN_PREFIX = "tidelog_"
CERTIFICATE = "TIDELOG-CERTIFICATE"
CHALLENGE = (("WWW-Authenticate", 'Basic realm="tidelog", charset="UTF-8"'),)


class Credentials(NamedTuple):
    """`mechanism` None is the one that users of this broker log in by."""

    user: str
    secret: str
    mechanism: str | None = None

    def __repr__(self) -> str:
        return f"Credentials({self.user!r}, ...)"


def read_credentials(authorization: str | None) -> Credentials | None:
    """From the header; None when there is none."""
    if authorization is None:
        return None
    scheme, _, rest = authorization.strip().partition(" ")
    word = rest.strip()
    found = None
    if scheme.lower() == "basic":
        found = _decoded(word)
    elif scheme.lower() == "bearer" and word.startswith(TOKEN_PREFIX):
        encoded = word.removeprefix(TOKEN_PREFIX).replace("-", "+").replace("_", "/")
        found = _decoded(encoded + "=" * (-len(encoded) % 4))
    if found is None:
        raise Refusal(
            401,
            "the Authorization header is neither Basic with a user and a password nor Bearer with a token of this"
            " broker's; send a user of the broker's",
            headers=CHALLENGE,
        )
    return found


def certified(subject: object, delegation: str) -> Credentials:
    """Whoever showed a certificate with this subject; `delegation` is the secret of the broker that believes it."""
    return Credentials(dumps(subject, separators=(",", ":")), delegation, CERTIFICATE)


def token(credentials: Credentials) -> str:
    encoded = urlsafe_b64encode(f"{credentials.user}:{credentials.secret}".encode()).decode()
    return TOKEN_PREFIX + encoded.rstrip("=")


def _decoded(word: str) -> Credentials | None:
    try:
        user, colon, secret = b64decode(word, validate=True).decode().partition(":")
    except ValueError:
        return None
    if not (colon and user and secret) or not f"{user}{secret}".isprintable():
        return None
    return Credentials(user, secret)


class _Kept(NamedTuple):
    cluster: Cluster
    opened: float
    used: float


class Clusters:
    """Open clients of the broker by who they are logged in as. Safe from any thread.

    How many are leased at once is bounded by the threads that there are (`workers.py`); this bounds those that wait.
    """

    def __init__(self, connect: Callable[[Credentials | None], Cluster]) -> None:
        self._connect = connect
        self._idle: dict[Credentials | None, list[_Kept]] = {}
        self._proven: dict[Credentials, float] = {}
        self._lock = Lock()

    def proven(self, credentials: Credentials) -> bool:
        """Whether the broker let them in, not longer ago than a connection is kept."""
        since = self._proven.get(credentials)
        return since is not None and time.monotonic() - since < CLUSTER_AGE_MAX_S

    def _note(self, credentials: Credentials | None, *, right: bool) -> None:
        if credentials is None:
            return
        with self._lock:
            self._proven.pop(credentials, None)
            if right:
                self._proven[credentials] = time.monotonic()
            if len(self._proven) > PROVEN_MAX:
                del self._proven[next(iter(self._proven))]

    @contextmanager
    def lease(self, credentials: Credentials | None) -> Iterator[Cluster]:
        now = time.monotonic()
        with self._lock:
            expired = self._take_expired(now)
            found = self._idle.get(credentials)
            kept = found.pop() if found else None
        _close(expired)
        if kept is not None and kept.cluster.ended():
            # A new one says at once when no broker is there; one that has reached a broker would try for a while.
            kept.cluster.close()
            kept = None
        if kept is None:
            kept = _Kept(self._connect(credentials), now, now)
        try:
            yield kept.cluster
            self._note(credentials, right=True)
        except BaseException as error:
            if isinstance(error, BrokerError):
                self._note(credentials, right=error.code not in LOGIN_REFUSED)
            if isinstance(error, BrokerError) and error.code in LOGIN_REFUSED:
                kept.cluster.close()
                kept = None
            raise
        finally:
            if kept is not None:
                self._give_back(credentials, kept)

    def close(self) -> None:
        with self._lock:
            kept = [one for idle in self._idle.values() for one in idle]
            self._idle.clear()
        _close(kept)

    def __len__(self) -> int:
        return sum(map(len, self._idle.values()))

    def _give_back(self, credentials: Credentials | None, kept: _Kept) -> None:
        now = time.monotonic()
        over: list[_Kept] = []
        with self._lock:
            # Put last: the first of the dictionary is the user who was here the longest ago.
            idle = self._idle.pop(credentials, [])
            idle.append(kept._replace(used=now))
            self._idle[credentials] = idle
            while len(self) > CLUSTERS_MAX:
                oldest = next(iter(self._idle))
                over.append(self._idle[oldest].pop(0))
                if not self._idle[oldest]:
                    del self._idle[oldest]
        _close(over)

    def _take_expired(self, now: float) -> list[_Kept]:
        expired = []
        for credentials, idle in list(self._idle.items()):
            left = [one for one in idle if now - one.used < CLUSTER_IDLE_S and now - one.opened < CLUSTER_AGE_MAX_S]
            expired += [one for one in idle if one not in left]
            if left:
                self._idle[credentials] = left
            else:
                del self._idle[credentials]
        return expired


def _close(kept: list[_Kept]) -> None:
    for one in kept:
        one.cluster.close()
