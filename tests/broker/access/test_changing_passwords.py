"""What a changed password ends, what a failed login tells by its time, and from where those come who come by HTTP."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from access import ADMIN, AUTHORIZER, PASSWORD, AccessBroker, Client, Refused

from certificates import Certificates
from proving import proves
from tidelog.broker.access import logins
from tidelog.broker.access.acls import ALLOW, DENY, LITERAL, READ, TOPIC, UNKNOWN_HOST, Asker, allows
from tidelog.broker.access.logins import Login, LoginRefused, Unverified
from tidelog.broker.access.state import AccessState
from tidelog.broker.loop import Loop
from tidelog.broker.server import Server
from tidelog.broker.settings.configuring import load_broker_config
from tidelog.logger import Logger
from tidelog.wire.acl import Acl
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest
from tidelog.wire.scram import (
    MIN_ITERATIONS,
    MOST_ITERATIONS,
    SHA_256,
    ClientExchange,
    Credential,
    ScramFault,
    credential,
    salted_password,
)

WITHIN_S = 60
DELAY_S, CHECK_S = 1000, 0.2
HELLO = ApiVersionsRequest(client_software_name="raw", client_software_version="1")


class WithGateway(AccessBroker):
    """With HTTP, so that there is the listener for the broker's own gateway."""

    def start(self) -> WithGateway:
        config = load_broker_config(self.settings)
        self._stream = self.log.open("a")
        self.server = Server(config, Logger(self._stream, level="ERROR"), http=True)
        self.server.start()
        self._thread = threading.Thread(target=self.server.run, daemon=True)
        self._thread.start()
        return self

    def gateways(self) -> Client:
        return Client(self.server._gateway_port)


@pytest.fixture
def with_gateway(tmp_path: Path) -> Iterator[Callable[..., WithGateway]]:
    started: list[WithGateway] = []

    def start(**settings: Any) -> WithGateway:
        listeners = "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"
        started.append(WithGateway(tmp_path / "data", listeners, settings).start())
        with started[-1].client("PLAINTEXT") as admin:
            started[-1].add_user("alice", PASSWORD, by=admin)
        return started[-1]

    yield start
    for broker in started:
        broker.stop()


@proves("T10", "hostile")
def test_a_changed_password_ends_what_the_http_server_has_open_by_the_old_one(
    with_gateway: Callable[..., WithGateway],
) -> None:
    broker = with_gateway(**{"tidelog.http.listener": "127.0.0.1:0"})
    with (
        broker.client("PLAINTEXT") as admin,
        broker.gateways() as by_http,
        broker.client("SASL_PLAINTEXT") as directly,
    ):
        for one in (by_http, directly):
            assert one.login("alice", PASSWORD).error_code == 0
        broker.add_user("bob", PASSWORD, by=admin)  # another's changes nothing
        assert by_http.call(MetadataRequest(topics=[]), 9) is not None
        broker.add_user("alice", "another password", by=admin)
        deadline = time.monotonic() + WITHIN_S
        with pytest.raises(Refused):
            while time.monotonic() < deadline:
                by_http.call(MetadataRequest(topics=[]), 9)
        assert directly.call(MetadataRequest(topics=[]), 9) is not None, "as with Kafka"
        with broker.gateways() as again:
            assert again.login("alice", "another password").error_code == 0


@proves("T10", "hostile")
def test_a_password_that_is_changed_during_a_login_lets_nobody_in_by_the_old_one() -> None:
    def kept(password: str) -> Credential:
        salt = os.urandom(16)
        return credential(SHA_256, salted_password(SHA_256, password, salt, MIN_ITERATIONS), salt, MIN_ITERATIONS)

    for changed in (None, kept("new one")):
        state = AccessState(users={("alice", SHA_256): kept(PASSWORD)}, secret=b"s" * 32)
        login = Login(SHA_256, "server")
        exchange = ClientExchange(SHA_256, "alice", PASSWORD, "client")
        answer = login.step(exchange.first(), state)
        assert isinstance(answer, logins.LoginReply)
        if changed is None:
            del state.users["alice", SHA_256]
        else:
            state.users["alice", SHA_256] = changed
        with pytest.raises(LoginRefused):
            login.step(exchange.final(answer.reply), state)


@proves("T10", "hostile")
def test_when_a_failed_login_is_answered_does_not_tell_how_long_it_took_to_check(
    access_broker: Callable[..., AccessBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What checking took is no part of how long the answer is held back after it."""
    settings = {"sasl.enabled.mechanisms": "PLAIN", "connection.failed.authentication.delay.ms": DELAY_S * 1000}
    broker = access_broker("SASL_PLAINTEXT://127.0.0.1:0", **settings)
    took: list[float] = []
    held: list[float] = []
    call_later = Loop.call_later

    def check(_unverified: Unverified) -> bool:
        began = time.monotonic()
        time.sleep(CHECK_S)
        took.append(time.monotonic() - began)
        return False

    def calling(loop: Loop, delay_s: float, action: Callable[[], object]) -> object:
        of_a_login = "Session._fail" in getattr(action, "__qualname__", "")
        if of_a_login:
            held.append(delay_s)
        return call_later(loop, 0.0 if of_a_login else delay_s, action)

    monkeypatch.setattr(Unverified, "check", check)
    monkeypatch.setattr(Loop, "call_later", calling)
    with broker.client("SASL_PLAINTEXT") as client:
        client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        answer = client.call(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2)
    assert answer.error_code
    assert took[0] >= CHECK_S
    assert 0 < held[0] <= DELAY_S - took[0]


@proves("T10", "hostile")
@pytest.mark.parametrize("iterations", [MOST_ITERATIONS + 1, 10**9, "9" * 3000])
def test_a_server_cannot_make_a_client_count_for_hours(iterations: object) -> None:
    exchange = ClientExchange(SHA_256, "alice", PASSWORD, "mine")
    exchange.first()
    with pytest.raises(ScramFault, match="iterations"):
        exchange.final(f"r=mineyours,s=c2FsdA==,i={iterations}".encode())


def rule(permission: int, host: str) -> Acl:
    return Acl(TOPIC, LITERAL, "orders", "User:alice", host, READ, permission)


@proves("T10", "hostile")
def test_whose_address_is_not_known_is_allowed_what_all_are_and_denied_what_any_is() -> None:
    for present, allowed in (
        ([rule(ALLOW, "*")], True),
        ([rule(ALLOW, "127.0.0.1")], False),
        ([rule(ALLOW, "*"), rule(DENY, "10.0.0.9")], False),
        ([rule(ALLOW, "*"), rule(DENY, "*")], False),
    ):
        assert allows(present, Asker("User:alice", UNKNOWN_HOST), READ, TOPIC, "orders", if_none=False) == allowed
    known = Asker("User:alice", "127.0.0.1")
    assert allows([rule(ALLOW, "*"), rule(DENY, "10.0.0.9")], known, READ, TOPIC, "orders", if_none=False)


@proves("T10", "hostile")
@pytest.mark.parametrize("listener", ["127.0.0.1:0", "http://0.0.0.0:0"])
def test_a_rule_for_this_machine_lets_nobody_in_who_may_come_by_http_from_another(
    with_gateway: Callable[..., WithGateway], listener: str
) -> None:
    settings = {"authorizer.class.name": AUTHORIZER, "super.users": f"User:{ADMIN};User:ANONYMOUS"}
    broker = with_gateway(**settings, **{"tidelog.http.listener": listener})
    here = rule(ALLOW, "127.0.0.1")
    done = threading.Event()

    def decide() -> None:
        from tidelog.broker.access.state import acl_record
        from tidelog.broker.decision import Decision

        broker.server.broker.access.commit(Decision([acl_record(here)], []))
        done.set()

    broker.server._loop.call_soon_threadsafe(decide)
    assert done.wait(WITHIN_S)
    with broker.gateways() as client:
        assert client.login("alice", PASSWORD).error_code == 0
        assert client.call(HELLO, 3).error_code == 0
        (session,) = [one.session for one in broker.server._connections if one.session and one.session.user == "alice"]
        assert session.ask(READ, TOPIC, "orders") == (listener == "127.0.0.1:0")


@proves("T10", "hostile")
def test_handshakes_under_way_do_not_add_up_to_more_connections_than_one_address_may_have(
    access_broker: Callable[..., AccessBroker], certificates: Certificates
) -> None:
    settings = {"ssl.keystore.location": certificates.broker, "max.connections.per.ip": 3}
    broker = access_broker("SSL://127.0.0.1:0", **settings)
    context = certificates.client_context()
    opened = [Client(broker.port("SSL")) for _ in range(8)]  # all before the first handshake
    served = 0
    try:
        for one in opened:
            try:
                one.socket = context.wrap_socket(one.socket, server_hostname="localhost")
                served += one.call(HELLO, 3).error_code == 0
            except (OSError, Refused):
                continue
    finally:
        for one in opened:
            one.close()
    assert served == 3
