"""A question is asked as somebody: the broker decides what that user may read."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidelog
from cli.command import Command
from proving import proves

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def properties(path: Path, user: str) -> str:
    login = f"sasl.username={user}\nsasl.password=a password for {user}\n"
    path.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n{login}")
    return str(path)


@pytest.mark.full
@proves("sql", "security")
def test_who_may_not_read_a_topic_cannot_ask_about_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    nobody = Command("127.0.0.1:1")
    assert nobody("users", "add", "admin", "--data", str(data), stdin="a password for admin\n").code == 0
    settings = {"authorizer.class.name": AUTHORIZER, "super.users": "User:admin"}
    with tidelog.Broker(data, listen="SASL_PLAINTEXT://127.0.0.1:0", settings=settings) as broker:
        command = Command(broker.bootstrap)
        admin = ("--command-config", properties(tmp_path / "admin", "admin"))
        for topic in ("orders", "salaries"):
            command.ok("topics", "create", topic, *admin)
            command.ok("produce", topic, *admin, stdin='{"n": 1}\n')
        command.ok("users", "add", "alice", *admin, stdin="a password for alice\n")
        command.ok("acls", "add", "--user", "alice", "--topic", "orders", "--operation", "read", *admin)
        alice = ("--command-config", properties(tmp_path / "alice", "alice"))
        assert command.ok("sql", "select sum(n) n from orders", *alice).json == {"n": 1}
        refused = command("sql", "select sum(n) n from salaries", *alice)
        assert (refused.code, refused.out) == (1, "")
        assert "salaries" in refused.err and "TOPIC_AUTHORIZATION_FAILED" in refused.err
        assert "--topic __tidelog.views" in refused.err, "what lacks may be the right to see views"
        for words in (("status",), ("pause", "shop.revenue")):  # to show nothing would say that nothing runs
            unseen = command(*words, *alice)
            assert (unseen.code, unseen.out) == (1, "")
            assert "topic '__tidelog.status' was refused" in unseen.err
