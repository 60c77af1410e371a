"""An app's access rules, made by `tidelog access --apply`: who runs it needs no more, and who reads can do no more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelog
from against.apache_kafka import die_with_parent
from against.patience import eventually
from cli.command import Command, Ran
from proving import proves
from tidelog.client.admin.access import LITERAL, PREFIXED
from tidelog.pipelines.access_rules import rules
from tidelog.pipelines.app import App
from tidelog.pipelines.graph import graph_of

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PROGRAM = """
from tidelog import App

app = App("shop")
app.stream("orders", value="id long, amount double", on_error="dead_letter")
app.topic("large", key="id")(lambda orders: orders.where("amount > 100"))
app.view("latest", key="id")(lambda large: large)
app.table("kept", key="id", value="id long, amount double", start_from="sqlite:///{folder}/views.db#latest")
app.view("again", key="id")(lambda kept: kept)
"""
LARGE = {"id": 2, "amount": 150.0}


def shop() -> App:
    app = App("shop")
    app.stream("orders", value="id long, amount double")
    app.topic("large", key="id")(lambda orders: orders)
    app.view("latest", key="id")(lambda large: large)
    return app


@proves("security", "P1")
def test_who_runs_an_app_has_its_outputs_and_who_reads_writes_nothing() -> None:
    graph = graph_of(shop())
    found = {(one.pattern, one.name): one.operation for one in rules(graph, owners=["shop"])}
    assert (LITERAL, "orders") in found and (LITERAL, "large.dead") in found
    assert {(PREFIXED, "latest.v"), (PREFIXED, "tidelog.latest."), (PREFIXED, "tidelog.sink.shop.large")} <= set(found)
    assert not any("seed" in name for _, name in found), "no table begins with a store"
    read = rules(graph, readers=["web", "bi"])
    assert {one.principal for one in read} == {"User:web", "User:bi"} and {one.operation for one in read} == {3, 8}
    alone = {one.name for one in rules(graph.only(["latest"]), owners=["shop"])}
    assert "orders" not in alone and "large" in alone, "what it reads is written by another run"


@proves("security", "command_line")
def test_rules_are_shown_and_somebody_must_be_named(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(PROGRAM.format(folder=tmp_path))
    tidelog = Command("127.0.0.1:1")
    shown = tidelog.ok("access", str(file), "--reader", "web", "--only", "latest", "--json").json
    assert {"latest.v", "__tidelog.views"} <= {one["name"] for one in shown}
    assert {one["principal"] for one in shown} == {"User:web"}
    refused = tidelog("access", str(file))
    assert refused.code == 2 and "--owner USER" in refused.err and "--reader USER" in refused.err


class Guarded:
    """A broker at which people log in, and the app's file."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.folder, self.command = folder, Command(bootstrap)
        self.file = folder / "shop.py"
        self.file.write_text(PROGRAM.format(folder=folder))
        self.where = ("--checkpoints", str(folder / "checkpoints"), "--store", f"sqlite:///{folder}/views.db")

    def login(self, user: str) -> tuple[str, str]:
        path = self.folder / f"{user}.properties"
        login = f"sasl.username={user}\nsasl.password=a password for {user}\n"
        path.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n{login}")
        return "--command-config", str(path)

    def by(self, user: str, *words: str, stdin: str = "") -> Ran:
        return self.command(*words, *self.login(user), stdin=stdin)

    def sure(self, user: str, *words: str, stdin: str = "") -> Ran:
        ran = self.by(user, *words, stdin=stdin)
        assert ran.code == 0, ran
        return ran

    def run_until_ready(self, *words: str) -> None:
        log = self.folder / "run.log"
        line = ["run", str(self.file), *words, *self.where, "--memory", "512m", *self.login("shop")]
        with log.open("wb") as said:
            process = self.command.start(*line, stdout=said, stderr=said, preexec_fn=die_with_parent)
        try:
            eventually(lambda: process.poll() is not None or " ready app=" in log.read_text(), seconds=300)
            assert process.poll() is None, log.read_text()
        finally:
            process.terminate()
        assert process.wait(300) == 0, log.read_text()
        assert "AUTHORIZATION_FAILED" not in log.read_text()


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    data = str(tmp_path / "data")
    Command("127.0.0.1:1").ok("users", "add", "admin", "--data", data, stdin="a password for admin\n")
    settings = {"authorizer.class.name": AUTHORIZER, "super.users": "User:admin"}
    with tidelog.Broker(data, listen="SASL_PLAINTEXT://127.0.0.1:0", settings=settings) as broker:
        made = Guarded(tmp_path, broker.bootstrap)
        for user in ("shop", "web"):
            made.sure("admin", "users", "add", user, stdin=f"a password for {user}\n")
        made.sure("admin", "topics", "create", "orders")
        yield made


@pytest.mark.full
@proves("security", "P1", "P3")
def test_an_app_runs_is_rebuilt_and_is_read_by_users_who_may_do_nothing_else(guarded: Guarded) -> None:
    guarded.sure("admin", "access", str(guarded.file), "--owner", "shop", "--reader", "web", "--apply")
    guarded.sure("admin", "produce", "orders", stdin=f'{{"id": 1, "amount": 5.0}}\n{json.dumps(LARGE)}\nno JSON\n')
    guarded.run_until_ready("--only", "large", "--only", "latest")
    guarded.run_until_ready()
    app = ("--app", str(guarded.file), *guarded.where, "--memory", "512m")
    guarded.sure("shop", "rebuild", "large", "--with-readers", *app)
    store = ("--store", f"sqlite:///{guarded.folder}/views.db")
    for view in ("latest", "again"):
        assert guarded.sure("web", "views", "rows", view, "--after", "orders:0:1", *store, "--json").json == [LARGE]
    assert guarded.sure("web", "wait", "latest", *store).out == "latest has what was in its inputs\n"
    assert "shop.latest" in guarded.sure("web", "status", "--all").out
    assert guarded.sure("shop", "tail", "large.dead", "--from", "earliest", "--values").out == "no JSON\n"
    for words in (("tail", "orders"), ("pause", "shop.latest"), ("pass", "large", "orders:0:0")):
        refused = guarded.by("web", *words)
        assert refused.code != 0 and "AUTHORIZATION_FAILED" in refused.err, words
    assert guarded.by("shop", "produce", "orders", stdin="1\n").code == 1, "inputs are read, and not written"
