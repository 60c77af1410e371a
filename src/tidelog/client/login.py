"""Logging in at a broker, and again before it forgets: SaslHandshake, then one or two SaslAuthenticate.

The broker says how long a session lasts (KIP-368); after `RENEW_AFTER` of it the connection logs in anew, between two
requests.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from tidelog.client.refusal import check, refused
from tidelog.client.security import SCRAM, Security
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tidelog.wire.scram import ClientExchange, ScramFault

if TYPE_CHECKING:
    from tidelog.client.connection import Connection

RENEW_AFTER = 0.85
NONCE_BYTES = 24


def log_in(connection: Connection, security: Security) -> float | None:
    """When to do it again, on the monotonic clock; None is never."""
    told = f" (from {security.where})" if security.where else ""
    what = f"login at {connection.address} as {security.user!r} by {security.mechanism}{told}"
    shaken = connection.call(SaslHandshakeRequest(mechanism=security.mechanism), SaslHandshakeResponse)
    offered = f"the broker offers {', '.join(shaken.mechanisms) or 'none'}"
    check(shaken.error_code, what, offered if shaken.error_code else None)
    began = time.monotonic()
    if security.mechanism not in SCRAM:
        answer = _say(connection, f"\0{security.user}\0{security.password}".encode(), what)
    else:
        nonce = os.urandom(NONCE_BYTES).hex()
        exchange = ClientExchange(security.mechanism, security.user, security.password, nonce)
        try:
            answer = _say(connection, exchange.first(), what)
            answer = _say(connection, exchange.final(answer.auth_bytes), what)
            exchange.check(answer.auth_bytes)
        except ScramFault as error:
            connection.close()
            raise refused(ErrorCode.SASL_AUTHENTICATION_FAILED, what, str(error)) from error
    lifetime_s = answer.session_lifetime_ms / 1000
    return began + lifetime_s * RENEW_AFTER if lifetime_s > 0 else None


def _say(connection: Connection, token: bytes, what: str) -> SaslAuthenticateResponse:
    answer = connection.call(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse)
    check(answer.error_code, what, answer.error_message)
    return answer
