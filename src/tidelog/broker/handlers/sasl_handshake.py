"""SaslHandshake: how a client means to log in. Sessions answer it (`access.session`); here it is nobody's turn.

v0    tokens follow bare, without headers        v1    tokens follow in SaslAuthenticate
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call


def handle(broker: Broker, request: SaslHandshakeRequest, call: Call) -> SaslHandshakeResponse:
    """On a listener that asks for no login."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
