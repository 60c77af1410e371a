"""What a route is: one row of the one table (`routes.py`), from which serving, OpenAPI and the tests are made.

    ROUTES = (
        Route("GET", "/subjects/{subject}/versions", versions, "Versions of a subject", answer=ARRAY_OF_INT),
        Route("POST", "/subjects/{subject}/versions", register, "Register a schema", body=SCHEMA, answer=ID),
    )

    def versions(call: Call) -> Answer:
        with call.cluster() as cluster:            # a client of the broker, logged in as the request's user
            found = read(cluster, call.path["subject"])
        if found is None:
            raise Refusal(404, f"subject {call.path['subject']!r} is not there; GET /subjects lists them", code=40401)
        return as_json(found)

Rules:
- A handler is a plain function. It may block: it runs in one of `limits.CALLS_MAX` threads, never on the loop, and has
  `within_s` before its request is answered with 504.
- Path parameters arrive decoded; each is one segment, whatever was encoded in it, and has no control characters.
- A handler answers, or raises: `Refusal` with a status of its own, or any `TidelogError`, which `refusal.py` turns into
  a status. Anything else is a fault of ours, a 500 without details.
- Every error has the body {"error_code": N, "message": "a fact; what to do"}. `code` is the status unless a route's
  protocol has numbers of its own.
- What must live longer than a request (a cache, a thread) is made once, by `call.gateway.kept(name, make)`.
- What goes on for long (Server-Sent Events) is answered with a `Stream`: its chunks come from an async iterator on the
  loop, so that it holds no thread, and it ends when its client goes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.errors import TidelogError
from tidelog.gateway.limits import BODY_MAX_BYTES, CALL_WITHIN_S

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.gateway.access import Credentials
    from tidelog.gateway.gateway import Gateway

JSON = "application/json"

Schema = Mapping[str, Any]
"""JSON Schema as OpenAPI 3.1 has it."""


class Answer(NamedTuple):
    body: bytes
    content_type: str = JSON
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


class Stream(NamedTuple):
    """Chunks until the iterator ends or the client has gone; then `aclose` of it is called."""

    chunks: AsyncIterator[bytes]
    content_type: str = "text/event-stream"
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


def as_json(value: Any, *, status: int = 200, content_type: str = JSON) -> Answer:
    from json import dumps

    return Answer(dumps(value, separators=(",", ":")).encode() + b"\n", content_type, status)


class Refusal(TidelogError):
    """An answer that is not a success. `message` is a fact, then after a semicolon what to do."""

    def __init__(
        self, status: int, message: str, *, code: int | None = None, headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = status if code is None else code
        self.headers = headers


@dataclass(frozen=True, slots=True)
class Call:
    """One request, checked and read in whole. `headers` have lower-case names."""

    route: Route
    gateway: Gateway
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    credentials: Credentials | None = None

    def cluster(self) -> AbstractContextManager[Cluster]:
        """A client of the broker as the request's user, for this thread, until the end of `with`."""
        return self.gateway.cluster(self.credentials)

    def json(self) -> Any:
        from json import loads

        try:
            return loads(self.body)
        except (ValueError, RecursionError) as error:
            raise Refusal(400, f"the body is not JSON: {error}; send one JSON value in UTF-8") from error

    def flag(self, name: str) -> bool:
        return self.query.get(name, "").lower() == "true"


class Parameter(NamedTuple):
    """Of the query. One that is not in the table is ignored, as clients of others' protocols expect, or refused where
    the route is `strict`.
    """

    name: str
    what: str
    schema: Schema = {"type": "string"}  # noqa: RUF012


Handle = Callable[[Call], Answer | Stream]


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    path: str
    handle: Handle
    summary: str
    # Whether a request without credentials is let in although the broker demands some: only for what says nothing.
    open: bool = False
    query: tuple[Parameter, ...] = ()
    body: Schema | None = None
    takes: tuple[str, ...] = (JSON,)
    answer: Schema | None = None
    gives: tuple[str, ...] = (JSON,)
    # Whether errors have the content type of answers, as protocols of others want it; else they are plain JSON.
    errors_as_given: bool = False
    refusals: Mapping[int, str] = field(default_factory=dict)
    tag: str = "gateway"
    body_max_bytes: int = BODY_MAX_BYTES
    within_s: float = CALL_WITHIN_S
    # Parameters with which a call may wait for long. Such calls have threads of their own, and leave others theirs.
    waits_by: tuple[str, ...] = ()
    waits: bool = False  # every call may
    # Whether a parameter that there is not, or that is there twice, is refused: passed over, it would change answers.
    strict: bool = False
    # On the loop itself, for what must answer while all threads are busy. It may not block.
    inline: bool = False

    @property
    def writes(self) -> bool:
        return self.method not in ("GET", "HEAD")
