"""Whoever has not logged in, and whatever they send: never a fault, never a hang, never more memory than allowed."""

from __future__ import annotations

import os
import random
import socket
import struct
import time
from collections import Counter

import pytest
from access import PASSWORD, Client, Refused
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proving import proves
from tidelog.broker.access.logins import Login, LoginRefused, decoy
from tidelog.broker.access.state import AccessState, apply, secret_record, to_records, user_record
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest
from tidelog.wire.scram import SHA_256, ClientExchange, Credential, ScramFault, ServerExchange, read_client_first

HELLO = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
SASL = "SASL_PLAINTEXT"


@pytest.fixture
def broker(access_broker):
    made = access_broker(
        f"{SASL}://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        **{"sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN"},
    )
    with made.client("PLAINTEXT") as admin:
        made.add_user("alice", PASSWORD, by=admin)
    yield made
    with made.client(SASL) as client:
        assert client.login("alice", PASSWORD).error_code == 0, "afterwards everything is as before"
    assert "fault" not in made.said()


@proves("T10")
def test_a_request_above_64_kb_before_a_login_ends_the_connection_and_after_it_does_not(broker):
    large = struct.pack(">i", (64 << 10) + 1)
    with broker.client(SASL) as client:
        client.socket.sendall(large)
        with pytest.raises(Refused):
            client.exactly(1)
    with broker.client(SASL) as client:
        client.login("alice", PASSWORD)
        names = [f"topic-{index:04}" + "x" * 200 for index in range(400)]
        from tidelog.wire.messages.metadata import MetadataRequestTopic

        topics = [MetadataRequestTopic(name=name) for name in names]
        answer = client.call(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9)
        assert len(answer.topics) == 400


@proves("T10")
def test_tokens_of_every_kind_of_nonsense_are_refused_and_end_the_connection(broker, seed):
    chance = random.Random(seed)
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"):
        for token in (b"", b"\0", b"\0\0", b"n,,", b"n,,n=,r=", b"y,,n=a,r=b", b"n,,n=a=b,r=c", b"n,,m=x,n=a,r=b",
                      b"\xff" * 50, b"\0" * 5000, b"n,,n=a,r=" + b"x" * 5000, chance.randbytes(200)):  # fmt: skip
            with broker.client(SASL) as client:
                assert client.call(SaslHandshakeRequest(mechanism=mechanism), 1).error_code == 0
                answer = client.call(SaslAuthenticateRequest(auth_bytes=token), 1)
                assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED, (mechanism, token)
                with pytest.raises(Refused):
                    client.call(HELLO, 3)


@proves("T10")
def test_bytes_that_are_no_frames_end_the_connection(broker, seed):
    chance = random.Random(seed)
    for size in (1, 3, 4, 5, 8, 13, 100, 5000):
        for _ in range(5):
            with broker.client(SASL) as client:
                client.socket.sendall(chance.randbytes(size))
                client.socket.shutdown(socket.SHUT_WR)
                with pytest.raises(Refused):
                    while True:
                        client.exactly(1)


@proves("T10")
def test_who_is_slow_or_leaves_in_the_middle_of_a_login_keeps_nobody_out(broker):
    halves = []
    for _ in range(100):
        client = broker.client(SASL)
        client.send(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
        client.socket.sendall(struct.pack(">i", 500) + b"\0\x24")
        halves.append(client)
    with broker.client(SASL) as client:
        assert client.login("alice", PASSWORD).error_code == 0
    for client in halves:
        client.close()
    with broker.client(SASL) as client:
        client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        client.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong one"), 1)


@proves("T10")
def test_requests_behind_a_login_in_the_same_packet_wait_for_it(broker):
    from tidelog.wire.frame import encode_request

    for password, answered in ((PASSWORD, True), ("wrong", False)):
        with broker.client(SASL) as client:
            client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            token = SaslAuthenticateRequest(auth_bytes=f"\0alice\0{password}".encode())
            frames = [*encode_request(token, 1, 1, "raw"), *encode_request(HELLO, 3, 2, "raw")]
            client.socket.sendall(b"".join(bytes(chunk) for chunk in frames))
            assert (client.receive(36, 1).error_code == 0) == answered
            if answered:
                assert client.receive(18, 3).error_code == 0
            else:
                with pytest.raises(Refused):
                    client.receive(18, 3)


@proves("T10")
def test_tokens_without_headers_are_taken_after_the_oldest_handshake(broker):
    def token(client: Client, message: bytes) -> bytes:
        client.socket.sendall(struct.pack(">i", len(message)) + message)
        (size,) = struct.unpack(">i", client.exactly(4))
        return client.exactly(size)

    with broker.client(SASL) as client:
        assert client.call(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 0).error_code == 0
        exchange = ClientExchange("SCRAM-SHA-256", "alice", PASSWORD, "abc")
        exchange.check(token(client, exchange.final(token(client, exchange.first()))))
        assert client.call(HELLO, 3).error_code == 0
    with broker.client(SASL) as client:
        client.call(SaslHandshakeRequest(mechanism="PLAIN"), 0)
        assert token(client, f"\0alice\0{PASSWORD}".encode()) == b""
        assert client.call(HELLO, 3).error_code == 0
    with broker.client(SASL) as client:
        client.call(SaslHandshakeRequest(mechanism="PLAIN"), 0)
        with pytest.raises(Refused):
            token(client, b"\0alice\0wrong")


@proves("T10")
def test_a_session_logs_in_again_as_the_same_user_by_the_same_mechanism_only(broker, monkeypatch):
    from tidelog.broker.access import session

    monkeypatch.setattr(session, "REAUTHENTICATION_PAUSE_S", 0.0)
    with broker.client("PLAINTEXT") as admin:
        broker.add_user("bob", PASSWORD, by=admin)
    with broker.client(SASL) as client:
        assert client.login("alice", PASSWORD).error_code == 0
        assert client.login("alice", PASSWORD).error_code == 0
        assert client.call(HELLO, 3).error_code == 0
        assert client.login("bob", PASSWORD).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    with broker.client(SASL) as client:
        assert client.login("alice", PASSWORD).error_code == 0
        assert client.login("alice", PASSWORD, "PLAIN").error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM


@proves("T10")
def test_who_is_unknown_is_answered_like_who_is_known(broker):
    """The same salt each time, as many iterations, the same words at the end."""
    answers = {}
    for user in ("alice", "nobody"):
        salts = set()
        for _ in range(3):
            with broker.client(SASL) as client:
                client.call(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
                first = ClientExchange("SCRAM-SHA-256", user, "x", os.urandom(8).hex()).first()
                reply = client.call(SaslAuthenticateRequest(auth_bytes=first), 1).auth_bytes.decode()
                salts.add(reply.partition(",")[2])
        assert len(salts) == 1
        with broker.client(SASL) as client:
            wrong = client.login(user, "wrong password")
        with broker.client(SASL) as client:
            plain = client.login(user, "wrong password", "PLAIN")
        shape = [len(part) for part in salts.pop().split(",")]
        answers[user] = (shape, wrong.error_code, wrong.error_message, plain.error_code, plain.error_message)
    assert answers["alice"] == answers["nobody"]


@proves("T10")
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=300), st.binary(max_size=300))
def test_no_message_of_a_client_is_a_fault_of_ours(first, second):
    for mechanism in ("SCRAM-SHA-256", "PLAIN"):
        login = Login(mechanism, "server")
        state = AccessState(secret=b"s" * 32)
        try:
            login.step(first, state)
            login.step(second, state)
        except (LoginRefused, ScramFault):
            continue


@proves("T10")
@given(st.text(min_size=1, max_size=40), st.text(min_size=1, max_size=40))
@pytest.mark.slow
def test_a_name_and_a_password_of_any_letters_log_in(user, password):
    from tidelog.wire.scram import MIN_ITERATIONS, SHA_256, credential, salted_password

    try:
        (user + password).encode()
    except UnicodeEncodeError:
        return
    kept = credential(SHA_256, salted_password(SHA_256, password, b"salt", MIN_ITERATIONS), b"salt", MIN_ITERATIONS)
    client = ClientExchange(SHA_256, user, password, "client")
    first = read_client_first(client.first())
    assert first.user == user
    server = ServerExchange(SHA_256, first, kept, "server")
    client.check(server.finish(client.final(server.reply)))


@proves("T10")
def test_a_decoy_is_nobodys_and_always_the_same():
    state, other = AccessState(secret=b"s" * 32), AccessState(secret=b"t" * 32)
    assert decoy(state, "eve", "SCRAM-SHA-256") == decoy(state, "eve", "SCRAM-SHA-256")
    assert decoy(state, "eve", "SCRAM-SHA-256") != decoy(state, "adam", "SCRAM-SHA-256")
    assert decoy(state, "eve", "SCRAM-SHA-256") != decoy(other, "eve", "SCRAM-SHA-256")


def holding(shapes: list[tuple[int, int]], secret: bytes = b"s" * 32) -> AccessState:
    """Users with salts of so many bytes and so many iterations."""
    state = AccessState()
    apply(state, *secret_record(secret))
    for number, (salt_bytes, iterations) in enumerate(shapes):
        kept = Credential(bytes(salt_bytes), iterations, bytes(32), bytes(32))
        apply(state, *user_record(f"user-{number}", SHA_256, kept))
    return state


def shape_of(state: AccessState, user: str) -> tuple[int, int]:
    made = decoy(state, user, SHA_256)
    return len(made.salt), made.iterations


STRANGERS = [f"nobody-{number}" for number in range(400)]


@proves("T10", "hostile")
def test_a_name_that_nobody_has_looks_as_the_names_do_that_somebody_has():
    state = holding([(16, 4096)] * 6 + [(26, 8192)] * 3 + [(100, 16384)])
    seen = Counter(shape_of(state, user) for user in STRANGERS)
    assert set(seen) == {(16, 4096), (26, 8192), (100, 16384)}
    assert seen[16, 4096] > seen[26, 8192] > seen[100, 16384], "as often as users have it"
    assert len({decoy(state, user, SHA_256).salt for user in STRANGERS}) == len(STRANGERS)


@proves("T10", "hostile")
def test_what_a_name_that_nobody_has_is_told_stays_while_others_come_and_the_broker_restarts():
    shapes = [(16, 4096)] * 6 + [(26, 8192)] * 3
    before, more, other = holding(shapes), holding([*shapes, (16, 4096)]), holding(shapes, b"t" * 32)
    again = AccessState()
    for record in to_records(before):
        apply(again, record.key, record.value)
    told = {user: decoy(before, user, SHA_256) for user in STRANGERS}
    assert {user: decoy(again, user, SHA_256) for user in STRANGERS} == told
    moved = [user for user in STRANGERS if decoy(more, user, SHA_256) != told[user]]
    assert len(moved) < len(STRANGERS) / 10
    assert all(decoy(more, user, SHA_256).salt != told[user].salt for user in moved), "as with a new password"
    assert [shape_of(other, user) for user in STRANGERS] != [shape_of(before, user) for user in STRANGERS]


@proves("T10", "hostile")
def test_shapes_go_with_their_last_user():
    state = holding([(16, 4096), (26, 8192)])
    apply(state, user_record("user-0", SHA_256, None).key, None)
    assert {shape_of(state, user) for user in STRANGERS} == {(26, 8192)}
    apply(state, *user_record("user-1", SHA_256, Credential(bytes(16), 4096, bytes(32), bytes(32))))
    assert {shape_of(state, user) for user in STRANGERS} == {(16, 4096)}


@proves("T10")
def test_guessing_costs_time(access_broker):
    broker = access_broker(f"{SASL}://127.0.0.1:0", **{"connection.failed.authentication.delay.ms": 200})
    began = time.monotonic()
    with broker.client(SASL) as client:
        assert client.login("alice", "wrong").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert time.monotonic() - began >= 0.2


@proves("T10")
def test_a_user_that_is_deleted_loses_its_connections(broker):
    from tidelog.wire.messages.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest,
        ScramCredentialDeletion,
    )

    with broker.client("PLAINTEXT") as admin, broker.client(SASL) as gone, broker.client(SASL) as stays:
        broker.add_user("bob", PASSWORD, by=admin)
        assert gone.login("bob", PASSWORD).error_code == 0
        assert stays.login("alice", PASSWORD).error_code == 0
        deletion = ScramCredentialDeletion(name="bob", mechanism=1)
        (result,) = admin.call(AlterUserScramCredentialsRequest(deletions=[deletion]), 0).results
        assert result.error_code == 0
        with pytest.raises(Refused):
            gone.exactly(1)
        assert stays.call(HELLO, 3).error_code == 0


@proves("T10")
def test_who_does_not_log_in_is_not_waited_for(broker, monkeypatch):
    from tidelog.broker.access import session

    with broker.client(SASL) as silent, broker.client(SASL) as client:
        assert client.login("alice", PASSWORD).error_code == 0
        silent.call(HELLO, 3)
        monkeypatch.setattr(session, "LOGIN_WITHIN_S", 0.01)
        time.sleep(0.02)
        broker.server._loop.call_soon_threadsafe(broker.server._connections.sweep_sessions)
        with pytest.raises(Refused):
            silent.exactly(1)
        assert client.call(HELLO, 3).error_code == 0
    monkeypatch.undo()
