"""DescribeUserScramCredentials: which users there are and by what they log in; of their keys, nothing.

v0    the first
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tidelog.broker.decision import Decision
from tidelog.broker.topics import ACCESS_TOPIC
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from tidelog.wire.scram import TYPES

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call


def handle(broker: Broker, request: DescribeUserScramCredentialsRequest, call: Call) -> None:
    known: dict[str, list[CredentialInfo]] = {}
    for (user, mechanism), kept in broker.access.state.users.items():
        info = CredentialInfo(mechanism=TYPES[mechanism], iterations=kept.iterations)
        known.setdefault(user, []).append(info)
    asked = Counter(one.name for one in request.users) if request.users else Counter(sorted(known))
    results = [_result(user, times, known.get(user)) for user, times in asked.items()]
    response = DescribeUserScramCredentialsResponse(error_message=None, results=results)
    broker.commit(ACCESS_TOPIC.name, Decision([], [(call.ticket, response)]))


def _result(user: str, times: int, infos: list[CredentialInfo] | None) -> DescribeUserScramCredentialsResult:
    result = DescribeUserScramCredentialsResult(user=user, error_message=None)
    if times > 1:
        result.error_code = ErrorCode.DUPLICATE_RESOURCE
        result.error_message = f"user {user} is in the request more than once; name it once"
    elif infos is None:
        result.error_code = ErrorCode.RESOURCE_NOT_FOUND
        result.error_message = f"user {user} does not exist"
    else:
        result.credential_infos = infos
    return result
