"""From a request to an answer: checked, routed, read, worked on in a thread, answered and logged.

    received     `guard`: Host, Origin, sizes, path; then the route by path and method
    admitted     credentials are read (not checked: the broker does that), and the content type
    read         the whole body, within its limits
    working      the handler, in a thread (`workers`)
    answered     its answer, or an error's; one log line, without query, headers and bodies

An answer to a request whose body was not read closes the connection, after a little of the body was thrown away: a
client that is still sending would else lose the answer with the connection.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from difflib import get_close_matches
from functools import partial
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route as Routed
from starlette.routing import Router
from starlette.types import Message, Receive, Scope, Send

from tidelog.gateway import guard
from tidelog.gateway.access import CHALLENGE, Credentials, certified, read_credentials
from tidelog.gateway.gateway import Gateway
from tidelog.gateway.limits import (
    BODIES_MAX_BYTES,
    BODY_WITHIN_S,
    LINGER_BYTES,
    LINGER_S,
    WAITS_MAX,
    WAITS_PER_USER,
)
from tidelog.gateway.protocol import SUBJECT
from tidelog.gateway.refusal import answer_of, refusal_of
from tidelog.gateway.route import JSON, Answer, Call, Refusal, Route, Stream
from tidelog.gateway.workers import BUSY, Workers
from tidelog.logger import Logger

Serve = Callable[[Route, Request], Awaitable[Response]]

VERSIONS = ("1.0", "1.1")
CLOSE = (("Connection", "close"),)
EVERY_ANSWER = (("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-store"))


class GatewayApp:
    """The ASGI application. One a process, on the loop."""

    def __init__(self, gateway: Gateway, logger: Logger, hosts: frozenset[str]) -> None:
        self._gateway = gateway
        self._logger = logger
        self._hosts = hosts
        self._workers = Workers()
        self._waiting = Workers(WAITS_MAX, WAITS_PER_USER)
        self._body_bytes = 0
        self._router = Router(_routed(gateway.routes, self._serve), redirect_slashes=False, default=_no_route)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", scope["type"]
        told, heard = _Told(send), _Heard(receive)
        began = time.monotonic()
        try:
            if scope["http_version"] not in VERSIONS:
                raise Refusal(505, f"HTTP {scope['http_version']} is not spoken here; use 1.1", headers=CLOSE)
            checked = guard.check(
                scope["method"], scope["raw_path"], scope["query_string"], scope["headers"], self._hosts
            )
            # Starlette routes by `path`; it gets the undecoded one, so that an encoded slash divides nothing.
            scope = {**scope, "path": checked.path, "tidelog.headers": checked.headers}
            await self._router(scope, heard, told)
        except ClientDisconnect:
            pass
        except Exception as error:
            await self._refuse(error, scope, heard, told)
        finally:
            self._log(scope, told, began)

    def close(self) -> None:
        self._workers.close()
        self._waiting.close()

    # One request ---------------------------------------------------------------------------------------------------

    async def _serve(self, route: Route, request: Request) -> Response:
        request.scope["tidelog.route"] = route
        headers = request.scope["tidelog.headers"]
        credentials = self._credentials(request.scope)
        request.scope["tidelog.user"] = _user(credentials)
        if credentials is None and self._gateway.login and not route.open:
            raise Refusal(401, "the broker wants a login; send a user by Basic or a token by Bearer", headers=CHALLENGE)
        _check_content_type(route, headers)
        path = {name: guard.segment(value) for name, value in request.path_params.items()}
        query = _query(route, request)
        body = await self._read(request, route, headers)
        try:
            call = Call(route, self._gateway, path, query, headers, body, credentials)
            answer = await self._work(route, call)
        finally:
            self._body_bytes -= len(body)
        if isinstance(answer, Stream) and request.method == "HEAD":
            return Response(b"", answer.status, _headers(answer), answer.content_type)
        if isinstance(answer, Stream):
            return StreamingResponse(answer.chunks, answer.status, _headers(answer), answer.content_type)
        return _response(answer)

    def _credentials(self, scope: Scope) -> Credentials | None:
        """The header's; without one, the client's certificate."""
        found = read_credentials(scope["tidelog.headers"].get("authorization"))
        subject = scope.get("state", {}).get(SUBJECT)
        if found is None and subject and self._gateway.delegation is not None:
            return certified(subject, self._gateway.delegation)
        return found

    async def _work(self, route: Route, call: Call) -> Answer | Stream:
        if route.inline:
            return route.handle(call)
        shares = self._gateway.shares_with(call.credentials)
        waits = route.waits or any(name in call.query for name in route.waits_by)
        workers = self._waiting if waits else self._workers
        return await workers.run(shares, partial(route.handle, call), route.within_s)

    async def _read(self, request: Request, route: Route, headers: Mapping[str, str]) -> bytes:
        """The body, which counts in `_body_bytes` from here on."""
        stated = int(headers.get("content-length", "0"))  # that it is a number is HTTP's own rule, checked by h11
        self._admit(route, stated, stated)
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_WITHIN_S):
                async for chunk in request.stream():
                    self._admit(route, len(body) + len(chunk), len(chunk))
                    body += chunk
                    self._body_bytes += len(chunk)
        except TimeoutError:
            self._body_bytes -= len(body)
            raise Refusal(408, f"the body did not come in {BODY_WITHIN_S:g} s; send it faster") from None
        except BaseException:
            self._body_bytes -= len(body)
            raise
        return bytes(body)

    def _admit(self, route: Route, size: int, more: int) -> None:
        limit = route.body_max_bytes if route.writes else 0
        if size > limit:
            what = f"{limit} bytes at most" if limit else "no body with this method"
            raise Refusal(413, f"the body is too large; send {what}")
        if self._body_bytes + more > BODIES_MAX_BYTES:
            raise Refusal(503, "too many requests are being read; try again", headers=BUSY)

    async def _refuse(self, error: Exception, scope: Scope, heard: _Heard, told: _Told) -> None:
        refusal = refusal_of(error)
        if refusal.status == 500:
            self._fault(error)
        if told.status:
            raise error  # the answer has begun; that it is cut off is all that can still be said
        route: Route | None = scope.get("tidelog.route")
        answer = answer_of(refusal, route.gives[0] if route is not None and route.errors_as_given else JSON)
        if not await heard.rest(asked=any(name == b"expect" for name, _ in scope["headers"])):
            answer = answer._replace(headers=(*answer.headers, *CLOSE))
        await _response(answer)(scope, heard, told)

    def _fault(self, error: Exception) -> None:
        from traceback import format_exception

        self._logger.error("fault", error=repr(error), trace="".join(format_exception(error)))

    def _log(self, scope: Scope, told: _Told, began: float) -> None:
        route: Route | None = scope.get("tidelog.route")
        quiet = route is not None and route.open and told.status < 400
        line = self._logger.debug if quiet else self._logger.info
        peer = scope["client"][0] if scope.get("client") else "-"
        user = scope.get("tidelog.user") or "-"
        ms = round((time.monotonic() - began) * 1000)
        path = scope["raw_path"].decode("ascii", "replace")[:200]
        line("request", method=scope["method"], path=path, status=told.status or "-", ms=ms, peer=peer, user=user)


class _Told:
    """Sends, and remembers the status for the log."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)


class _Heard:
    """Receives, and knows whether the body has ended."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._ended = False

    async def __call__(self) -> Message:
        message = await self._receive()
        self._ended = message["type"] != "http.request" or not message.get("more_body")
        return message

    async def rest(self, *, asked: bool) -> bool:
        """Throws away what is left of the body, for a moment and not much of it. False when more would come.

        `asked` is of a client that asks before it sends (Expect): to receive would be to tell it to.
        """
        if self._ended or asked:
            return self._ended
        size = 0
        try:
            async with asyncio.timeout(LINGER_S):
                while size < LINGER_BYTES and not self._ended:
                    size += len((await self()).get("body", b""))
        except TimeoutError:
            pass
        return self._ended


class _Endpoint:
    """All methods of one path. A class, for Starlette then leaves the methods to us."""

    def __init__(self, serve: Serve, by_method: Mapping[str, Route]) -> None:
        self._serve = serve
        self._by_method = by_method

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        route = self._by_method.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = ", ".join(sorted(self._by_method))
            raise Refusal(405, f"{method} is not for this path; use {allowed}", headers=(("Allow", allowed),))
        response = await self._serve(route, Request(scope, receive, send))
        await response(scope, receive, send)


def _routed(routes: tuple[Route, ...], serve: Serve) -> list[Routed]:
    """One of Starlette's a path; a path that is written out goes before one with parameters."""
    by_path: dict[str, dict[str, Route]] = {}
    for route in sorted(routes, key=lambda route: route.path.count("{")):
        assert route.method not in by_path.setdefault(route.path, {}), f"{route.method} {route.path} is there twice"
        by_path[route.path][route.method] = route
    return [Routed(path, _Endpoint(serve, by_method)) for path, by_method in by_path.items()]


async def _no_route(scope: Scope, _receive: Receive, _send: Send) -> None:
    raise Refusal(404, f"{scope['path'][:200]} does not exist; GET /openapi.json lists all paths")


def _check_content_type(route: Route, headers: Mapping[str, str]) -> None:
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    if not route.writes or (route.body is None and not has_body):
        return
    given = headers.get("content-type", "")
    if given.partition(";")[0].strip().lower() not in route.takes:
        raise Refusal(415, f"the content type is {given[:100]!r}; send {' or '.join(route.takes)}")


def _query(route: Route, request: Request) -> dict[str, str]:
    given = [name for name, _ in request.query_params.multi_items()]
    known = [one.name for one in route.query]
    for name in given if route.strict else ():
        if name not in known:
            near = get_close_matches(name, known, 1, 0.5)
            meant = (
                f"did you mean {near[0]}?" if near else f"parameters are {', '.join(known)}" if known else "send none"
            )
            raise Refusal(400, f"parameter {name[:100]!r} does not exist here; {meant}")
        if given.count(name) > 1:
            raise Refusal(400, f"the parameter {name} is there twice; send it once")
    return dict(request.query_params)


def _user(credentials: Credentials | None) -> str:
    return "" if credentials is None else credentials.user


def _headers(answer: Answer | Stream) -> dict[str, str]:
    return dict((*EVERY_ANSWER, *answer.headers))


def _response(answer: Answer) -> Response:
    headers: dict[str, Any] = _headers(answer)
    return Response(answer.body, answer.status, headers, answer.content_type)
