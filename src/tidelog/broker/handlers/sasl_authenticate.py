"""SaslAuthenticate: one message of a login. Sessions answer it (`access.session`); here it is nobody's turn.

v0    the first        v1    how long the session lasts (KIP-368)        v2    flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call


def handle(broker: Broker, request: SaslAuthenticateRequest, call: Call) -> SaslAuthenticateResponse:
    """On a listener that asks for no login."""
    message = "this listener asks for no login"
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message)
