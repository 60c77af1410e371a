"""Every client logs in as it does at Apache Kafka: by SCRAM and PLAIN inside TLS, or by a certificate; rules and quotas
are administered by the tools that there are, and a session that ends in the middle is renewed without anybody noticing.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramMechanism,
)
from kafka import KafkaConsumer, KafkaProducer

from against.apache_kafka import Missing
from against.confluent import read
from against.java_machine import JavaMachine
from against.patience import eventually
from against.secured import SESSION_LASTS_MS, USER, Secured, start_kafka, start_tidelog
from certificates import CLIENTS_NAME, Certificates, make_certificates
from proving import proves

SECONDS = 180.0
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def secured_tidelog(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Secured]:
    secured = start_tidelog(tmp_path_factory.mktemp("secured_tidelog"), certificates)
    yield secured
    secured.broker.stop()
    assert " fault " not in secured.broker.said()


@pytest.fixture(scope="session")
def secured_kafka(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Secured]:
    try:
        secured = start_kafka(tmp_path_factory.mktemp("secured_kafka"), certificates)
    except Missing as missing:
        pytest.skip(str(missing))
    yield secured
    secured.broker.stop()


@pytest.fixture(params=["tidelog", pytest.param("kafka", marks=pytest.mark.external)])
def secured(request: pytest.FixtureRequest) -> Secured:
    running: Secured = request.getfixturevalue(f"secured_{request.param}")
    return running


@pytest.fixture
def allowed(secured: Secured, topic: str, group: str) -> str:
    """A topic that alice may do everything with, and so may the client with her certificate."""
    secured.admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(SECONDS)
    secured.allow_all(topic, group)
    secured.allow_all(topic, group, principal=f"User:{CLIENTS_NAME}")
    return topic


def round_trip(settings: dict[str, Any], topic: str, group: str) -> None:
    producer = Producer(settings)
    producer.produce(topic, b"hello")
    assert producer.flush(SECONDS) == 0
    consumer = Consumer({**settings, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        assert [message.value() for message in read(consumer, 1)] == [b"hello"]
    finally:
        consumer.close()


@proves("T10")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_logs_in_produces_and_consumes(secured: Secured, allowed: str, group: str, mechanism: str) -> None:
    round_trip(secured.librdkafka(mechanism), allowed, group)


@proves("T10")
def test_librdkafka_is_who_its_certificate_says(secured: Secured, allowed: str, group: str) -> None:
    round_trip(secured.librdkafka_by_certificate(), allowed, group)


@proves("T10")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_told_as_such(secured: Secured, mechanism: str) -> None:
    errors: list[KafkaError] = []
    client = Producer({**secured.librdkafka(mechanism, password="wrong"), "error_cb": errors.append})
    deadline = time.monotonic() + SECONDS
    while KafkaError._AUTHENTICATION not in [error.code() for error in errors]:
        assert time.monotonic() < deadline, errors
        client.poll(0.1)


@proves("T10")
def test_what_is_not_allowed_is_refused_by_kafkas_codes(secured: Secured, topic: str, group: str) -> None:
    secured.admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(SECONDS)
    refused: list[KafkaError | None] = []
    producer = Producer(secured.librdkafka("SCRAM-SHA-256"))
    producer.produce(topic, b"x", on_delivery=lambda error, _: refused.append(error))
    producer.flush(SECONDS)
    assert [error and error.code() for error in refused] == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    mine = AdminClient(secured.librdkafka("SCRAM-SHA-256"))
    with pytest.raises(KafkaException) as creating:
        mine.create_topics([NewTopic(f"{topic}-mine", 1, 1)])[f"{topic}-mine"].result(SECONDS)
    assert creating.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    rule = AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, f"User:{USER}", "*", AclOperation.ALL,
        AclPermissionType.ALLOW,
    )  # fmt: skip
    with pytest.raises(KafkaException) as ruling:
        mine.create_acls([rule])[rule].result(SECONDS)
    assert ruling.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    assert topic not in mine.list_topics(timeout=SECONDS).topics


@proves("F2", "T10")
def test_a_transaction_needs_its_id_to_be_allowed(secured: Secured, allowed: str) -> None:
    def transact(transactional_id: str) -> None:
        producer = Producer({**secured.librdkafka("SCRAM-SHA-512"), "transactional.id": transactional_id})
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
        producer.produce(allowed, b"x")
        producer.commit_transaction(SECONDS)

    with pytest.raises(KafkaException) as refused:
        transact(f"not-{allowed}")
    assert refused.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    secured.allow((ResourceType.TRANSACTIONAL_ID, f"is-{allowed}", AclOperation.ALL))
    transact(f"is-{allowed}")


@proves("T10")
def test_rules_and_users_are_administered_by_librdkafka(secured: Secured, topic: str, group: str) -> None:
    secured.allow_all(topic, group, principal="User:somebody")
    wanted = AclBindingFilter(
        ResourceType.TOPIC, topic, ResourcePatternType.MATCH, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    (found,) = eventually(lambda: secured.admin.describe_acls(wanted).result(SECONDS))
    assert (found.principal, found.operation, found.name) == ("User:somebody", AclOperation.ALL, topic)
    (gone,) = secured.admin.delete_acls([wanted])[wanted].result(SECONDS)
    assert gone.principal == "User:somebody"
    eventually(lambda: secured.admin.describe_acls(wanted).result(SECONDS), lambda rules: rules == [])
    users = secured.admin.describe_user_scram_credentials([USER])[USER].result(SECONDS)
    kinds = {info.mechanism for info in users.scram_credential_infos}
    assert kinds == {ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512}


@pytest.mark.full
@proves("T10")
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
def test_sessions_end_and_are_renewed_without_a_word(
    secured: Secured, allowed: str, group: str, mechanism: str
) -> None:
    """When the machine stands still, a client is too late to log in again and is told so; then it is tried again."""
    settings = secured.librdkafka(mechanism)
    eventually(lambda: errors_over_sessions(settings, allowed, group), lambda errors: not errors)


def errors_over_sessions(settings: dict[str, Any], topic: str, group: str) -> list[KafkaError]:
    errors: list[KafkaError] = []
    producer = Producer({**settings, "error_cb": errors.append})
    known = {"error_cb": errors.append, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, **known})
    consumer.subscribe([topic])
    end, sent, got = time.monotonic() + 1.3 * SESSION_LASTS_MS / 1000, 0, 0
    while time.monotonic() < end or got < sent:
        if time.monotonic() < end:
            producer.produce(topic, b"%d" % sent)
            producer.flush(SECONDS)
            sent += 1
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None
            got += 1
        assert time.monotonic() < end + SECONDS
    consumer.close()
    return errors


@proves("T10")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_logs_in(secured: Secured, allowed: str, group: str, mechanism: str) -> None:
    producer = KafkaProducer(**secured.python(mechanism))
    producer.send(allowed, b"hello").get(SECONDS)
    producer.close()
    consumer = KafkaConsumer(allowed, group_id=group, auto_offset_reset="earliest", **secured.python(mechanism))
    try:
        polled = consumer.poll(SECONDS * 1000, max_records=1)
        assert [record.value for records in polled.values() for record in records] == [b"hello"]
    finally:
        consumer.close()


@proves("T10")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_logs_in(secured: Secured, allowed: str, group: str, mechanism: str) -> None:
    async def round_trip() -> bytes:
        async with AIOKafkaProducer(**secured.python(mechanism)) as producer:
            await producer.send_and_wait(allowed, b"hello")
        consumer = AIOKafkaConsumer(allowed, group_id=group, auto_offset_reset="earliest", **secured.python(mechanism))
        await consumer.start()
        try:
            async with asyncio.timeout(SECONDS):
                record = await consumer.getone()
            value: bytes = record.value
            return value
        finally:
            await consumer.stop()

    assert asyncio.run(round_trip()) == b"hello"


@proves("T10")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_commands_log_in_at_both(secured: Secured, allowed: str, tmp_path: Path, mechanism: str) -> None:
    reach = ["--bootstrap", f"localhost:{secured.login_port}"]
    reach += ["--command-config", str(secured.properties(tmp_path, mechanism))]

    def tidelog(*words: str, says: str = "") -> str:
        command = [sys.executable, "-m", "tidelog", *words, *reach]
        done = subprocess.run(command, input=says, capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 0, done.stderr
        return done.stdout

    tidelog("produce", allowed, says="hello\n")
    assert "hello" in tidelog("tail", allowed, "--from", "earliest", "--max", "1")


@proves("T10")
@pytest.mark.external
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_java_logs_in(
    secured: Secured, java: JavaMachine, allowed: str, group: str, tmp_path: Path, mechanism: str
) -> None:
    reach = ("--bootstrap-server", f"localhost:{secured.login_port}", "--topic", allowed)
    config = ("--command-config", str(secured.properties(tmp_path, mechanism)))
    wrote = java.run("org.apache.kafka.tools.ConsoleProducer", *reach, *config, says="hello\n")
    assert wrote.status == 0, wrote.err
    limits = ("--from-beginning", "--max-messages", "1", "--timeout-ms", "120000", "--group", group)
    got = java.run("org.apache.kafka.tools.consumer.ConsoleConsumer", *reach, *config, *limits)
    assert got.out.splitlines() == ["hello"], got.err


@proves("T10")
@pytest.mark.external
def test_kafkas_own_tools_administer_rules_users_and_quotas(secured: Secured, java: JavaMachine, topic: str) -> None:
    def tool(name: str, *words: str) -> str:
        turn = java.run(name, "--bootstrap-server", secured.broker.bootstrap, *words)
        assert turn.status == 0, turn.out + turn.err
        return turn.out

    acls, configs = "org.apache.kafka.tools.AclCommand", "kafka.admin.ConfigCommand"
    tool(acls, "--add", "--allow-principal", "User:carol", "--producer", "--topic", topic)
    rule = "principal=User:carol, host=*, operation=WRITE, permissionType=ALLOW"
    eventually(lambda: tool(acls, "--list", "--topic", topic), lambda listed: rule in listed)
    tool(acls, "--remove", "--force", "--allow-principal", "User:carol", "--producer", "--topic", topic)
    eventually(lambda: tool(acls, "--list", "--topic", topic), lambda listed: "User:carol" not in listed)
    carol = ("--entity-type", "users", "--entity-name", "carol")
    tool(configs, "--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=a password]", *carol)
    tool(configs, "--alter", "--add-config", "producer_byte_rate=1024,request_percentage=50", *carol)
    told = ("SCRAM-SHA-256=iterations=8192", "producer_byte_rate=1024.0")
    eventually(lambda: tool(configs, "--describe", *carol), lambda described: all(one in described for one in told))
    tool(configs, "--alter", "--delete-config", "SCRAM-SHA-256", *carol)
    tool(configs, "--alter", "--delete-config", "producer_byte_rate,request_percentage", *carol)
    eventually(lambda: tool(configs, "--describe", *carol), lambda described: "1024" not in described)
