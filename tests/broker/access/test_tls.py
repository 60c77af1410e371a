"""TLS and mutual TLS: bytes come through whole, certificates are users, and who speaks something else harms nobody."""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time

import pytest
from access import AUTHORIZER, PASSWORD, Refused
from raw import batch_of, fetch, frame_of, produce

from against.patience import eventually
from certificates import CLIENTS_NAME
from proving import proves
from tidelog.broker import tls as tls_module
from tidelog.errors import ConfigError
from tidelog.record.columns import decode
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidelog.wire.messages.metadata import MetadataRequest

HELLO = ApiVersionsRequest(client_software_name="raw", client_software_version="1")


@pytest.fixture
def tls(access_broker, certificates):
    def start(listeners: str = "SSL://127.0.0.1:0", **settings):
        return access_broker(
            listeners,
            **{
                "ssl.keystore.location": certificates.broker,
                "ssl.truststore.location": certificates.authority,
                **settings,
            },
        )

    return start


def create(client, name: str = "t") -> int:
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1)]
    (result,) = client.call(CreateTopicsRequest(topics=topics), 7).topics
    return result.error_code


@proves("T10")
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_records_of_any_size_come_through_tls_as_they_were_sent(tls, certificates, version):
    broker = tls(**{"ssl.enabled.protocols": version})
    values = [os.urandom(size) for size in (1, 100, 16_000, 16_384, 100_000, 700_000)]
    with broker.client("SSL", certificates.client_context()) as client:
        assert client.socket.version() == version
        assert create(client) == 0
        for value in values:
            (topic,) = client.call(produce("t", batch_of(value)), 9).responses
            assert topic.partition_responses[0].error_code == 0
        got = []
        while len(got) < len(values):
            (topic,) = client.call(fetch("t", len(got), max_bytes=50 << 20), 12).responses
            got += [row.value for row in decode(topic.partitions[0].records).rows()]
    assert got == values


@proves("T10")
def test_records_of_tls_as_small_as_a_byte_and_a_client_that_reads_late_lose_nothing(tls, certificates):
    broker = tls()
    value = os.urandom(700_000)
    with broker.client("SSL", certificates.client_context()) as client:
        assert create(client) == 0
        small = frame_of(produce("t", batch_of(b"x" * 2_000)), 9)
        for position in range(len(small)):
            client.socket.sendall(small[position : position + 1])
        assert client.receive(0, 9).responses[0].partition_responses[0].error_code == 0
        assert client.call(produce("t", batch_of(value)), 9).responses[0].partition_responses[0].error_code == 0
        for correlation_id in range(20):  # more than any socket holds, and nobody reads
            client.send(fetch("t", 1, max_bytes=50 << 20), 12, correlation_id)
        time.sleep(0.2)
        for _ in range(20):
            (topic,) = client.receive(1, 12).responses
            assert [row.value for row in decode(topic.partitions[0].records).rows()] == [value]


@proves("T10")
def test_requests_sent_in_one_go_are_all_answered_also_when_they_lie_in_one_record(tls, certificates):
    broker = tls()
    with broker.client("SSL", certificates.client_context()) as client:
        for correlation_id in range(300):
            client.send(HELLO, 3, correlation_id)
        for _ in range(300):
            assert client.receive(18, 3).error_code == 0


@proves("T10")
def test_the_name_in_a_certificate_is_the_user_and_rules_may_shorten_it(tls, certificates):
    broker = tls(
        **{
            "ssl.client.auth": "required",
            "authorizer.class.name": AUTHORIZER,
            "super.users": f"User:{CLIENTS_NAME}",
        }
    )
    with broker.client("SSL", certificates.client_context(certificates.client)) as client:
        assert create(client) == 0
    broker.stop()
    broker.settings["ssl.principal.mapping.rules"] = "RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/U"
    broker.settings["super.users"] = "User:ALICE@PAYMENTS"
    broker.start()
    with broker.client("SSL", certificates.client_context(certificates.client)) as client:
        assert create(client, "another") == 0


@proves("T10")
def test_where_a_certificate_is_asked_for_none_and_a_strangers_are_refused(tls, certificates):
    broker = tls(**{"ssl.client.auth": "required"})
    with broker.client("SSL", certificates.client_context(certificates.client)) as client:
        assert client.call(HELLO, 3).error_code == 0
    for own in (None, certificates.stranger):
        with (
            pytest.raises((Refused, ssl.SSLError, ConnectionError)),
            broker.client("SSL", certificates.client_context(own)) as client,
        ):
            client.call(HELLO, 3)


@proves("T10")
@pytest.mark.parametrize("asked", ["required", "requested"])
def test_a_certificate_that_is_over_is_refused(tls, certificates, asked):
    broker = tls(**{"ssl.client.auth": asked})
    with (
        pytest.raises((Refused, ssl.SSLError, ConnectionError)),
        broker.client("SSL", certificates.client_context(certificates.expired)) as client,
    ):
        client.call(HELLO, 3)
    with broker.client("SSL", certificates.client_context(certificates.client)) as client:
        assert client.call(HELLO, 3).error_code == 0


@proves("T10")
def test_a_login_inside_tls_needs_no_certificate(tls, certificates):
    broker = tls(
        "SASL_SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        **{"ssl.client.auth": "required", "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512"},
    )
    with broker.client("PLAINTEXT") as admin:
        broker.add_user("alice", PASSWORD, by=admin, mechanism="SCRAM-SHA-512")
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        with broker.client("SASL_SSL", certificates.client_context()) as client:
            assert client.login("alice", PASSWORD, mechanism).error_code == 0
            assert client.call(HELLO, 3).error_code == 0


@proves("T10")
def test_who_says_nothing_or_something_else_is_ended_and_keeps_nobody_out(tls, certificates):
    broker = tls(**{"tidelog.max.handshakes": 20, "tidelog.handshake.timeout.ms": 300})
    silent = [socket.create_connection(("127.0.0.1", broker.port("SSL"))) for _ in range(60)]
    for index, one in enumerate(silent):
        if index % 3 == 0:
            one.sendall(os.urandom(500))
        elif index % 3 == 1:
            one.sendall(b"\x16\x03\x01")
    eventually(lambda: is_served(broker, certificates.client_context()))
    for one in silent:
        one.settimeout(180)
        try:
            while one.recv(100):
                continue
        except ConnectionError:
            pass
        one.close()


def is_served(broker, context) -> bool:
    """A handshake that was begun may take no longer than those of the silent."""
    try:
        with broker.client("SSL", context) as client:
            return client.call(HELLO, 3).error_code == 0
    except (Refused, OSError):
        return False


@proves("T10")
def test_a_hello_that_comes_byte_by_byte_is_heard_and_no_thread_is_asked_before_it_is_whole(tls, certificates):
    broker = tls()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    wrapped = certificates.client_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        wrapped.do_handshake()
    hello = outgoing.read()
    with socket.create_connection(("127.0.0.1", broker.port("SSL")), timeout=20) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for position in range(len(hello) - 1):
            client.sendall(hello[position : position + 1])
        eventually(lambda: len(broker.server._listeners.handshakes) == 1)
        (handshake,) = broker.server._listeners.handshakes._under_way
        eventually(lambda: handshake.hello == hello[:-1])
        assert handshake.stream is None
        client.sendall(hello[-1:])
        incoming.write(client.recv(50_000))
        wrapped.do_handshake()
        client.sendall(outgoing.read())
        eventually(lambda: not len(broker.server._listeners.handshakes))
        assert wrapped.version() == "TLSv1.3"


@proves("T10")
def test_when_everybody_comes_at_once_nobody_is_turned_away(tls, certificates, monkeypatch):
    monkeypatch.setattr(tls_module, "PATIENCE_S", 300.0)  # all of them are honest, however slow this machine is
    broker = tls(**{"tidelog.max.handshakes": 4, "tidelog.handshake.timeout.ms": 300_000})
    context = certificates.client_context()
    answered = []

    def connect() -> None:
        with broker.client("SSL", context) as client:
            answered.append(client.call(HELLO, 3).error_code)

    threads = [threading.Thread(target=connect) for _ in range(60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answered == [0] * 60


@proves("T10")
def test_many_who_connect_and_leave_leave_nothing_behind(tls, certificates):
    broker = tls()
    context = certificates.client_context()

    def reconnect() -> None:
        for _ in range(50):
            with broker.client("SSL", context) as client:
                assert client.call(HELLO, 3).error_code == 0

    threads = [threading.Thread(target=reconnect) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    deadline = time.monotonic() + 180
    while broker.server._connections and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not broker.server._connections
    assert not len(broker.server._listeners.handshakes)


@proves("T10")
def test_a_listener_with_tls_and_no_certificate_does_not_start(access_broker, tmp_path):
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location"):
        access_broker("SSL://127.0.0.1:0")
    broken = tmp_path / "broken.pem"
    broken.write_text("-----BEGIN PRIVATE KEY-----\nnonsense\n-----END PRIVATE KEY-----\n")
    with pytest.raises(ConfigError, match="certificates of the broker cannot be used"):
        access_broker("SSL://127.0.0.1:0", **{"ssl.keystore.location": broken})


@proves("T10")
def test_a_key_and_certificates_can_stand_in_the_settings_themselves(access_broker, certificates):
    text = certificates.broker.read_text()
    split = text.index("-----BEGIN CERTIFICATE")
    broker = access_broker(
        "SSL://127.0.0.1:0",
        **{"ssl.keystore.key": text[:split], "ssl.keystore.certificate.chain": text[split:]},
    )
    with broker.client("SSL", certificates.client_context()) as client:
        assert client.call(HELLO, 3).error_code == 0
        resource = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
        (told,) = client.call(DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4).results
    secrets = [one for one in told.configs if one.is_sensitive]
    assert {one.name for one in secrets} >= {"ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.key.password"}
    assert all(one.value is None for one in secrets)
    assert all(synonym.value is None for one in secrets for synonym in one.synonyms)
    assert "PRIVATE KEY" not in repr(told)


@proves("T10")
def test_a_client_is_told_the_name_that_it_looks_for_in_the_certificate(tls, certificates):
    broker = tls()
    with broker.client("SSL", certificates.client_context()) as client:  # it asks for localhost
        (node,) = client.call(MetadataRequest(topics=[]), 9).brokers
        assert (node.host, node.port) == ("localhost", broker.port("SSL"))


@proves("T10")
def test_each_listener_tells_of_itself_or_of_what_is_advertised_for_it(tls, certificates):
    broker = tls("SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0", **{"advertised.listeners": "SSL://broker.example:9999"})
    with broker.client("SSL", certificates.client_context()) as client:
        (node,) = client.call(MetadataRequest(topics=[]), 9).brokers
        assert (node.host, node.port) == ("broker.example", 9999)
    with broker.client("PLAINTEXT") as client:
        (node,) = client.call(MetadataRequest(topics=[]), 9).brokers
        assert (node.host, node.port) == ("127.0.0.1", broker.port("PLAINTEXT"))
