"""Who a request is decides the broker: the gateway brings the credentials there and keeps none."""

from __future__ import annotations

import signal
import socket
import ssl
import subprocess
import sys
import threading
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelog
from certificates import Certificates, make_certificates
from crash.port import free_port
from gateway.running import PATIENCE_S, Up, up, wait_for
from gateway.serving import Client, GatewayProcess, served
from proving import proves
from tidelog.broker.access.delegation import MECHANISM, DelegatedLogin, make_delegation
from tidelog.broker.access.logins import LoginRefused
from tidelog.broker.access.state import AccessState
from tidelog.broker.server import Server
from tidelog.broker.settings.configuring import load_broker_config
from tidelog.client.address import Address
from tidelog.client.admin import access, topics
from tidelog.client.cluster import Cluster
from tidelog.client.connection import Connection
from tidelog.client.security import Security
from tidelog.config import http_listener
from tidelog.errors import BrokerError, ConfigError
from tidelog.gateway import access as gateway_access
from tidelog.gateway.access import Clusters, Credentials, read_credentials, token
from tidelog.gateway.limits import CLUSTERS_MAX
from tidelog.gateway.route import Answer, Call, Refusal, Route, as_json
from tidelog.logger import Logger

ADMIN = Credentials("admin", "first of all users")
ALICE = Credentials("alice", "a pass:word of älice")
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def basic(credentials: Credentials) -> str:
    return "Basic " + b64encode(f"{credentials.user}:{credentials.secret}".encode()).decode()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


class Guarded:
    """`tidelog up` with a login over TLS, an authorizer, an administrator, and alice, who may do nothing."""

    def __init__(self, running: Up, port: int, certificates: Certificates) -> None:
        self.running = running
        self.port = port
        self.client = Client(port)
        self.authorities = str(certificates.authority)

    def cluster(self, credentials: Credentials) -> Cluster:
        security = Security(
            "SASL_SSL", user=credentials.user, password=credentials.secret, authorities=self.authorities
        )
        return Cluster(self.running.bootstrap, security=security)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    words = ["users", "add", ADMIN.user, "--data", str(folder / "data")]
    said = f"{ADMIN.secret}\n".encode()
    subprocess.run([sys.executable, "-m", "tidelog", *words], input=said, check=True, capture_output=True)
    port = free_port()
    settings = {
        "ssl.keystore.location": certificates.broker,
        "authorizer.class.name": AUTHORIZER,
        "super.users": f"User:{ADMIN.user}",
        "tidelog.http.listener": f"127.0.0.1:{port}",
    }
    words = [f"{key}={value}" for key, value in settings.items()]
    with up(folder, *words, listen="SASL_SSL://127.0.0.1:0") as running:
        made = Guarded(running, port, certificates)
        with made.cluster(ADMIN) as cluster:
            access.set_password(cluster, ALICE.user, ALICE.secret, SCRAM)
            topics.create(cluster, "orders")
        yield made


@proves("http")
def test_a_request_without_credentials_learns_only_that_there_is_a_broker(guarded: Guarded) -> None:
    assert guarded.client("GET", "/healthz").status == 200
    assert guarded.client("GET", "/readyz").json == {"status": "ready"}
    got = guarded.client("GET", "/metrics")
    assert got.status == 401
    assert got.headers["www-authenticate"].startswith("Basic")
    assert "login" in got.message


@proves("http")
@pytest.mark.parametrize(
    "wrong", [Credentials("admin", "guessed"), Credentials("nobody", "nothing"), Credentials("admin,n=x", "xyz")]
)
def test_what_the_broker_does_not_know_does_not_get_in(guarded: Guarded, wrong: Credentials) -> None:
    got = guarded.client("GET", "/metrics", Authorization=basic(wrong))
    assert got.status == 401
    assert "wrong name or password" in got.message and "127.0.0.1" not in got.message
    assert wrong.secret not in got.message.split() and wrong.secret not in guarded.running.said().split()


@proves("http")
def test_the_broker_says_what_a_user_sees(guarded: Guarded) -> None:
    admin = guarded.client("GET", "/metrics", Authorization=basic(ADMIN))
    assert admin.status == 200
    assert b'topic="orders"' in admin.body
    alice = guarded.client("GET", "/metrics", Authorization=basic(ALICE))
    assert alice.status == 200
    assert b'topic="orders"' not in alice.body
    assert b'tidelog_scrape_failed{part="sizes"} 1' in alice.body


@proves("http")
def test_a_token_is_a_login_in_one_word(guarded: Guarded) -> None:
    bearer = f"Bearer {token(ADMIN)}"
    assert guarded.client("GET", "/metrics", Authorization=bearer).status == 200
    assert guarded.client("GET", "/metrics", Authorization=f"Bearer {token(ADMIN._replace(secret='x'))}").status == 401
    assert guarded.client("GET", "/metrics", Authorization="Bearer eyJhbGciOiJub25lIn0.e30.").status == 401


@proves("http")
def test_a_token_is_made_by_a_command_and_shown_once(guarded: Guarded, tmp_path: Path) -> None:
    login = tmp_path / "login.properties"
    login.write_text(
        f"security.protocol=SASL_SSL\nsasl.username={ADMIN.user}\nsasl.password={ADMIN.secret}\n"
        f"ssl.truststore.location={guarded.authorities}\n"
    )
    words = [sys.executable, "-m", "tidelog", "users", "token", "scraper", "--bootstrap", guarded.running.bootstrap]
    words += ["--command-config", str(login)]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ran.returncode == 0, ran.stderr
    got = guarded.client("GET", "/metrics", Authorization=f"Bearer {ran.stdout.strip()}")
    assert got.status == 200
    again = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S)
    assert again.returncode == 2 and "already" in again.stderr


@proves("http")
def test_the_gateway_reaches_a_broker_as_a_file_says(guarded: Guarded, tmp_path: Path) -> None:
    reach = tmp_path / "reach.properties"
    reach.write_text(f"security.protocol=SASL_SSL\nssl.truststore.location={guarded.authorities}\n")
    beside = GatewayProcess(guarded.running.bootstrap, tmp_path / "log", "--command-config", str(reach))
    assert beside.client("GET", "/readyz").status == 200
    assert beside.client("GET", "/metrics").status == 401
    assert beside.client("GET", "/metrics", Authorization=basic(ADMIN)).status == 200
    assert beside.stop() == 0
    assert ADMIN.secret not in beside.said()


@proves("http")
def test_https_has_the_brokers_certificate(tmp_path: Path, certificates: Certificates) -> None:
    port = free_port()
    settings = (f"ssl.keystore.location={certificates.broker}", f"tidelog.http.listener=https://127.0.0.1:{port}")
    trusting = ssl.create_default_context(cafile=str(certificates.authority))
    with up(tmp_path, *settings):
        answer = urllib.request.urlopen(f"https://localhost:{port}/readyz", timeout=PATIENCE_S, context=trusting)
        assert answer.status == 200
        with pytest.raises(OSError):
            urllib.request.urlopen(f"http://localhost:{port}/readyz", timeout=PATIENCE_S)


@proves("http")
def test_a_renewed_certificate_is_shown_after_sighup(tmp_path: Path, certificates: Certificates) -> None:
    port = free_port()
    store = tmp_path / "store.pem"
    store.write_bytes(certificates.broker.read_bytes())

    def shown() -> str:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as plain,
            certificates.client_context().wrap_socket(plain, server_hostname="localhost") as secured,
        ):
            return str(secured.getpeercert())

    with up(tmp_path, f"ssl.keystore.location={store}", f"tidelog.http.listener=https://127.0.0.1:{port}") as running:
        assert "alice" not in shown()
        store.write_bytes(certificates.client.read_bytes())
        running.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "alice" in shown())
        assert "http ended" not in running.said()
        assert running.end(signal.SIGTERM) == 0


@proves("http")
@pytest.mark.parametrize("asked", ["requested", "required"])
def test_a_clients_certificate_is_a_login(tmp_path: Path, certificates: Certificates, asked: str) -> None:
    port = free_port()
    settings = {
        "ssl.keystore.location": certificates.broker,
        "ssl.truststore.location": certificates.authority,
        "ssl.client.auth": asked,
        "ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/U",
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ALICE",
        "tidelog.http.listener": f"https://127.0.0.1:{port}",
    }
    words = [f"{key}={value}" for key, value in settings.items()]

    def metrics(own: Path | None) -> bytes:
        context = certificates.client_context(own)
        where = f"https://localhost:{port}/metrics"
        answer: bytes = urllib.request.urlopen(where, timeout=PATIENCE_S, context=context).read()
        return answer

    with up(tmp_path, *words, listen="SSL://127.0.0.1:0"):
        assert b'tidelog_scrape_failed{part="sizes"} 0' in metrics(certificates.client)
        for refused in (certificates.stranger, certificates.expired):
            with pytest.raises(OSError):
                metrics(refused)
        with pytest.raises(OSError) as without:
            metrics(None)
        assert ("401" in str(without.value)) == (asked == "requested")


@proves("http")
def test_nobody_else_says_by_which_certificate_he_comes(certificates: Certificates, tmp_path: Path) -> None:
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(tmp_path / "data"),
        "ssl.keystore.location": str(certificates.broker),
        "ssl.truststore.location": str(certificates.authority),
        "ssl.client.auth": "required",
        "tidelog.http.listener": "https://127.0.0.1:0",
        "tidelog.log.level": "ERROR",
    }
    config = load_broker_config(settings)
    server = Server(config, Logger.from_config(config), http=True)
    server.start()
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert server._delegation is not None
    subject = '[[["commonName","admin"]]]'
    knocking = Security("SASL_PLAINTEXT", MECHANISM, subject, "0" * 64)
    right = knocking._replace(password=server._delegation.secret)
    gateways = Address("127.0.0.1", server._gateway_port)
    others = Address(*server.addresses[0])
    try:
        with Connection.open(gateways, security=right) as connection:
            assert not connection.closed
        for address, security in ((gateways, knocking), (others, right), (others, knocking)):
            with pytest.raises(BrokerError):
                Connection.open(address, security=security)
    finally:
        server.stop_soon()
        thread.join(PATIENCE_S)


@proves("http")
def test_a_delegated_login_needs_the_secret_and_a_subject_that_a_rule_fits() -> None:
    delegation = make_delegation("RULE:^CN=(.*),O=Example$/$1/")
    login = DelegatedLogin(delegation)
    subject = b'[[["organizationName","Example"]],[["commonName","alice"]]]'
    secret = delegation.secret.encode()
    assert login.step(b"\0".join((b"", subject, secret)), AccessState()).user == "alice"
    for message in (b"", b"\0\0", secret, b"\0" + subject + b"\0" + b"0" * len(secret), b"\0" + subject + b"\0"):
        with pytest.raises(LoginRefused):
            login.step(message, AccessState())
    for other in (b"", b"{}", b"[]", b"[1]", subject.replace(b"Example", b"Other")):
        with pytest.raises(LoginRefused):
            login.step(b"\0".join((b"", other, secret)), AccessState())
    assert delegation.secret not in repr(delegation)


# Where it may listen -------------------------------------------------------------------------------------------------


@proves("http")
@pytest.mark.parametrize(
    ("text", "login", "fault"),
    [
        ("127.0.0.1:8642", False, None),
        ("localhost:8642", False, None),
        ("[::1]:8642", False, None),
        ("0.0.0.0:8642", False, "no login"),
        ("https://0.0.0.0:8642", False, "no login"),
        (":8642", False, "no login"),
        ("0.0.0.0:8642", True, "in the clear"),
        ("https://0.0.0.0:8642", True, None),
        ("http://0.0.0.0:8642", True, None),
        ("ftp://127.0.0.1:8642", True, "not an address for HTTP"),
        ("8642", True, "not an address"),
    ],
)
def test_others_are_let_in_only_with_a_login_and_not_in_the_clear(text: str, login: bool, fault: str | None) -> None:
    if fault is None:
        http_listener(text).check(login)
        return
    with pytest.raises(ConfigError, match=fault):
        http_listener(text).check(login)


@proves("http")
def test_a_broker_without_logins_refuses_to_serve_http_to_others(tmp_path: Path) -> None:
    with up(tmp_path, f"tidelog.http.listener=0.0.0.0:{free_port()}") as running:
        assert running.process.wait(PATIENCE_S) == 2
        assert "the broker demands no login; serve it at 127.0.0.1" in running.said()


@proves("http")
def test_the_gateway_refuses_so_too(tmp_path: Path) -> None:
    words = ["gateway", "--bootstrap", "127.0.0.1:1", "--listen", "0.0.0.0:0"]
    ran = subprocess.run([sys.executable, "-m", "tidelog", *words], capture_output=True, text=True, timeout=PATIENCE_S)
    assert ran.returncode == 2
    assert "demands no login" in ran.stderr


# Credentials and connections -----------------------------------------------------------------------------------------


@proves("http")
def test_credentials_are_read_back_and_never_shown() -> None:
    for one in (ADMIN, ALICE, Credentials("a", ":::")):
        assert read_credentials(basic(one)) == one
        assert read_credentials(f"bearer {token(one)}") == one
        assert one.secret not in repr(one) and one.secret not in f"{one}"
    with pytest.raises(Refusal):
        read_credentials(basic(Credentials("a", "control\0character")))


@proves("http")
def test_connections_are_kept_by_user_and_bounded(broker: tidelog.Broker) -> None:
    opened: list[Cluster] = []

    def connect(_credentials: Credentials | None) -> Cluster:
        opened.append(Cluster(broker.bootstrap))
        return opened[-1]

    clusters = Clusters(connect)
    with clusters.lease(ADMIN) as first:
        first.any_node()
        with clusters.lease(ADMIN) as second:
            assert second is not first
    with clusters.lease(ADMIN) as again, clusters.lease(ADMIN._replace(secret="other")) as other:
        assert again in (first, second)
        assert other not in (first, second)
    for number in range(2 * CLUSTERS_MAX):
        with clusters.lease(Credentials(str(number), "x")) as one:
            if number < 5:
                one.any_node()
    assert len(clusters) == CLUSTERS_MAX
    clusters.close()
    assert len(clusters) == 0
    assert all(connection.closed for one in opened for connection in one._connections.values())


@proves("http")
def test_a_connection_that_is_old_or_rested_long_logs_in_anew(
    broker: tidelog.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    clusters = Clusters(lambda _credentials: Cluster(broker.bootstrap))
    with clusters.lease(None) as first:
        pass
    monkeypatch.setattr(gateway_access, "CLUSTER_IDLE_S", 0.0)
    with clusters.lease(None) as second:
        assert second is not first
    clusters.close()


@proves("http")
def test_many_requests_at_once_share_few_connections(broker: tidelog.Broker) -> None:
    def nodes(call: Call) -> Answer:
        with call.cluster() as cluster:
            return as_json(len(cluster.ask_metadata(()).nodes))

    with served((Route("GET", "/nodes", nodes, "Nodes"),), broker.bootstrap) as client:
        got: list[int] = []
        asking = [threading.Thread(target=lambda: got.append(client("GET", "/nodes").json)) for _ in range(100)]
        for one in asking:
            one.start()
        for one in asking:
            one.join(PATIENCE_S)
        assert got == [1] * 100
