"""The broker decides who reads and writes schemas, also those that the gateway has read already for somebody else."""

from __future__ import annotations

import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator

import pytest

from crash.port import free_port
from gateway.running import up
from gateway.serving import Client
from proving import proves
from tidelog.client.admin import access
from tidelog.client.cluster import Cluster
from tidelog.client.security import Security

ADMIN, READER, WRITER, NOBODY = "admin", "reader", "writer", "nobody"
SECRET = "the same for all of them"
ALLOWED = [
    (READER, "read", "topic", "_schemas"),
    (WRITER, "read", "topic", "_schemas"),
    (WRITER, "write", "topic", "_schemas"),
    (WRITER, "write", "transactional-id", "tidelog.schemas"),
]
SCHEMA = {"schema": '"int"'}


def login(user: str) -> str:
    return "Basic " + b64encode(f"{user}:{SECRET}".encode()).decode()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("guarded")
    words = ["users", "add", ADMIN, "--data", str(folder / "data")]
    subprocess.run([sys.executable, "-m", "tidelog", *words], input=f"{SECRET}\n".encode(), check=True)
    port = free_port()
    settings = (
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        f"super.users=User:{ADMIN}",
        f"tidelog.http.listener=127.0.0.1:{port}",
    )
    with up(folder, *settings, listen="SASL_PLAINTEXT://127.0.0.1:0") as running:
        security = Security("SASL_PLAINTEXT", user=ADMIN, password=SECRET)
        with Cluster(running.bootstrap, security=security) as cluster:
            for user in (READER, WRITER, NOBODY):
                access.set_password(cluster, user, SECRET, ("SCRAM-SHA-256", "SCRAM-SHA-512"))
            access.create_acls(
                cluster,
                [
                    access.Acl(
                        access.RESOURCES[kind],
                        access.LITERAL,
                        name,
                        f"User:{user}",
                        "*",
                        access.OPERATIONS[operation],
                        access.PERMISSIONS["allow"],
                    )
                    for user, operation, kind, name in ALLOWED
                ],
            )
        yield Client(port)


@proves("schemas", "http")
def test_each_user_does_what_the_broker_lets_it(guarded: Client) -> None:
    place = "/subjects/s/versions"
    assert guarded("GET", "/subjects").status == 401
    assert guarded("POST", place, SCHEMA, Authorization=login(ADMIN)).json["id"] == 1
    assert guarded("GET", place, Authorization=login(ADMIN)).json == [1]
    for user, reads, writes in ((READER, 200, 403), (WRITER, 200, 200), (NOBODY, 403, 403)):
        assert guarded("GET", place, Authorization=login(user)).status == reads, user
        assert guarded("GET", "/schemas/ids/1", Authorization=login(user)).status == reads, user
        body = {"schema": f'{{"type":"int","by":"{user}"}}'}
        assert guarded("POST", f"/subjects/{user}/versions", body, Authorization=login(user)).status == writes, user
    assert guarded("GET", "/subjects", Authorization=login(READER)).json == ["s", WRITER]
