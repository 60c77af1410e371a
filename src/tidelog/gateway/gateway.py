"""What all requests share: where the broker is, clients of it by user, and what parts keep between requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Event, Lock
from typing import Protocol, TypeVar, cast

from tidelog.client.address import parse_addresses
from tidelog.client.cluster import Cluster
from tidelog.client.connection import Connection
from tidelog.client.security import Security
from tidelog.errors import Disconnected
from tidelog.gateway.access import CHALLENGE, Clusters, Credentials
from tidelog.gateway.limits import BROKER_TIMEOUT_S
from tidelog.gateway.route import Refusal, Route
from tidelog.views.stores.allowing import harm_of, is_allowed

CLIENT_ID = "tidelog-gateway"
NOBODY, STRANGERS = "", "\0"  # neither is the name of a user


class Closable(Protocol):
    def close(self) -> None: ...


Kept = TypeVar("Kept", bound=Closable)


class Gateway:
    """Safe from any thread."""

    def __init__(
        self,
        bootstrap: str,
        routes: tuple[Route, ...],
        security: Security | None = None,
        *,
        delegation: str | None = None,
        stores: tuple[str, ...] = (),
        timeout_s: float = BROKER_TIMEOUT_S,
    ) -> None:
        """`security` is how to reach the broker; with a login in it, whose user each request brings. `delegation` is
        the secret for which the broker believes whose certificate was shown. `stores` is how URLs of stores begin that
        may be opened. `timeout_s` is for an answer of the broker.
        """
        self.bootstrap = bootstrap
        self.routes = routes
        self.delegation = delegation
        self._stores = stores
        self._timeout_s = timeout_s
        self._security = Security() if security is None else security
        self._dial = self._security.dial()
        self._clusters = Clusters(self._connect)
        self._kept: dict[str, Closable] = {}
        self._lock = Lock()
        self.ending = Event()  # what goes on for long ends when it is set

    @property
    def login(self) -> bool:
        """Whether the broker demands a login: then a request without credentials is a 401."""
        return self._security.sasl

    def may_open(self, url: str) -> bool:
        """Whether a store may be read by this process, with what its user and its environment can reach.

        The URL is in the catalog, and who writes there need not be whom this machine's files and passwords are for
        (`views/stores/allowing.py`). Where users are told apart, or stores were named when the gateway was started,
        only those; else what anybody on this machine may open, which is not a secret of its user's.
        """
        if self._stores or self.login:
            return is_allowed(url, self._stores)
        return harm_of(url) is None

    def cluster(self, credentials: Credentials | None) -> AbstractContextManager[Cluster]:
        """A client of the broker, logged in with these credentials; for one thread, until the end of `with`."""
        if self.login and credentials is None:
            raise Refusal(401, "the broker wants a login; send a user by Basic or a token by Bearer", headers=CHALLENGE)
        return self._clusters.lease(credentials if self.login else None)

    def shares_with(self, credentials: Credentials | None) -> str:
        """Whose threads a request may take: its user's own once that has proven who it is, where that is asked."""
        if credentials is None:
            return NOBODY
        return credentials.user if not self.login or self._clusters.proven(credentials) else STRANGERS

    @contextmanager
    def anonymous(self) -> Iterator[Connection]:
        """A connection that has asked for the APIs and nothing else, which brokers answer before any login."""
        tried = []
        for address in parse_addresses(self.bootstrap):
            try:
                connection = Connection.open(address, client_id=CLIENT_ID, timeout_s=self._timeout_s, dial=self._dial)
            except Disconnected as error:
                tried.append(str(error))
                continue
            with connection:
                yield connection
                return
        raise Disconnected(", ".join(tried))

    def kept(self, name: str, make: Callable[[Gateway], Kept]) -> Kept:
        """What lives as long as the gateway, made on first use and closed with it. `make` must not ask for another."""
        with self._lock:
            if name not in self._kept:
                self._kept[name] = make(self)
            return cast("Kept", self._kept[name])

    def close(self) -> None:
        with self._lock:
            kept, self._kept = list(self._kept.values()), {}
        for one in kept:
            one.close()
        self._clusters.close()

    def _connect(self, credentials: Credentials | None) -> Cluster:
        security = self._security
        if credentials is not None:
            mechanism = credentials.mechanism or security.mechanism
            security = security._replace(user=credentials.user, password=credentials.secret, mechanism=mechanism)
        return Cluster(self.bootstrap, client_id=CLIENT_ID, timeout_s=self._timeout_s, security=security)
