"""One visible table: what each API asks for. Every API that the broker answers has a row.

The table follows Apache Kafka's brokers. A row is a list of checks (`checks`), done in order before the handler sees
the request; here are also the few that are of no general kind.

Names are not told: a topic that may not be described is answered the same whether it is there or not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidelog.broker.access.acls import (
    ALTER,
    ALTER_CONFIGS,
    CLUSTER,
    CLUSTER_ACTION,
    CLUSTER_NAME,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    IDEMPOTENT_WRITE,
    OPERATIONS_OF,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
)
from tidelog.broker.access.checks import (
    CODES,
    Ask,
    Check,
    Configs,
    Each,
    EachName,
    Shown,
    Whole,
    element,
    refuse_some,
    split,
)
from tidelog.broker.access.refusing import mirrored, named, refused
from tidelog.broker.topics import NO_ID
from tidelog.wire.api import request_class, response_class
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.message import struct_named

if TYPE_CHECKING:
    from tidelog.broker.access.session import GuardedCall

# The few that are neither ---------------------------------------------------------------------------------------------


def _metadata(ask: Ask, request: Any, call: GuardedCall) -> Any:
    """A topic that is made by asking for it needs CREATE; one that may not be described is not told of."""
    asks_for_all = request.topics is None or (call.version == 0 and not request.topics)
    if asks_for_all:
        Shown(DESCRIBE, TOPIC, "topics", "name")(ask, request, call)
    else:
        Each(DESCRIBE, TOPIC, "topics", "name", "topics")(ask, request, call)
        _may_create(ask, request, call)
        if call.version == 0 and not request.topics:
            # An empty list asks for all of them; nobody is told of those.
            call.amend(_keep_refused)
        call.amend(lambda response: _name_all(response, call.version))
    call.amend(lambda response: _operations(ask, response, "topics", "topic_authorized_operations", TOPIC, "name"))
    call.amend(lambda response: _cluster_operations(ask, response))
    return None


def _name_all(response: Any, version: int) -> None:
    """Who was refused by id has no name to be told, which older versions write as an empty one."""
    for one in response.topics:
        if one.name is None and version < NULL_NAMES_SINCE:
            one.name = ""


def _keep_refused(response: Any) -> None:
    response.topics = [one for one in response.topics if one.error_code in CODES.values()]


def _may_create(ask: Ask, request: Any, call: GuardedCall) -> None:
    if not (request.allow_auto_topic_creation and call.broker.config.flag("auto.create.topics.enable")):
        return
    if ask(CREATE, CLUSTER, CLUSTER_NAME):
        return
    by_name = call.broker.topics.by_name
    request.topics, denied = split(
        request.topics,
        lambda one: one.topic_id != NO_ID or one.name in by_name or ask(CREATE, TOPIC, one.name or ""),
    )
    if denied:
        refuse_some(call, "topics", denied, CODES[TOPIC])


def _create_topics(ask: Ask, request: Any, call: GuardedCall) -> Any:
    if not ask(CREATE, CLUSTER, CLUSTER_NAME):
        Each(CREATE, TOPIC, "topics", "name", "topics")(ask, request, call)

    def hide_configs(response: Any) -> None:
        for one in response.topics:
            if not one.error_code and not ask(DESCRIBE_CONFIGS, TOPIC, one.name):
                one.configs, one.num_partitions, one.replication_factor = None, -1, -1
                one.topic_config_error_code = CODES[TOPIC]

    call.amend(hide_configs)
    return None


def _delete_topics(ask: Ask, request: Any, call: GuardedCall) -> Any:
    if request.topic_names:
        return EachName(DELETE, TOPIC, "topic_names", "responses", "name")(ask, request, call)
    ids = {one.topic_id for one in request.topics if one.topic_id != NO_ID}
    Each(DELETE, TOPIC, "topics", "name", "responses")(ask, request, call)

    def hide_names(response: Any) -> None:
        for one in response.responses:
            if one.topic_id in ids and one.name and not ask(DESCRIBE, TOPIC, one.name):
                one.name = None

    call.amend(hide_names)
    return None


def _offset_fetch(ask: Ask, request: Any, call: GuardedCall) -> Any:
    if not request.groups:
        denied = Whole(DESCRIBE, GROUP, "group_id")(ask, request, call)
        if denied is not None:
            return denied
        if request.topics is None:
            return Shown(DESCRIBE, TOPIC, "topics", "name")(ask, request, call)
        return Each(DESCRIBE, TOPIC, "topics", "name", "topics")(ask, request, call)
    Each(DESCRIBE, GROUP, "groups", "group_id", "groups")(ask, request, call)
    made = element(call.api_key, "groups")
    refused_topics: dict[str, list[Any]] = {}
    for group in request.groups:
        allowed, hidden = split(group.topics or [], lambda one: _may_see(ask, one, call))
        if hidden:
            group.topics = allowed
            one_topic = struct_named(made, "OffsetFetchResponseTopics")
            code = CODES[TOPIC]
            refused_topics[group.group_id] = [mirrored(one_topic, one, code, call.version) for one in hidden]

    def amend(response: Any) -> None:
        for group in response.groups:
            group.topics = [one for one in group.topics if _may_see(ask, one, call)]
            group.topics += refused_topics.get(group.group_id, ())

    call.amend(amend)
    return None


def _may_see(ask: Ask, topic: Any, call: GuardedCall) -> bool:
    name = call.broker.topics.name_of(topic.name, topic.topic_id)
    return name is None or ask(DESCRIBE, TOPIC, name)


COORDINATED = {0: GROUP, 1: TRANSACTIONAL_ID, 2: GROUP}
MANY_KEYS_SINCE = 4
NULL_NAMES_SINCE = 12


def _find_coordinator(ask: Ask, request: Any, call: GuardedCall) -> Any:
    resource = COORDINATED.get(request.key_type)
    if resource is None:
        return None
    if call.version >= MANY_KEYS_SINCE:
        check = EachName(DESCRIBE, resource, "coordinator_keys", "coordinators", "key")
        check(ask, request, call)
        return None
    return Whole(DESCRIBE, resource, "key")(ask, request, call)


def _init_producer_id(ask: Ask, request: Any, call: GuardedCall) -> Any:
    if request.transactional_id is not None:
        return Whole(WRITE, TRANSACTIONAL_ID, "transactional_id")(ask, request, call)
    if ask(IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME) or call.session.may_some(WRITE, TOPIC):
        return None
    return refused(call.api_key, call.version, request, CODES[CLUSTER])


def _add_partitions(ask: Ask, request: Any, call: GuardedCall) -> Any:
    """All or nothing, as in Kafka: where one topic is refused, the others are not attempted."""
    asked = [(one.transactional_id, one.topics) for one in request.transactions]
    if not asked:
        asked = [(request.v3_and_below_transactional_id, request.v3_and_below_topics)]
    for transactional_id, topics in asked:
        if not ask(WRITE, TRANSACTIONAL_ID, transactional_id):
            return _refuse_partitions(request, call, lambda _name: CODES[TRANSACTIONAL_ID])
        if not all(ask(WRITE, TOPIC, topic.name) for topic in topics):
            return _refuse_partitions(
                request,
                call,
                lambda name: ErrorCode.OPERATION_NOT_ATTEMPTED if ask(WRITE, TOPIC, name) else CODES[TOPIC],
            )
    return None


def _refuse_partitions(request: Any, call: GuardedCall, code_of: Callable[[str], int]) -> Any:
    whole = response_class(call.api_key)
    response = whole()
    topic_made = struct_named(whole, "AddPartitionsToTxnTopicResult")
    made = struct_named(whole, "AddPartitionsToTxnResult")

    def results(topics: Any) -> list[Any]:
        return [mirrored(topic_made, one, code_of(one.name), call.version) for one in topics]

    if request.transactions:
        response.results_by_transaction = [
            made(transactional_id=one.transactional_id, topic_results=results(one.topics))
            for one in request.transactions
        ]
    else:
        response.results_by_topic_v3_and_below = results(request.v3_and_below_topics)
    return response


def _write_markers(ask: Ask, request: Any, call: GuardedCall) -> Any:
    return None if ask(CLUSTER_ACTION, CLUSTER, CLUSTER_NAME) else Whole(ALTER, CLUSTER)(ask, request, call)


def _alter_users(ask: Ask, request: Any, call: GuardedCall) -> Any:
    if ask(ALTER, CLUSTER, CLUSTER_NAME):
        return None
    made = element(call.api_key, "results")
    users = dict.fromkeys(one.name for one in (*request.deletions, *request.upsertions))
    return response_class(call.api_key)(results=[named(made, "user", user, CODES[CLUSTER]) for user in users])


def _alter_quotas(ask: Ask, request: Any, call: GuardedCall) -> Any:
    response = Whole(ALTER_CONFIGS, CLUSTER)(ask, request, call)
    if response is not None:
        for result, asked in zip(response.entries, request.entries, strict=True):
            result.entity = asked.entity  # a client finds its own by it
    return response


def _group_heartbeat(ask: Ask, request: Any, call: GuardedCall) -> Any:
    denied = Whole(READ, GROUP, "group_id")(ask, request, call)
    if denied is None and not all(ask(DESCRIBE, TOPIC, name) for name in request.subscribed_topic_names or ()):
        return refused(call.api_key, call.version, request, CODES[TOPIC])
    return denied


def _group_describe(ask: Ask, request: Any, call: GuardedCall) -> Any:
    EachName(DESCRIBE, GROUP, "group_ids", "groups", "group_id")(ask, request, call)

    def hide(response: Any) -> None:
        for group in response.groups:
            names = {topic for member in group.members for topic in _topics_of(member)}
            if not all(ask(DESCRIBE, TOPIC, name) for name in names):
                group.error_code, group.members = CODES[TOPIC], []

    call.amend(hide)
    call.amend(lambda response: _operations(ask, response, "groups", "authorized_operations", GROUP, "group_id"))
    return None


def _describe_share_offsets(ask: Ask, request: Any, call: GuardedCall) -> Any:
    Each(DESCRIBE, GROUP, "groups", "group_id", "groups")(ask, request, call)

    def hide(response: Any) -> None:
        for group in response.groups:
            for topic in group.topics:
                if not ask(DESCRIBE, TOPIC, topic.topic_name):
                    for one in topic.partitions:
                        one.error_code, one.error_message, one.start_offset, one.lag = CODES[TOPIC], None, -1, -1

    call.amend(hide)
    return None


def _topics_of(member: Any) -> list[str]:
    shall_have = getattr(member, "target_assignment", None)  # a share group's member has one assignment
    assigned = [*member.assignment.topic_partitions, *(shall_have.topic_partitions if shall_have is not None else ())]
    return [*member.subscribed_topic_names, *(one.topic_name for one in assigned)]


def _describe_topics(ask: Ask, request: Any, call: GuardedCall) -> Any:
    """Without names it asks for all: then for those that may be described, so that no page and no cursor tells more."""
    if request.topics:
        Each(DESCRIBE, TOPIC, "topics", "name", "topics")(ask, request, call)
    else:
        one = struct_named(request_class(call.api_key), "TopicRequest")
        seen = [topic.name for topic in call.broker.topics.visible() if ask(DESCRIBE, TOPIC, topic.name)]
        request.topics = [one(name=name) for name in seen]
    if not request.topics:
        return response_class(call.api_key)()
    call.amend(lambda response: _operations(ask, response, "topics", "topic_authorized_operations", TOPIC, "name"))
    return None


def _describe_transactions(ask: Ask, request: Any, call: GuardedCall) -> Any:
    EachName(DESCRIBE, TRANSACTIONAL_ID, "transactional_ids", "transaction_states", "transactional_id")(
        ask, request, call
    )

    def hide(response: Any) -> None:
        for state in response.transaction_states:
            state.topics = [one for one in state.topics if ask(DESCRIBE, TOPIC, one.topic)]

    call.amend(hide)
    return None


def _describe_groups(ask: Ask, request: Any, call: GuardedCall) -> Any:
    EachName(DESCRIBE, GROUP, "groups", "groups", "group_id")(ask, request, call)
    call.amend(lambda response: _operations(ask, response, "groups", "authorized_operations", GROUP, "group_id"))
    return None


def _describe_cluster(ask: Ask, request: Any, call: GuardedCall) -> Any:
    call.amend(lambda response: _cluster_operations(ask, response))
    return None


def _free(_ask: Ask, _request: Any, _call: GuardedCall) -> Any:
    """Who has come this far may ask."""
    return None


# What may I do? (KIP-430) ---------------------------------------------------------------------------------------------

NOT_ASKED = -(2**31)


def _operations(ask: Ask, response: Any, items: str, attribute: str, resource: int, name: str) -> None:
    for one in getattr(response, items):
        if getattr(one, attribute) != NOT_ASKED:
            setattr(one, attribute, _bits(ask, resource, getattr(one, name) or ""))


def _cluster_operations(ask: Ask, response: Any) -> None:
    if response.cluster_authorized_operations != NOT_ASKED:
        allowed = ask(DESCRIBE, CLUSTER, CLUSTER_NAME)
        response.cluster_authorized_operations = _bits(ask, CLUSTER, CLUSTER_NAME) if allowed else 0


def _bits(ask: Ask, resource: int, name: str) -> int:
    return sum(1 << operation for operation in OPERATIONS_OF[resource] if ask(operation, resource, name))


# The table ------------------------------------------------------------------------------------------------------------

_TRANSACTION = Whole(WRITE, TRANSACTIONAL_ID, "transactional_id")
_IN_GROUP = Whole(READ, GROUP, "group_id")

RULES: dict[int, tuple[Check, ...]] = {
    0: (_TRANSACTION, Each(WRITE, TOPIC, "topic_data", "name", "responses")),
    1: (Each(READ, TOPIC, "topics", "topic", "responses"),),
    2: (Each(DESCRIBE, TOPIC, "topics", "name", "topics"),),
    3: (_metadata,),
    8: (_IN_GROUP, Each(READ, TOPIC, "topics", "name", "topics")),
    9: (_offset_fetch,),
    10: (_find_coordinator,),
    11: (_IN_GROUP,),
    12: (_IN_GROUP,),
    13: (_IN_GROUP,),
    14: (_IN_GROUP,),
    15: (_describe_groups,),
    16: (Shown(DESCRIBE, GROUP, "groups", "group_id", unless=DESCRIBE),),
    17: (_free,),
    18: (_free,),
    19: (_create_topics,),
    20: (_delete_topics,),
    21: (Each(DELETE, TOPIC, "topics", "name", "topics"),),
    22: (_init_producer_id,),
    23: (Each(DESCRIBE, TOPIC, "topics", "topic", "topics"),),
    24: (_add_partitions,),
    25: (_TRANSACTION, _IN_GROUP),
    26: (_TRANSACTION,),
    27: (_write_markers,),
    28: (_TRANSACTION, _IN_GROUP, Each(READ, TOPIC, "topics", "name", "topics")),
    29: (Whole(DESCRIBE, CLUSTER),),
    30: (Whole(ALTER, CLUSTER),),
    31: (Whole(ALTER, CLUSTER),),
    32: (Configs(DESCRIBE_CONFIGS, "results"),),
    33: (Configs(ALTER_CONFIGS, "responses"),),
    34: (Whole(ALTER, CLUSTER),),
    35: (Whole(DESCRIBE, CLUSTER),),
    36: (_free,),
    37: (Each(ALTER, TOPIC, "topics", "name", "results"),),
    42: (EachName(DELETE, GROUP, "groups_names", "results", "group_id"),),
    43: (Whole(ALTER, CLUSTER),),
    44: (Configs(ALTER_CONFIGS, "responses"),),
    45: (Whole(ALTER, CLUSTER),),
    46: (Whole(DESCRIBE, CLUSTER),),
    47: (Whole(DELETE, GROUP, "group_id"), Each(READ, TOPIC, "topics", "name", "topics")),
    48: (Whole(DESCRIBE_CONFIGS, CLUSTER),),
    49: (_alter_quotas,),
    50: (Whole(DESCRIBE, CLUSTER),),
    51: (_alter_users,),
    55: (Whole(DESCRIBE, CLUSTER),),
    60: (_describe_cluster,),
    61: (Each(READ, TOPIC, "topics", "name", "topics"),),
    65: (_describe_transactions,),
    66: (Shown(DESCRIBE, TRANSACTIONAL_ID, "transaction_states", "transactional_id"),),
    68: (_group_heartbeat,),
    69: (_group_describe,),
    74: (Whole(DESCRIBE_CONFIGS, CLUSTER),),
    75: (_describe_topics,),
    76: (_group_heartbeat,),
    77: (_group_describe,),
    78: (_IN_GROUP, Each(READ, TOPIC, "topics", "", "responses")),
    79: (_IN_GROUP, Each(READ, TOPIC, "topics", "", "responses")),
    90: (_describe_share_offsets,),
    91: (_IN_GROUP, Each(READ, TOPIC, "topics", "topic_name", "responses")),
    92: (Whole(DELETE, GROUP, "group_id"), Each(READ, TOPIC, "topics", "topic_name", "responses")),
}


def guard(ask: Ask, request: Any, call: GuardedCall) -> Any:
    """The reply that refuses the whole request, or None: what is left of it may be done."""
    for check in RULES[call.api_key]:  # every API that is answered has a row; a test holds them together
        response = check(ask, request, call)
        if response is not None:
            return response
    return None
