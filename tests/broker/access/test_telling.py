"""What an operator is told: who could not log in, that nobody can, and what is wrong with a certificate."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from access import PASSWORD, AccessBroker

from certificates import Certificates
from proving import proves
from tidelog.broker.access.session import NAME_SHOWN, shown
from tidelog.broker.settings.configuring import load_broker_config
from tidelog.broker.tls import server_context
from tidelog.errors import ConfigError
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest

SASL = "SASL_PLAINTEXT"
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
GUESS = "guessed wrongly by somebody"


@proves("T10")
def test_without_users_a_listener_with_logins_says_how_to_make_the_first(access_broker) -> None:
    alone: AccessBroker = access_broker(f"{SASL}://127.0.0.1:0", **{"tidelog.log.level": "INFO"})
    (line,) = [line for line in alone.said().splitlines() if "nobody can log in" in line]
    assert f"stop the broker, then add the first by `tidelog users add NAME --data {alone.data}`" in line
    assert "WARNING" in line


@proves("T10")
def test_where_no_login_is_asked_for_the_first_user_is_made_while_it_runs(access_broker) -> None:
    both: AccessBroker = access_broker(f"{SASL}://127.0.0.1:0,PLAINTEXT://127.0.0.1:0", **{"tidelog.log.level": "INFO"})
    assert "add the first by `tidelog users add NAME` at the listener PLAINTEXT" in both.said()
    with both.client("PLAINTEXT") as admin:
        both.add_user("alice", PASSWORD, by=admin)
    both.stop()
    both.log.write_text("")
    both.start()
    assert "nobody can log in" not in both.said()


@pytest.fixture
def broker(access_broker) -> AccessBroker:
    made: AccessBroker = access_broker(
        f"{SASL}://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        **{"sasl.enabled.mechanisms": ",".join(MECHANISMS), "tidelog.log.level": "DEBUG"},
    )
    with made.client("PLAINTEXT") as admin:
        made.add_user("alice", PASSWORD, by=admin)
    return made


@proves("T10")
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_a_failed_login_is_logged_with_its_name_and_without_its_password(
    broker: AccessBroker, mechanism: str, user: str
) -> None:
    with broker.client(SASL) as client:
        assert client.login(user, GUESS, mechanism).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    (line,) = [line for line in broker.said().splitlines() if "authentication failed peer=" in line]
    assert f" user={user} " in line
    assert GUESS not in broker.said() and PASSWORD not in broker.said()


@proves("T10")
def test_a_malformed_login_never_puts_what_stands_in_the_place_of_a_password_into_the_log(broker: AccessBroker) -> None:
    for token in (f"other\0alice\0{GUESS}", f"{GUESS}", f"\0\0{GUESS}", f"a\0b\0c\0{GUESS}"):
        with broker.client(SASL) as client:
            client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            assert client.call(SaslAuthenticateRequest(auth_bytes=token.encode()), 2).error_code
    said = broker.said()
    assert said.count("authentication failed peer=") == 4 and GUESS not in said


@proves("T10")
def test_a_name_in_the_log_is_bounded_and_ends_no_line(broker: AccessBroker) -> None:
    hostile = "eve\n2026-11-15T10:00:00.000Z ERROR disk failed \x1b[31m" + "x" * 1000
    with broker.client(SASL) as client:
        client.login(hostile, GUESS, "PLAIN")
    (line,) = [line for line in broker.said().splitlines() if "authentication failed peer=" in line]
    assert "eve\\n" in line and "x" * 20 not in line and "\x1b" not in line
    assert len(shown("é" * 1000)) == NAME_SHOWN + len("...")


@proves("T10")
def test_a_certificate_that_cannot_be_used_is_named_with_what_is_wrong_and_what_to_do(
    certificates: Certificates, tmp_path: Path
) -> None:
    whole = certificates.broker.read_text()
    key, certificate = whole[: whole.index("-----BEGIN CERT")], whole[whole.index("-----BEGIN CERT") :]
    another = certificates.stranger.read_text()
    of_another = another[another.index("-----BEGIN CERT") :]
    own = tmp_path / "own.pem"
    encrypted = subprocess.run(
        ["openssl", "pkey", "-aes256", "-passout", "pass:opensesame"],
        input=key.encode(),
        check=True,
        capture_output=True,
    ).stdout.decode()
    wrong = {
        "": "it is empty",
        "nonsense": "it does not have a certificate",
        certificate: "it does not have a private key",
        key: "it does not have a certificate",
        key + of_another: "its certificate is of another key",
        key + certificate[:200]: "its PEM is cut off or damaged",
        encrypted + certificate: "is encrypted, and ssl.key.password is not set; set ssl.key.password",
        "0\x82PKCS": "it is not text, perhaps PKCS#12",
    }
    for content, said in wrong.items():
        own.write_bytes(content.encode("latin-1"))
        message = refused(**{"ssl.keystore.location": str(own)})
        assert message.startswith("the certificates of the broker cannot be used: "), message
        assert f"{own} (ssl.keystore.location): " in message and said in message and "; " in message
        assert "_ssl.c" not in message and "pem lib" not in message.lower()
    own.write_text(encrypted + certificate)
    settings = {"ssl.keystore.location": str(own)}
    assert "is not opened by ssl.key.password" in refused(**settings, **{"ssl.key.password": "wrong one"})
    server_context(load_broker_config({**settings, "ssl.key.password": "opensesame"}))
    missing = refused(**{"ssl.keystore.location": str(tmp_path / "none.pem")})
    assert f"{tmp_path}/none.pem (ssl.keystore.location): no such file or directory; give a PEM file" in missing


@proves("T10")
def test_authorities_that_cannot_be_used_are_named_too(certificates: Certificates, tmp_path: Path) -> None:
    store = tmp_path / "authorities.pem"
    settings = {"ssl.keystore.location": str(certificates.broker), "ssl.client.auth": "required"}
    for content, said in {
        "nonsense": "it does not have a certificate",
        "-----BEGIN CERTIFICATE-----\nx": "cut",
    }.items():
        store.write_text(content)
        message = refused(**settings, **{"ssl.truststore.location": str(store)})
        assert f"{store} (ssl.truststore.location): " in message and said in message
    assert "ssl.truststore.certificates" in refused(**settings, **{"ssl.truststore.certificates": "nonsense"})
    assert "`openssl ciphers` lists" in refused(**settings, **{"ssl.cipher.suites": "NONE_SUCH"})


def refused(**settings: str) -> str:
    with pytest.raises(ConfigError) as caught:
        server_context(load_broker_config({"listeners": "SSL://127.0.0.1:0", **settings}))
    return str(caught.value)
