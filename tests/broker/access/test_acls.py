"""Access rules: what fits, what counts, and that they are kept; beside them the standard APIs that change them."""

from __future__ import annotations

import pytest
from access import ADMIN, AUTHORIZER, PASSWORD
from hypothesis import given
from hypothesis import strategies as st
from raw import batch_of, fetch, produce

from proving import proves
from tidelog.broker.access import acls as rules
from tidelog.broker.access.acls import ALL, ALLOW, DENY, DESCRIBE, LITERAL, PREFIXED, READ, TOPIC, WRITE, Asker
from tidelog.wire.acl import Acl
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.create_acls import AclCreation, CreateAclsRequest
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tidelog.wire.messages.describe_acls import DescribeAclsRequest
from tidelog.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, RequestCursor
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

ALICE = Asker("User:alice", "10.0.0.1")


def acl(
    name: str = "orders",
    pattern: int = LITERAL,
    operation: int = READ,
    permission: int = ALLOW,
    principal: str = "User:alice",
    host: str = "*",
) -> Acl:
    return Acl(TOPIC, pattern, name, principal, host, operation, permission)


@proves("T10")
@pytest.mark.parametrize(
    ("present", "operation", "allowed"),
    [
        ([], READ, False),
        ([acl()], READ, True),
        ([acl()], WRITE, False),
        ([acl()], DESCRIBE, True),  # who may read may describe
        ([acl(operation=rules.ALTER_CONFIGS)], rules.DESCRIBE_CONFIGS, True),
        ([acl(operation=ALL)], WRITE, True),
        ([acl(name="ord", pattern=PREFIXED)], READ, True),
        ([acl(name="ord")], READ, False),
        ([acl(name="*")], READ, True),
        ([acl(name="*", pattern=PREFIXED)], READ, False),
        ([acl(principal="User:*")], READ, True),
        ([acl(principal="User:bob")], READ, False),
        ([acl(host="10.0.0.1")], READ, True),
        ([acl(host="10.0.0.2")], READ, False),
        ([acl(), acl(permission=DENY)], READ, False),
        ([acl(), acl(name="*", permission=DENY, principal="User:*")], READ, False),
        ([acl(), acl(permission=DENY, operation=ALL)], READ, False),
        ([acl(), acl(permission=DENY, host="10.0.0.2")], READ, True),
        ([acl(), acl(permission=DENY, operation=READ)], DESCRIBE, True),  # to deny reading is not to deny describing
    ],
)
def test_a_rule_that_fits_allows_and_one_that_denies_is_stronger(present, operation, allowed):
    assert rules.allows(present, ALICE, operation, TOPIC, "orders", if_none=False) is allowed


@proves("T10")
def test_where_no_rule_is_about_a_resource_the_setting_decides():
    assert rules.allows([acl(name="other")], ALICE, READ, TOPIC, "orders", if_none=True)
    assert not rules.allows([acl(principal="User:bob")], ALICE, READ, TOPIC, "orders", if_none=True)


some_acls = st.lists(
    st.builds(
        acl,
        name=st.sampled_from(["*", "a", "ab", "abc", "b"]),
        pattern=st.sampled_from([LITERAL, PREFIXED]),
        operation=st.sampled_from([ALL, READ, WRITE]),
        permission=st.sampled_from([ALLOW, DENY]),
        principal=st.sampled_from(["User:alice", "User:*", "User:bob"]),
    ),
    max_size=6,
)


@proves("T10")
@given(some_acls)
def test_who_may_write_some_topic_is_who_may_write_one_of_any_name(present):
    names = ["a", "ab", "abc", "abcd", "b", "bc", "zzz", "*x"]
    some = rules.allows_some(present, ALICE, WRITE, TOPIC, if_none=False)
    assert not any(rules.allows(present, ALICE, WRITE, TOPIC, name, if_none=False) for name in names) or some


@proves("T10")
@given(some_acls, st.sampled_from(["a", "ab", "abc", "b", "c"]))
def test_one_more_rule_that_denies_allows_nobody_more(present, name):
    before = rules.allows(present, ALICE, WRITE, TOPIC, name, if_none=False)
    assert rules.allows([*present, acl(name="a", pattern=PREFIXED, permission=DENY)], ALICE, WRITE, TOPIC, name,
                        if_none=False) <= before  # fmt: skip


@proves("T10")
@given(some_acls, st.sampled_from(["", "*", "a", "ab", "abc", "abcd", "b", "c"]))
def test_the_index_finds_the_rules_that_are_about_a_name_and_no_others(present, name):
    expected = [one for one in present if rules.covers(one, name)]
    assert sorted(rules.Index(present).about(TOPIC, name)) == sorted(expected)
    assert rules.Index(present).about(rules.GROUP, name) == []


# By the APIs ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def broker(access_broker):
    made = access_broker(
        "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        **{"authorizer.class.name": AUTHORIZER, "super.users": f"User:{ADMIN}; User:ANONYMOUS"},
    )
    with made.client("PLAINTEXT") as admin:
        made.add_user("alice", PASSWORD, by=admin)
        topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("orders", "other")]
        admin.call(CreateTopicsRequest(topics=topics), 7)
    return made


def create(client, *wanted: Acl) -> list[int]:
    creations = [
        AclCreation(
            resource_type=one.resource,
            resource_name=one.name,
            resource_pattern_type=one.pattern,
            principal=one.principal,
            host=one.host,
            operation=one.operation,
            permission_type=one.permission,
        )
        for one in wanted
    ]
    return [result.error_code for result in client.call(CreateAclsRequest(creations=creations), 3).results]


def described(client, **wanted) -> set[tuple[str, str, int]]:
    any_one = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    any_name = dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"))
    request = DescribeAclsRequest(**{**any_one, **any_name, **wanted})
    answer = client.call(request, 3)
    assert answer.error_code == 0
    return {(r.resource_name, one.principal, one.operation) for r in answer.resources for one in r.acls}


@proves("T10")
def test_rules_count_from_the_next_request_on_and_after_a_restart(broker):
    with broker.client("PLAINTEXT") as admin, broker.client("SASL_PLAINTEXT") as client:
        client.login("alice", PASSWORD)

        def write() -> int:
            (topic,) = client.call(produce("orders", batch_of(b"x")), 9).responses
            return topic.partition_responses[0].error_code

        assert write() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert create(admin, acl(operation=WRITE), acl(operation=WRITE)) == [0, 0]
        assert write() == 0
        assert create(admin, acl(operation=WRITE, permission=DENY)) == [0]
        assert write() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        gone = DeleteAclsFilter(
            resource_type_filter=1, pattern_type_filter=1, resource_name_filter=None, principal_filter=None,
            host_filter=None, operation=1, permission_type=DENY,
        )  # fmt: skip
        (result,) = admin.call(DeleteAclsRequest(filters=[gone]), 3).filter_results
        assert (result.error_code, len(result.matching_acls)) == (0, 1)
        assert write() == 0
    broker.stop()
    broker.start()
    with broker.client("PLAINTEXT") as admin:
        assert described(admin) == {("orders", "User:alice", WRITE)}


@proves("T10")
def test_of_a_request_what_is_allowed_is_done_and_the_rest_is_refused(broker):
    with broker.client("PLAINTEXT") as admin, broker.client("SASL_PLAINTEXT") as client:
        create(admin, acl(operation=WRITE), acl(operation=READ))
        client.login("alice", PASSWORD)
        both = produce("orders", batch_of(b"x"))
        both.topic_data += produce("other", batch_of(b"x")).topic_data
        answer = client.call(both, 9)
        codes = {topic.name: topic.partition_responses[0].error_code for topic in answer.responses}
        assert codes == {"orders": 0, "other": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        reading = fetch("orders", 0)
        reading.topics += fetch("other", 0).topics
        answer = client.call(reading, 12)
        parts = {topic.topic: topic.partitions[0] for topic in answer.responses}
        assert parts["orders"].error_code == 0 and len(parts["orders"].records) > 0
        assert parts["other"].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        everything = client.call(MetadataRequest(topics=None), 12)
        assert [topic.name for topic in everything.topics] == ["orders"]
        asked = [MetadataRequestTopic(name=name) for name in ("orders", "other", "nowhere")]
        codes = {one.name: one.error_code for one in client.call(MetadataRequest(topics=asked), 12).topics}
        hidden = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert codes == {"orders": 0, "other": hidden, "nowhere": hidden}
        assert client.call(InitProducerIdRequest(transactional_id=None), 4).error_code == 0


@proves("T10")
def test_neither_a_page_of_topics_nor_its_cursor_names_what_may_not_be_described(broker):
    with broker.client("PLAINTEXT") as admin, broker.client("SASL_PLAINTEXT") as client:
        names = ["a-mine", "b-hidden", "c-mine", "d-hidden"]
        topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
        admin.call(CreateTopicsRequest(topics=topics), 7)
        create(admin, acl(name="a-mine"), acl(name="c-mine"))
        client.login("alice", PASSWORD)
        told, cursor = [], None
        while True:
            request = DescribeTopicPartitionsRequest(response_partition_limit=1, cursor=cursor)
            page = client.call(request, 0)
            told += [topic.name for topic in page.topics]
            if page.next_cursor is None:
                break
            told.append(page.next_cursor.topic_name)
            cursor = RequestCursor(topic_name=page.next_cursor.topic_name, partition_index=0)
        assert set(told) == {"a-mine", "c-mine"}


@proves("T10")
def test_produce_without_acks_that_is_refused_ends_the_connection(broker):
    from access import Refused

    with broker.client("SASL_PLAINTEXT") as client:
        client.login("alice", PASSWORD)
        client.send(produce("orders", batch_of(b"x"), acks=0), 9)
        with pytest.raises(Refused):
            client.exactly(1)


@proves("T10")
def test_a_rule_that_cannot_be_is_refused(broker):
    with broker.client("PLAINTEXT") as admin:
        wrong = [
            acl()._replace(resource=1),
            acl(name=""),
            acl(pattern=1),
            acl(operation=1),
            acl(permission=1),
            acl(principal="alice"),
            acl(host=""),
            acl()._replace(resource=rules.CLUSTER),
        ]
        assert create(admin, *wrong) == [ErrorCode.INVALID_REQUEST] * len(wrong)
        assert described(admin) == set()


@proves("T10")
def test_filters_find_rules_by_what_they_are_about(broker):
    with broker.client("PLAINTEXT") as admin:
        create(admin, acl(), acl(name="or", pattern=PREFIXED), acl(name="*", operation=ALL), acl(name="other"))
        names = {name for name, _, _ in described(admin, pattern_type_filter=2, resource_name_filter="orders")}
        assert names == {"orders", "or", "*"}
        assert {name for name, _, _ in described(admin, pattern_type_filter=4)} == {"or"}
        assert {name for name, _, _ in described(admin, operation=ALL)} == {"*"}
        assert described(admin, principal_filter="User:bob") == set()


@proves("T10")
def test_without_an_authorizer_rules_are_said_to_be_off(access_broker):
    broker = access_broker("PLAINTEXT://127.0.0.1:0")
    with broker.client("PLAINTEXT") as client:
        assert create(client, acl()) == [ErrorCode.SECURITY_DISABLED]


@proves("T10")
def test_nobody_reads_the_topic_of_secrets(broker):
    """Not even who may do everything: its keys would let them guess passwords at leisure."""
    with broker.client("PLAINTEXT") as admin:
        answer = admin.call(fetch("__tidelog.access", 0), 12)
        part = answer.responses[0].partitions[0]
        assert part.error_code and not part.records
