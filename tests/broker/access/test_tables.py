"""Every API that the broker answers, and everybody who may not use it: one test over the whole table.

`asked` has a request of each API that names a topic, a group, a transactional id or the cluster. Who may not use it
gets an authorisation code in the reply, or an empty list where Kafka hides what may not be seen.
"""

from __future__ import annotations

import importlib
import time
from typing import Any

import pytest
from access import ADMIN, ADMIN_PASSWORD, AUTHORIZER, PASSWORD, Refused

from proving import proves
from tidelog.broker.access.rules import RULES
from tidelog.broker.dispatch import APIS
from tidelog.broker.groups.commits import GROUPS_IN_BATCHES_SINCE
from tidelog.record.columns import encode
from tidelog.wire.api import APIS as NAMES
from tidelog.wire.api import request_class
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest

REFUSALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
LOGIN = (17, 36)
FREE = (18, 60)  # who has logged in may ask what there is, and where
TOPIC, GROUP, TRANSACTION = "private", "secret group", "secret id"


def made(module: str, name: str, **values: Any) -> Any:
    return getattr(importlib.import_module(f"tidelog.wire.messages.{module}"), name)(**values)


def asked(api_key: int, version: int, topic_id: bytes) -> Any:
    """A request that needs something; built from the table of fields, so that no API is forgotten."""
    request = request_class(api_key)()
    fill(request, version, topic_id)
    if api_key == 20 and version < 6:
        request.topics = []
    if api_key == 0:
        request.acks = -1
        request.transactional_id = None
    if api_key == 22:
        request.transactional_id = None
    return request


def fill(struct: Any, version: int, topic_id: bytes) -> None:
    from tidelog.wire.field import span
    from tidelog.wire.message import struct_named

    for field in type(struct).SCHEMA.fields:
        if version not in span(field.versions) or field.tag >= 0:
            continue
        if field.kind == "array":
            setattr(struct, field.name, [element(struct, field, version, topic_id, struct_named)])
        elif field.kind == "uuid":
            setattr(struct, field.name, topic_id if field.name == "topic_id" else getattr(struct, field.name))
        elif field.kind == "string":
            setattr(struct, field.name, text_of(field.name))
        elif field.kind == "records":
            setattr(struct, field.name, bytes(encode([(None, b"x", (), 1000)])))
        elif field.name in ("resource_type", "resource_type_filter"):
            setattr(struct, field.name, 2)
        elif field.name in ("operation", "permission_type"):
            setattr(struct, field.name, 3)
    if (
        hasattr(struct, "name")
        and topic_id != bytes(16)
        and hasattr(struct, "topic_id")
        and version_by_id(struct, version)
    ):
        struct.name = None if type(struct).__name__ in ("DeleteTopicState", "MetadataRequestTopic") else ""


def version_by_id(struct: Any, version: int) -> bool:
    from tidelog.wire.field import span

    field = next(field for field in type(struct).SCHEMA.fields if field.name == "topic_id")
    return version in span(field.versions)


def element(struct: Any, field: Any, version: int, topic_id: bytes, struct_named: Any) -> Any:
    if field.element == "string":
        return text_of(field.name)
    if field.element.startswith("int"):
        return 0 if field.name != "resource_types" else 2
    one = struct_named(type(struct), field.element)()
    fill(one, version, topic_id)
    return one


def text_of(name: str) -> str:
    if "group" in name or name in ("key", "coordinator_keys"):
        return GROUP
    if "transactional" in name:
        return TRANSACTION
    if name in ("principal", "principal_filter"):
        return "User:nobody"
    if name in ("host", "host_filter"):
        return "*"
    if name == "entity_type":
        return "user"
    return TOPIC


def codes_in(struct: Any) -> set[int]:
    """Every error code of a reply."""
    found: set[int] = set()
    for field in type(struct).SCHEMA.fields:
        value = getattr(struct, field.name)
        if field.name.endswith("error_code"):
            found.add(value)
        elif isinstance(value, list):
            for one in value:
                if hasattr(type(one), "SCHEMA"):
                    found |= codes_in(one)
    return found


def lists_in(struct: Any) -> list[list[Any]]:
    names = [field.name for field in type(struct).SCHEMA.fields if field.name != "unknown_state_filters"]
    values = [getattr(struct, name) for name in names]
    return [value for value in values if isinstance(value, list)]


OFFSET_FETCH, NULL_TOPICS_SINCE = 9, 2
HIDES = (16, 66)  # what may not be seen is left out


@pytest.fixture
def broker(access_broker):
    made = access_broker(
        "SASL_PLAINTEXT://127.0.0.1:0,ADMIN://127.0.0.1:0",
        **{
            "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,ADMIN:PLAINTEXT",
            "authorizer.class.name": AUTHORIZER,
            "super.users": f"User:{ADMIN};User:ANONYMOUS",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
        },
    )
    with made.client("ADMIN") as admin:
        made.add_user("alice", PASSWORD, by=admin)
        made.add_user(ADMIN, ADMIN_PASSWORD, by=admin)
        topics = [CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)]
        (created,) = admin.call(CreateTopicsRequest(topics=topics), 7).topics
    made.topic_id = created.topic_id
    return made


@proves("T10")
def test_every_api_that_is_answered_has_a_row_in_the_table_of_rules():
    assert set(APIS) <= set(RULES)


@proves("T10")
def test_without_a_login_every_api_but_the_first_question_ends_the_connection(broker):
    for api_key, entry in APIS.items():
        for version in {entry.min_version, entry.max_version}:
            with broker.client("SASL_PLAINTEXT") as client:
                request = asked(api_key, version, bytes(16))
                if api_key in (17, 18):
                    client.call(request, version)
                elif api_key == 36:
                    assert client.call(request, version).error_code == ErrorCode.ILLEGAL_SASL_STATE
                else:
                    with pytest.raises(Refused):
                        client.call(request, version)


@proves("T10")
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN"])
def test_after_a_wrong_password_no_api_is_answered(broker, mechanism):
    for api_key, entry in APIS.items():
        with broker.client("SASL_PLAINTEXT") as client:
            answer = client.login("alice", "wrong", mechanism)
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            with pytest.raises(Refused):
                client.call(asked(api_key, entry.max_version, bytes(16)), entry.max_version)


@proves("T10")
@pytest.mark.parametrize("by_id", [False, True])
def test_who_may_do_nothing_is_refused_by_every_version_of_every_api(broker, by_id):
    with broker.client("SASL_PLAINTEXT") as client:
        assert client.login("alice", PASSWORD).error_code == 0
        for api_key, entry in APIS.items():
            if api_key in LOGIN or api_key in FREE:
                continue
            for version in range(entry.min_version, entry.max_version + 1):
                response = client.call(asked(api_key, version, broker.topic_id if by_id else bytes(16)), version)
                named = f"{NAMES[api_key].name} v{version}: {response}"
                if api_key in HIDES:
                    assert not any(lists_in(response)), named
                elif api_key == 35 and version < 3:
                    assert not response.results or codes_in(response) & REFUSALS, named
                else:
                    assert codes_in(response) & REFUSALS, named
                    assert codes_in(response) <= REFUSALS | {ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED}, named


@proves("T10")
def test_who_asks_for_all_offsets_of_a_group_that_is_not_his_is_refused_by_every_version(broker):
    from tidelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

    refusal = ErrorCode.GROUP_AUTHORIZATION_FAILED
    with broker.client("SASL_PLAINTEXT") as client:
        assert client.login("alice", PASSWORD).error_code == 0
        for version in range(NULL_TOPICS_SINCE, APIS[OFFSET_FETCH].max_version + 1):
            if version < GROUPS_IN_BATCHES_SINCE:
                answer = client.call(OffsetFetchRequest(group_id=GROUP, topics=None), version)
                told = [(answer.error_code, answer.topics)]
            else:
                both = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in (GROUP, "another")]
                answer = client.call(OffsetFetchRequest(groups=both), version)
                told = [(one.error_code, one.topics) for one in answer.groups]
                assert [one.group_id for one in answer.groups] == [GROUP, "another"]
            assert told == [(refusal, [])] * len(told), f"v{version}"
    assert "Traceback" not in broker.said()


@proves("T10")
def test_a_super_user_is_refused_by_none(broker):
    with broker.client("SASL_PLAINTEXT") as client:
        assert client.login(ADMIN, ADMIN_PASSWORD).error_code == 0
        for api_key, entry in APIS.items():
            if api_key in LOGIN or api_key in (20, 11, 14, 68):  # the topic stays; joining waits for nobody here
                continue
            response = client.call(asked(api_key, entry.max_version, broker.topic_id), entry.max_version)
            assert not codes_in(response) & REFUSALS, f"{NAMES[api_key].name}: {response}"


@proves("T10")
def test_when_a_session_is_over_every_api_ends_the_connection_but_a_new_login(access_broker):
    broker = access_broker(
        "SASL_PLAINTEXT://127.0.0.1:0,ADMIN://127.0.0.1:0",
        **{
            "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,ADMIN:PLAINTEXT",
            "connections.max.reauth.ms": 30,
        },
    )
    with broker.client("ADMIN") as admin:
        broker.add_user("alice", PASSWORD, by=admin)
    clients = {}
    for api_key in APIS:
        clients[api_key] = broker.client("SASL_PLAINTEXT")
        answer = clients[api_key].login("alice", PASSWORD)
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 30)
    time.sleep(0.05)
    for api_key, client in clients.items():
        version = APIS[api_key].max_version
        if api_key in LOGIN:
            assert client.call(asked(api_key, version, bytes(16)), version).error_code == ErrorCode.ILLEGAL_SASL_STATE
        else:
            with pytest.raises(Refused):
                client.call(asked(api_key, version, bytes(16)), version)
        client.close()
