"""AlterUserScramCredentials: users come, go and change their password. The password itself does not come here.

v0    the first

The client salts the password and sends the result; the broker keeps two keys made from it (`wire.scram`). Whoever can
read the request could log in with it, as in Kafka: send it by TLS, or on the machine itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.access.changes import Deletion, Upsertion, UserOutcome, decide_users
from tidelog.broker.decision import Decision
from tidelog.broker.topic_changes import RequestFault
from tidelog.broker.topics import ACCESS_TOPIC
from tidelog.errors import StorageError
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call


def handle(
    broker: Broker, request: AlterUserScramCredentialsRequest, call: Call
) -> AlterUserScramCredentialsResponse | None:
    decided = decide_users(
        broker.access.state,
        [Deletion(one.name, one.mechanism) for one in request.deletions],
        [
            Upsertion(one.name, one.mechanism, one.iterations, one.salt, one.salted_password)
            for one in request.upsertions
        ],
    )
    response = AlterUserScramCredentialsResponse(results=[_result(one) for one in decided.outcomes])
    try:
        broker.commit(ACCESS_TOPIC.name, Decision(decided.records, [(call.ticket, response)]))
    except StorageError as error:
        failed = RequestFault(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        results = [_result(one if one.fault else one._replace(fault=failed)) for one in decided.outcomes]
        return AlterUserScramCredentialsResponse(results=results)
    return None


def _result(outcome: UserOutcome) -> AlterUserScramCredentialsResult:
    if outcome.fault is None:
        return AlterUserScramCredentialsResult(user=outcome.user, error_message=None)
    return AlterUserScramCredentialsResult(
        user=outcome.user, error_code=outcome.fault.code, error_message=outcome.fault.message
    )
