"""What all requests share: where the broker is, clients of it by user, and what parts keep between requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Event, Lock
from typing import Protocol, TypeVar, cast
from urllib.parse import parse_qsl, unquote

from tidelog.client.address import parse_addresses
from tidelog.client.cluster import Cluster
from tidelog.client.connection import Connection
from tidelog.client.security import Security
from tidelog.errors import Disconnected
from tidelog.gateway.access import CHALLENGE, Clusters, Credentials
from tidelog.gateway.limits import BROKER_TIMEOUT_S
from tidelog.gateway.route import Refusal, Route

CLIENT_ID = "tidelog-gateway"
# PostgreSQL, and in part Redis, takes these from the query of a URL, where they overrule its address.
ELSEWHERE = ("host", "service", "passfile", "file")
PORT = "port"  # a whole name: others may end so
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

        The URL is in the catalog, and who writes there need not be whom this machine's files and passwords are for:
        where users are told apart, only what was named when the gateway was started, and of the environment only what
        stands in that: a variable in a path or an address would be told to whoever sees where it leads.
        """
        if not self._stores:
            return not self.login
        path, _, query = url.partition("?")
        leads_away = ".." in unquote(path).split("/") or any(name in unquote(query).lower() for name in ELSEWHERE)
        leads_away |= PORT in {name.lower() for name, _ in parse_qsl(query, keep_blank_values=True)}
        return any(
            url == one or (url.startswith(one if one.endswith("/") else f"{one}/") and not leads_away)
            for one in self._stores
            if "${" not in url[len(one) :]
        )

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
