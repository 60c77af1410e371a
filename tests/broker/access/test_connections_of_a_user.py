"""How many connections one user may have (`tidelog.max.connections.per.user`), whichever way he proves who he is."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable

import pytest
from access import PASSWORD, AccessBroker, Client, Refused

from certificates import Certificates
from proving import proves
from tidelog.broker.access import session
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.api_versions import ApiVersionsRequest

HELLO = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
MOST = 2
PATIENCE_S = 180.0


def let_in(broker: AccessBroker, user: str, mechanism: str) -> tuple[Client, int, str | None]:
    client = broker.client("SASL_PLAINTEXT")
    answer = client.login(user, PASSWORD, mechanism)
    return client, answer.error_code, answer.error_message


@proves("T10", "hostile")
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN"])
def test_a_login_too_many_is_refused_by_name_and_only_for_that_user(
    access_broker: Callable[..., AccessBroker], mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "REAUTHENTICATION_PAUSE_S", 0.0)
    settings = {
        "tidelog.max.connections.per.user": MOST,
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
        "connections.max.reauth.ms": 3_600_000,
    }
    broker = access_broker("SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0", **settings)
    with broker.client("PLAINTEXT") as anybody:
        for user in ("alice", "bob"):
            broker.add_user(user, PASSWORD, by=anybody)
    clients = [let_in(broker, "alice", mechanism) for _ in range(MOST)]
    assert [code for _, code, _ in clients] == [0] * MOST
    assert clients[0][0].login("alice", PASSWORD, mechanism).error_code == 0, "who logs in again is no further one"
    refused, code, message = let_in(broker, "alice", mechanism)
    assert code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert message is not None and "tidelog.max.connections.per.user" in message
    other, code, _ = let_in(broker, "bob", mechanism)
    assert code == 0
    clients[1][0].close()
    again, code = refused, -1
    deadline = time.monotonic() + PATIENCE_S
    while code and time.monotonic() < deadline:  # until the broker has seen that one has gone
        again.close()
        again, code, _ = let_in(broker, "alice", mechanism)
    assert code == 0
    for client in (clients[0][0], other, again):
        client.close()


@proves("T10", "hostile")
def test_certificates_are_counted_too(access_broker: Callable[..., AccessBroker], certificates: Certificates) -> None:
    broker = access_broker(
        "SSL://127.0.0.1:0",
        **{
            "ssl.keystore.location": certificates.broker,
            "ssl.truststore.location": certificates.authority,
            "ssl.client.auth": "required",
            "tidelog.max.connections.per.user": 1,
        },
    )
    context = certificates.client_context(certificates.client)
    with broker.client("SSL", context) as client:
        assert client.call(HELLO, 3).error_code == 0
        with pytest.raises((Refused, ssl.SSLError, ConnectionError)), broker.client("SSL", context) as further:
            further.call(HELLO, 3)
        assert client.call(HELLO, 3).error_code == 0
