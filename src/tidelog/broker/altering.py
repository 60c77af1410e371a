"""Settings are altered, for both requests that ask for it: decided, committed, answered when that is on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tidelog.broker.config_changes import Alteration, Altered, decide_alter
from tidelog.broker.decision import Decision
from tidelog.broker.topic_changes import RequestFault
from tidelog.broker.topics import TOPICS_TOPIC
from tidelog.errors import StorageError
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.message import Struct

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call

Response = TypeVar("Response", bound=Struct)


def alter(
    broker: Broker,
    call: Call,
    asked: Iterable[Alteration],
    validate_only: bool,
    response: Callable[[Sequence[Altered]], Response],
) -> Response | None:
    """None: the response is committed with the records, and leaves when they are synced."""
    decided = decide_alter(broker.topics, asked, broker.config, broker.topics_shared_by)
    records = [] if validate_only else decided.records
    try:
        broker.commit(TOPICS_TOPIC.name, Decision(records, [(call.ticket, response(decided.outcomes))]))
    except StorageError as error:
        fault = RequestFault(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        return response([one if one.fault else one._replace(fault=fault) for one in decided.outcomes])
    return None


def outcome_fields(outcome: Altered) -> dict[str, Any]:
    """Of one resource, as both responses have them."""
    return {
        "error_code": outcome.fault.code if outcome.fault else 0,
        "error_message": outcome.fault.message if outcome.fault else None,
        "resource_type": outcome.resource,
        "resource_name": outcome.name,
    }
