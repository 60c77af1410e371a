"""From an error to an answer: one table of statuses, one form of body. Nothing of a fault of ours gets out."""

from __future__ import annotations

from tidelog.errors import (
    BrokerError,
    CursorExpired,
    Disconnected,
    NotShown,
    NotYetApplied,
    PeerError,
    QueryTimedOut,
    StorageError,
    TidelogError,
    UsageError,
)
from tidelog.gateway.access import CHALLENGE, LOGIN_REFUSED
from tidelog.gateway.route import Answer, Refusal, as_json
from tidelog.wire.error_code import ErrorCode

STATUS_OF_CODE = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 403,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: 403,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: 403,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: 403,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.UNKNOWN_TOPIC_ID: 404,
    ErrorCode.GROUP_ID_NOT_FOUND: 404,
    ErrorCode.TOPIC_ALREADY_EXISTS: 409,
    ErrorCode.MESSAGE_TOO_LARGE: 413,
    ErrorCode.INVALID_TOPIC_EXCEPTION: 422,
    ErrorCode.INVALID_CONFIG: 422,
    ErrorCode.INVALID_RECORD: 422,
}
"""Other codes of the broker's are 502: it answered, and not with what was asked for."""

CURSOR = "Tidelog-Cursor"
"""A header: where to go on with a feed."""

WRONG_LOGIN = "the broker refused the login: wrong name or password; check the user and the password"
FAULT = Refusal(500, "a fault of the gateway's; its log says more, please report it")


def refusal_of(error: Exception) -> Refusal:
    if isinstance(error, Refusal):
        return error
    if isinstance(error, BrokerError) and error.code in LOGIN_REFUSED:
        return Refusal(401, WRONG_LOGIN, headers=CHALLENGE)  # where the broker listens is nobody's business out there
    if isinstance(error, BrokerError):
        status = STATUS_OF_CODE.get(error.code, 502)
        return Refusal(status, str(error))
    if isinstance(error, Disconnected):
        return Refusal(503, str(error), headers=(("Retry-After", "1"),))
    if isinstance(error, CursorExpired):
        start = () if error.start is None else ((CURSOR, error.start),)
        return Refusal(410, str(error), headers=start)
    if isinstance(error, NotShown):
        return Refusal(503, str(error), headers=(("Retry-After", str(error.again_s)),))
    if isinstance(error, NotYetApplied | QueryTimedOut):
        return Refusal(504, str(error))
    if isinstance(error, UsageError):
        return Refusal(400, str(error))
    if isinstance(error, PeerError | StorageError):
        return Refusal(502, str(error))
    if isinstance(error, TidelogError):
        return Refusal(500, str(error))
    return FAULT


def answer_of(refusal: Refusal, content_type: str) -> Answer:
    body = as_json({"error_code": refusal.code, "message": str(refusal)}, status=refusal.status)
    return body._replace(headers=refusal.headers, content_type=content_type)
