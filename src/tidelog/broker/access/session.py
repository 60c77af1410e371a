"""One connection's session: who it is, until when, and what its requests may do.

    states        what is taken                                                 then
    fresh         ApiVersions                                                   fresh
                  SaslHandshake of a mechanism that is on                       exchanging
    exchanging    SaslAuthenticate; after SaslHandshake v0 bare tokens          exchanging, open or failed
    verifying     nothing: a password is being checked in a thread              open or failed
    open          everything that the rules allow; SaslHandshake                open; exchanging (re-authentication)
    failed        nothing: the reply is held back, then the connection ends

Anything else ends the connection. A listener without SASL begins as open: as the name in the client's certificate, or
as ANONYMOUS. A session has an end when `connections.max.reauth.ms` is set: a client that has not logged in again by
then (KIP-368, as the same user and by the same mechanism) loses its connection at its next request.

Before it is open, a request may have `tidelog.frame.bytes.before.authentication` bytes, and all of it LOGIN_WITHIN_S.
A session whose user is deleted ends soon after (`why_over`). Quotas are looked at when a
reply is ready: it leaves at once, says how long to wait, and the connection is not read for so long.

The answer to a failed login leaves `connection.failed.authentication.delay.ms` after its last message came, however
long it took to check: how long that was tells who has an account, and of which kind.

The broker's own HTTP server (`ForGateway`) has connections that are the proof for many requests: whoever brings the
name and password that one was opened with is let in by it. So there a changed password ends a session too. From where
its clients come is not known here, unless HTTP is for this machine alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.broker.access.acls import UNKNOWN_HOST, Asker
from tidelog.broker.access.changes import CONSUMER_BYTES, PRODUCER_BYTES, REQUEST_PERCENTAGE
from tidelog.broker.access.delegation import MECHANISM as DELEGATED
from tidelog.broker.access.delegation import DelegatedLogin, Delegation
from tidelog.broker.access.entities import applying
from tidelog.broker.access.logins import MECHANISMS, Login, LoginRefused, LoginReply, Unverified
from tidelog.broker.access.rules import guard
from tidelog.broker.buffers import Buffer
from tidelog.broker.call import Call
from tidelog.broker.connection import MAX_OTHER_BYTES, Connection
from tidelog.broker.dispatch import API_VERSIONS, PRODUCE
from tidelog.broker.transport import is_gone
from tidelog.errors import MalformedMessage
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.frame import RequestHeader, parse_request_header
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tidelog.wire.scram import Credential, ScramFault

if TYPE_CHECKING:
    from tidelog.broker.access.shell import Access
    from tidelog.broker.broker import Broker

FETCH, SASL_HANDSHAKE, SASL_AUTHENTICATE = 1, 17, 36
HEADERS_SINCE = 1  # of SaslHandshake: tokens come in SaslAuthenticate requests, before they came bare
FRESH, EXCHANGING, VERIFYING, OPEN, FAILED = "fresh", "exchanging", "verifying", "open", "failed"
NONCE_BYTES = 24
NAME_SHOWN = 40  # letters of what a stranger says, in a log line
REAUTHENTICATION_PAUSE_S = 1.0
LOGIN_WITHIN_S = 30.0
TOO_MANY = "this user has as many connections as tidelog.max.connections.per.user allows; close some"
ANONYMOUS = "ANONYMOUS"

Refuse = Callable[[str, "str | None"], None]  # why, and who it was for


class ForGateway(NamedTuple):
    """What is different for the broker's own HTTP server."""

    delegation: Delegation | None
    host_known: bool


class GuardedCall(Call):
    """A call of a connection with a session: what is refused of it comes back in its reply, which may have a price."""

    __slots__ = ("_amendments", "_began_s", "_spent_s", "refused", "session", "size")

    def __init__(self, session: Session, connection: Connection, header: RequestHeader, buffer: Buffer, size: int):
        super().__init__(
            connection, header.api_key, header.api_version, header.correlation_id, header.client_id, buffer
        )
        self.session = session
        self.size = size
        self.refused = False
        self._began_s = time.perf_counter()
        self._spent_s: float | None = None
        self._amendments: list[tuple[Callable[[Any], None], bool]] = []

    @property
    def broker(self) -> Broker:
        broker: Broker = self.connection.server.broker
        return broker

    def spent_s(self) -> float:
        """The loop's time that it took; waiting for others is not work."""
        return self._spent_s if self._spent_s is not None else time.perf_counter() - self._began_s

    def handled(self) -> None:
        self._spent_s = time.perf_counter() - self._began_s

    def worked(self, seconds: float) -> None:
        if self._spent_s is not None:
            self._spent_s += seconds

    def amend(self, change: Callable[[Any], None], *, once: bool = False) -> None:
        """`change` is made to the reply before it leaves: to each part of it, or `once`, because it adds something."""
        self._amendments.append((change, once))

    def amend_part(self, response: Any, last: bool) -> None:
        for change, once in self._amendments:
            if last or not once:
                change(response)

    def reply(self, response: Any, gathered: str = "") -> None:
        if self.done:
            return
        if response is None and self.refused:
            self.connection.close("produce with acks=0 was refused")
        try:
            if response is not None and not gathered:
                self.amend_part(response, last=True)
            self.session.charge(self, response)
        except Exception as error:
            self.fault(error)
            return
        super().reply(response, gathered)


class Session:
    __slots__ = (
        "_access",
        "_asked_s",
        "_asker",
        "_began_s",
        "_connection",
        "_counted_as",
        "_credentials",
        "_crowded",
        "_expires_s",
        "_gateway",
        "_login",
        "_mechanism",
        "_reauthenticated_s",
        "_tokens_bare",
        "sasl",
        "state",
        "user",
    )

    def __init__(
        self,
        access: Access,
        connection: Connection,
        *,
        sasl: bool,
        user: str = ANONYMOUS,
        gateway: ForGateway | None = None,
    ) -> None:
        self._access = access
        self._gateway = gateway
        self._credentials: tuple[Credential | None, ...] = ()
        self._asked_s = 0.0
        self._connection = connection
        self.sasl = sasl
        self.state = FRESH if sasl else OPEN
        self._login: Login | DelegatedLogin | None = None
        self._counted_as: str | None = None
        self._crowded = False
        self._mechanism = ""
        self._tokens_bare = False
        self._expires_s: float | None = None
        self._reauthenticated_s = 0.0
        self._began_s = time.monotonic()
        self.become(user)
        if sasl:
            connection.limit_frames(access.config.int("tidelog.frame.bytes.before.authentication"))

    def become(self, user: str) -> None:
        self.user = user
        host_known = self._gateway is None or self._gateway.host_known
        self._asker = Asker(f"User:{user}", self._connection.peer_host if host_known else UNKNOWN_HOST)

    def admit(self, user: str) -> bool:
        """Whether the user may have this connection too; asked once, when it has proved who it is."""
        if self._counted_as is None:
            if not self._access.admit(user):
                return False
            self._counted_as = user
        return True

    def ended(self) -> None:
        """The connection is closed."""
        if self._counted_as is not None:
            self._access.leave(self._counted_as)
            self._counted_as = None

    def why_over(self) -> str | None:
        """Why the connection should end, looked at now and then: nobody logged in, or who did is no longer a user."""
        if self.state in (FRESH, EXCHANGING) and not self._mechanism:
            late = time.monotonic() - self._began_s > LOGIN_WITHIN_S
            return f"no login within {LOGIN_WITHIN_S:g} s" if late else None
        if self.state == OPEN and self._mechanism in MECHANISMS and not self._access.is_user(self.user):
            return f"user {self.user} was deleted"
        if self.state == OPEN and self._gateway is not None and self._mechanism in MECHANISMS:
            changed = self._access.credentials(self.user) != self._credentials
            return f"the password of {self.user} was changed" if changed else None
        return None

    # Requests ----------------------------------------------------------------------------------------------------

    def handle(self, frame: memoryview, buffer: Buffer) -> None:
        """One frame. MalformedMessage ends the connection."""
        if self._tokens_bare and self.state == EXCHANGING:
            self._take_bare_token(bytes(frame))
            return
        header = parse_request_header(frame)
        if len(frame) > MAX_OTHER_BYTES and header.api_key != PRODUCE:
            raise MalformedMessage(
                f"request of {len(frame)} bytes to api key {header.api_key}; only Produce may have more than"
                f" {MAX_OTHER_BYTES}"
            )
        call = GuardedCall(self, self._connection, header, buffer, len(frame))

        def serve() -> Any:
            try:
                return self._serve(frame, header.body_position, call)
            finally:
                call.handled()

        self._connection.take(call, len(frame), serve)

    def _serve(self, frame: memoryview, position: int, call: GuardedCall) -> Any:
        if self.state != OPEN or call.api_key in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
            return self._authenticate(frame, position, call)
        if self._expires_s is not None and time.monotonic() > self._expires_s:
            self._connection.close(f"the session of {self.user} is over, and it did not log in again")
            return None
        server = self._connection.server
        request, handler = server.dispatch.prepared(frame, position, call)
        if request is not None and self._access.authorises:
            refusal = guard(self.ask, request, call)
            if refusal is not None:
                call.refused = True
                return refusal if getattr(request, "acks", None) != 0 else call.reply(None)
        if call.api_key == FETCH:
            self._bound_fetch(request, call)
        return handler(server.broker, request, call)

    def ask(self, operation: int, resource: int, name: str) -> bool:
        return self._access.allows(self._asker, operation, resource, name)

    def may_some(self, operation: int, resource: int) -> bool:
        return self._access.allows_some(self._asker, operation, resource)

    # Logging in --------------------------------------------------------------------------------------------------

    def _authenticate(self, frame: memoryview, position: int, call: GuardedCall) -> Any:
        server = self._connection.server
        if call.api_key == API_VERSIONS and self.state == FRESH:
            request, handler = server.dispatch.prepared(frame, position, call)
            return handler(server.broker, request, call)
        if call.api_key == SASL_HANDSHAKE:
            request, _ = server.dispatch.prepared(frame, position, call)
            return self._handshake(request, call)
        if call.api_key == SASL_AUTHENTICATE:
            request, _ = server.dispatch.prepared(frame, position, call)
            return self._token(request, call)
        self._connection.close(f"api key {call.api_key} before authentication")
        return None

    def _handshake(self, request: SaslHandshakeRequest, call: GuardedCall) -> SaslHandshakeResponse | None:
        self._asked_s = time.monotonic()
        enabled = list(self._access.config.texts("sasl.enabled.mechanisms"))
        too_soon = time.monotonic() - self._reauthenticated_s < REAUTHENTICATION_PAUSE_S
        if not self.sasl or self.state not in (FRESH, OPEN) or (self.state == OPEN and too_soon):
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=enabled)
        delegation = self._gateway.delegation if self._gateway is not None else None
        delegated = delegation is not None and request.mechanism == DELEGATED
        known = request.mechanism in enabled or delegated
        if not known or (self.state == OPEN and request.mechanism != self._mechanism):
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            why = f"mechanism {request.mechanism[:NAME_SHOWN]!r}"
            self._fail(call, SaslHandshakeResponse(error_code=code, mechanisms=enabled), why, None)
            return None
        self._access.ensure_secret()
        self._login = Login(request.mechanism, os.urandom(NONCE_BYTES).hex())
        if delegated and delegation is not None:
            self._login = DelegatedLogin(delegation)
        self._tokens_bare = call.version < HEADERS_SINCE
        self.state = EXCHANGING
        return SaslHandshakeResponse(mechanisms=enabled)

    def _token(self, request: SaslAuthenticateRequest, call: GuardedCall) -> SaslAuthenticateResponse | None:
        if self.state != EXCHANGING:
            message = "no SaslHandshake came before this request" if self.sasl else "this listener asks for no login"
            return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message)

        def answer(reply: bytes, lifetime_ms: int) -> None:
            call.reply(SaslAuthenticateResponse(auth_bytes=reply, error_message=None, session_lifetime_ms=lifetime_ms))

        def refuse(why: str, user: str | None) -> None:
            code = ErrorCode.SASL_AUTHENTICATION_FAILED
            self._fail(call, SaslAuthenticateResponse(error_code=code, error_message=self._refusal()), why, user)

        self._step(bytes(request.auth_bytes), answer, refuse)
        return None

    def _take_bare_token(self, token: bytes) -> None:
        def answer(reply: bytes, _lifetime_ms: int) -> None:
            self._connection.send_bare(len(reply).to_bytes(4, "big") + reply)

        self._step(token, answer, lambda why, user: self._fail(None, None, why, user))

    def _step(self, token: bytes, answer: Callable[[bytes, int], None], refuse: Refuse) -> None:
        assert self._login is not None, "made by the handshake"
        self._asked_s = time.monotonic()
        try:
            outcome = self._login.step(token, self._access.state)
        except (LoginRefused, ScramFault) as error:
            refuse(str(error), getattr(error, "user", None) or self._login.user)
            return
        if isinstance(outcome, Unverified):
            self._verify(outcome, answer, refuse)
        else:
            self._proceed(outcome, answer, refuse)

    def _verify(self, unverified: Unverified, answer: Callable[[bytes, int], None], refuse: Refuse) -> None:
        self.state = VERIFYING
        self._connection.mute()

        def verified(right: object, error: BaseException | None) -> None:
            if self._connection.closed:
                return
            # Who was deleted, or got another password, while it was checked is not let in by the old one.
            kept = self._access.state.users.get((unverified.user, unverified.mechanism))
            if error is None and right and kept == unverified.kept:
                self._proceed(LoginReply(b"", unverified.user), answer, refuse)
            else:
                refuse(str(error) if error is not None else "wrong name or password", unverified.user)
            if self.state == OPEN:
                self._connection.unmute()

        def check() -> bool:
            """Those who have left meanwhile keep nobody waiting: while a connection is muted, nobody looks at it."""
            gone = self._connection.closed or is_gone(self._connection.transport.fileno())
            return not gone and unverified.check()

        self._access.beside(check, verified)

    def _proceed(self, outcome: LoginReply, answer: Callable[[bytes, int], None], refuse: Refuse) -> None:
        if outcome.user is None:
            answer(outcome.reply, 0)
            return
        assert self._login is not None, "made by the handshake"
        if self._mechanism and outcome.user != self.user:
            refuse(f"a session of {self.user} cannot become {outcome.user}", outcome.user)
            return
        if not self.admit(outcome.user):
            self._crowded = True
            refuse(TOO_MANY, outcome.user)
            return
        self._mechanism = self._login.mechanism
        self._login = None
        self.become(outcome.user)
        self._credentials = self._access.credentials(outcome.user)
        lifetime_ms = self._access.config.int("connections.max.reauth.ms")
        now_s = self._reauthenticated_s = time.monotonic()
        self._expires_s = now_s + lifetime_ms / 1000 if lifetime_ms > 0 else None
        self.state = OPEN
        self._connection.limit_frames(None)
        answer(outcome.reply, max(0, lifetime_ms))

    def _refusal(self) -> str:
        if self._crowded:
            return TOO_MANY
        mechanism = self._login.mechanism if self._login is not None else ""
        kind = "re-authentication" if self._mechanism else "authentication"
        return f"{kind} by {mechanism} failed: wrong name or password"

    def _fail(self, call: GuardedCall | None, response: Any, why: str, user: str | None) -> None:
        """The reply is held back for a moment, so that guessing takes its time; then the connection ends.

        The moment is counted from the message, so that it does not tell how long checking took. `user` is who the
        client says it is, where it has said so: a name is not a secret, and who looks for a failing login goes by it.
        """
        self.state = FAILED
        self._connection.mute()
        named = {} if user is None else {"user": shown(user)}
        self._access.logger.warning("authentication failed", peer=self._connection.peer_host, **named, why=why)

        def end() -> None:
            if call is not None and not self._connection.closed:
                call.reply(response)
                self._connection.flush()
            self._connection.close("authentication failed")

        delay_ms = self._access.config.int("connection.failed.authentication.delay.ms")
        due_s = max(self._asked_s, self._began_s) + delay_ms / 1000
        self._access.scheduler.call_later(max(0.0, due_s - time.monotonic()), end)

    # Quotas ------------------------------------------------------------------------------------------------------

    def _bound_fetch(self, request: Any, call: GuardedCall) -> None:
        """No more than a quota gives in all of its windows: what is above it could never be sent."""
        if not self._access.state.quotas:
            return
        found = applying(self._access.state.quotas, CONSUMER_BYTES, self.user, call.client_id or "")
        if found is not None:
            request.max_bytes = max(1, min(request.max_bytes, int(found.limit * self._access.quota_span_s)))

    def charge(self, call: GuardedCall, response: Any) -> None:
        """What the request cost; above a quota the connection rests, and the reply says for how long."""
        if not self._access.state.quotas or self.state != OPEN:
            return
        wait_s = self._charge_bytes(call, response)
        percent = call.spent_s() * 100
        wait_s = max(wait_s, self._access.charge(REQUEST_PERCENTAGE, self.user, call.client_id, percent))
        if wait_s > 0:
            wait_ms = ceil(wait_s * 1000)
            if response is not None and hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = max(wait_ms, response.throttle_time_ms)
            self._connection.mute(wait_ms / 1000)

    def _charge_bytes(self, call: GuardedCall, response: Any) -> float:
        if call.api_key == PRODUCE:
            return self._access.charge(PRODUCER_BYTES, self.user, call.client_id, call.size)
        if call.api_key != FETCH or response is None:
            return 0.0
        parts = [part for topic in response.responses for part in topic.partitions]
        size = sum(_size(part.records) for part in parts)
        wait_s = self._access.charge(CONSUMER_BYTES, self.user, call.client_id, size, unless_idle=True)
        if wait_s > 0:
            for part in parts:  # as in Kafka: nothing now, and all of it after the rest
                release = getattr(part.records, "release", None)
                if release is not None:
                    release()
                part.records = b""
        return wait_s


def shown(name: str) -> str:
    """What a stranger says, for a log line: not too long of it. The logger escapes what could end the line."""
    return name if len(name) <= NAME_SHOWN else name[:NAME_SHOWN] + "..."


def _size(records: Any) -> int:
    if records is None:
        return 0
    size = getattr(records, "size", None)
    return size if size is not None else len(records)
