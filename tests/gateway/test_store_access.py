"""A store's access rules, as `tidelog store access --apply` makes them, tried by users who log in: each may do what is
meant for it, by Kafka's protocol and over HTTP, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from against.patience import eventually
from cli.command import Command
from crash.port import free_port
from gateway.running import up
from gateway.serving import Client, Got
from proving import proves
from sourcing.seats import Cancel, Reserve, Reserved, SeatTaken, seats
from tidelog.client.admin import access
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer
from tidelog.client.security import Security
from tidelog.control.owner import Owner
from tidelog.control.status import PAUSE, STOP, read_status, send_command
from tidelog.errors import BrokerError, TidelogError
from tidelog.parts.part import Part
from tidelog.parts.running import Supervisor
from tidelog.sourcing import Effects, EventStore, ProcessManager, ReadModel, Refused, Send
from tidelog.sourcing.event_following import FollowerPart
from tidelog.sourcing.store_part import StorePart
from tidelog.wire.error_code import ErrorCode

ADMIN, OWNER, SENDER, FOLLOWER, STRANGER = "admin", "shop", "web", "crm", "mallory"
FOLLOWED = ("waiting", "mails", "holders")
SECRET = "the same for all of them"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
REFUSED = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def security(user: str) -> Security:
    return Security("SASL_PLAINTEXT", user=user, password=SECRET)


class Guarded:
    def __init__(self, client: Client, bootstrap: str) -> None:
        self.client, self.bootstrap = client, bootstrap

    def cluster(self, user: str) -> Cluster:
        return Cluster(self.bootstrap, security=security(user), timeout_s=20)

    def store(self, user: str, **more: Any) -> EventStore[Any]:
        return EventStore("seats", seats(), bootstrap=self.bootstrap, security=security(user), partitions=1, **more)

    def post(self, user: str, path: str, body: object, **headers: str) -> Got:
        authorization = "Basic " + b64encode(f"{user}:{SECRET}".encode()).decode()
        return self.client("POST", f"/stores/seats/entities/{path}", body, Authorization=authorization, **headers)

    def get(self, user: str, path: str) -> Got:
        authorization = "Basic " + b64encode(f"{user}:{SECRET}".encode()).decode()
        return self.client("GET", f"/stores/seats/entities/{path}", Authorization=authorization)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder: Path = tmp_path_factory.mktemp("guarded")
    words = ["users", "add", ADMIN, "--data", str(folder / "data")]
    said = f"{SECRET}\n".encode()
    subprocess.run([sys.executable, "-m", "tidelog", *words], input=said, check=True, capture_output=True)
    port = free_port()
    settings = (
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        f"super.users=User:{ADMIN}",
        f"tidelog.http.listener=127.0.0.1:{port}",
    )
    with up(folder, *settings, listen="SASL_PLAINTEXT://127.0.0.1:0") as running:
        made = Guarded(Client(port), running.bootstrap)
        with made.cluster(ADMIN) as cluster:
            for user in (OWNER, SENDER, FOLLOWER, STRANGER):
                access.set_password(cluster, user, SECRET, SCRAM)
        config = folder / "admin.properties"
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        login = f'sasl.jaas.config={module} required username="{ADMIN}" password="{SECRET}";'
        config.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n{login}\n")
        followed = [word for name in FOLLOWED for word in ("--follows", name)]
        users = ("--owner", OWNER, "--sender", SENDER, "--follower", FOLLOWER, *followed)
        words = ("store", "access", "seats", *users, "--apply", "--command-config", str(config))
        Command(running.bootstrap).ok(*words)
        yield made


def produces(cluster: Cluster, topic: str) -> int:
    """The code that it is refused with; 0 where it is not."""
    producer = Producer(cluster, auto_create=False, idempotent=False)
    try:
        delivery = producer.send(topic, b"{}", key=b"A1", partition=0)
        producer.flush()
    except BrokerError as error:
        return error.code
    return delivery.error.code if isinstance(delivery.error, BrokerError) else 0


def reads(cluster: Cluster, topic: str) -> int:
    consumer = Consumer(cluster, max_wait_ms=1)
    consumer.assign({TopicPartition(topic, 0): 0})
    try:
        consumer.fetch()
    except BrokerError as error:
        return error.code
    return 0


@proves("E1", "security")
@pytest.mark.slow
def test_owners_and_senders_may_do_what_is_theirs_and_nobody_else_anything(guarded: Guarded) -> None:
    with guarded.store(OWNER) as store, guarded.store(SENDER, serve=False) as sender:
        assert store.send("A1", Reserve("anna")).version == 1
        with pytest.raises(Refused) as refused:
            sender.send("A1", Reserve("bob"))
        assert refused.value.reason == SeatTaken("anna")
        assert sender.send("A1", Cancel("anna")).version == 2
        for user in (SENDER, STRANGER):
            with guarded.cluster(user) as cluster:
                for topic in ("seats.events", "seats.snapshots", "seats.replies", "seats.types"):
                    assert produces(cluster, topic) in REFUSED, (user, topic)
                assert reads(cluster, "seats.events") in REFUSED
                with pytest.raises(TidelogError):
                    Owner(cluster, "tidelog.store.seats.0").begin()
        with guarded.cluster(STRANGER) as cluster:
            assert produces(cluster, "seats.commands") in REFUSED
            assert reads(cluster, "seats.replies") in REFUSED
        with pytest.raises(TidelogError), guarded.store(STRANGER, serve=False, timeout_s=5) as stranger:
            stranger.send("A1", Reserve("mallory"), timeout_s=1)
        with pytest.raises(TidelogError), guarded.store(SENDER, timeout_s=5):
            pass
        assert store.send("A1", Reserve("carl")).version == 3, "nobody has fenced its owner"


@proves("E1", "security")
@pytest.mark.slow
def test_an_owner_tells_its_status_and_is_paused(guarded: Guarded) -> None:
    part = StorePart(guarded.store(OWNER))
    said: list[str] = []
    with guarded.cluster(OWNER) as cluster, guarded.cluster(ADMIN) as admin:
        run = Supervisor([part], cluster, lambda event, **fields: said.append(f"{event} {fields}"))
        running = Thread(target=run.loop)
        running.start()

        def states() -> list[str]:
            return [one.figures["state"] for one in read_status(admin) if one.kind == part.kind]

        try:
            eventually(lambda: "running" in states())
            send_command(admin, part.kind, part.name, PAUSE)
            eventually(lambda: states() == ["paused"])
        finally:
            run.stopping.set()
            running.join()
        with pytest.raises(TidelogError):
            send_command(cluster, part.kind, part.name, STOP)


@proves("E1", "security", "http")
@pytest.mark.slow
def test_over_http_a_user_sends_in_his_own_name_what_the_broker_lets_him(guarded: Guarded) -> None:
    with guarded.store(OWNER) as store:
        done = guarded.post(SENDER, "B1/commands/Reserve", {"who": "anna"})
        assert done.status == 200
        ((record, _),) = store.history("B1")
        assert record.context.who == SENDER
        forged = guarded.post(SENDER, "B1/commands/Cancel?who=boss", {"who": "anna"})
        assert forged.status == 400
        assert guarded.post(STRANGER, "B1/commands/Cancel", {"who": "anna"}).status == 403
        assert guarded.get(SENDER, "B1/state").json["state"]["holder"] == "anna"
        assert guarded.get(STRANGER, "B1/state").status == 403
        assert guarded.get(SENDER, "B1").status == 403, "histories are for who may read them"
        assert guarded.client("POST", "/stores/seats/entities/B1/commands/Cancel", {"who": "anna"}).status == 401
        assert store.state("B1").version == 1


def holder(rows: Any, event: Any, record: Any) -> None:
    rows[record.entity] = {"who": event.who}


@proves("E3", "security")
@pytest.mark.slow
def test_a_follower_may_run_what_it_was_allowed_and_can_not_write_histories(guarded: Guarded, tmp_path: Path) -> None:
    mails: list[str] = []
    columns = {"seat": "string", "who": "string"}
    with guarded.store(OWNER) as store:
        theirs = guarded.store(FOLLOWER, serve=False)

        def react(state: str, event: Any) -> list[Any]:
            return [Send("W2", Reserve("next"))] if event == Reserved("dora") else []

        followers: list[Any] = [
            ProcessManager("waiting", theirs, react, initial="", start="earliest", refusals=[theirs]),
            Effects("mails", theirs, lambda event, record, id: mails.append(record.entity), start="earliest"),
            ReadModel("holders", theirs, holder, key="seat", columns=columns).part(f"sqlite:///{tmp_path}/h.db"),
        ]
        said: list[str] = []
        with guarded.cluster(FOLLOWER) as cluster:
            parts: list[Part] = [FollowerPart(one) for one in followers]
            run = Supervisor(parts, cluster, lambda event, **fields: said.append(f"{event} {fields}"))
            running = Thread(target=run.loop)
            running.start()
            try:
                store.send("W1", Reserve("dora"))
                eventually(lambda: store.state("W2").version == 1 and {"W1", "W2"} <= {*mails})
                eventually(lambda: all(part.has_worked() for part in parts))  # type: ignore[attr-defined]
            finally:
                run.stopping.set()
                running.join()
            assert not any(one.startswith("failed") for one in said), said
            assert {one.kind for one in read_status(cluster)} >= {"process", "effects", "read model"}
            for topic in ("seats.events", "seats.snapshots", "seats.replies", "seats.types"):
                assert produces(cluster, topic) in REFUSED, topic
            with pytest.raises(TidelogError):
                Owner(cluster, "tidelog.store.seats.0").begin()
