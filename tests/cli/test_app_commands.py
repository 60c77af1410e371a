"""`plan`, `run` and `status`: what they show, which settings count, what they refuse; none of it starts Spark."""

from __future__ import annotations

import json
import socket
import time
from argparse import Namespace
from io import StringIO
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from cli.command import Command
from proving import proves
from tidelog import Broker
from tidelog.cli import apply, rebuild, run, status
from tidelog.cli import options as command
from tidelog.cli.app_settings import settings_of
from tidelog.cli.main import main
from tidelog.cli.run import http_of, parser, rows_at, span_of, tell_views, warn_of_another
from tidelog.cli.terminal import STARTING_SPARK
from tidelog.client.admin import groups, topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer
from tidelog.control.catalog import Editor, ensure_catalog
from tidelog.control.derived import Derived
from tidelog.control.health import SILENT_MS
from tidelog.control.status import Commands, Reporter, read_status
from tidelog.errors import ConfigError, UsageError
from tidelog.logger import Logger
from tidelog.parts.children import ChildPart
from tidelog.pipelines import running
from tidelog.pipelines.app import App
from tidelog.pipelines.appliers import appliers_of
from tidelog.pipelines.graph import graph_of
from tidelog.pipelines.loading import load_app
from tidelog.pipelines.placing import Target
from tidelog.testing.broker import TestBroker

SHOP = str(Path(__file__).parent.parent.parent / "examples" / "shop_app.py")


@proves("P1", "command_line")
@pytest.mark.slow
def test_the_plan_needs_neither_spark_nor_a_broker(nowhere: Command) -> None:
    lines = nowhere.ok("plan", SHOP).out.splitlines()
    assert lines[2].startswith("stream orders  shop_app.py:")
    assert nowhere.ok("plan", SHOP, "--graph", "mermaid").out.startswith("flowchart LR\n")
    assert nowhere.ok("plan", SHOP, "--graph", "dot").out.startswith('digraph "shop" {\n')
    told = nowhere.ok("plan", SHOP, "--json").json
    assert [(one["name"], one["reads"]) for one in told] == [("big-orders", ["orders"]), ("revenue", ["orders"])]


@proves("P1", "command_line")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["plan", "nothing.py"], "nothing.py is not a file"),
        (["run", SHOP, "--only", "revenues"], "did you mean 'revenue'"),
        (["run", SHOP, "--from", "2026-01-01"], "add --batch"),
        (["run", SHOP, "--trigger", "often"], "which is not a duration"),
        (["run", SHOP, "--store", "foo://x"], "--store: 'foo://x' is not a store; a URL begins with sqlite://"),
        (["run", SHOP, "--store", "redis://db:port/0"], "--store: redis://db:port/0 is not a URL"),
        (
            ["run", SHOP, "--store", "redis://:${NOT_SET}@db/0"],
            "view 'revenue': redis://:${NOT_SET}@db/0 has ${NOT_SET}, and the environment does not",
        ),
        (["pause"], "the following arguments are required: NAME"),
    ],
)
def test_what_is_written_wrongly_is_told_in_one_line(nowhere: Command, words: list[str], message: str) -> None:
    ran = nowhere(*words)
    assert (ran.code, len(ran.err.splitlines())) == (2, 1)
    assert message in ran.err


@proves("P1", "command_line")
@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ('app.stream("s", value="id lnog")', "stream 's': column 'id' is of type 'lnog', which Spark does not have"),
        (
            'app.stream("s", value="id long", event_time="at")',
            "event_time is 'at', which is not one of its columns (id);",
        ),
        ('app.stream("s", value="at long", event_time="at")', "event_time is 'at', a long; declare the column as a"),
        ('app.stream("s", value={"id": "long", "n": "int"})', "write them as one text, value='id long, n int'"),
        ('app.stream("s", event_time="at")', "not one of its columns (key, value, topic,"),
        ('app.table("s", key="id", value="user string")', "table 's': its key has 'id', and its columns are user"),
    ],
)
def test_a_plan_refuses_columns_that_cannot_be_with_the_file_and_the_line(
    nowhere: Command, tmp_path: Path, declared: str, message: str
) -> None:
    file = tmp_path / "shop.py"
    lines = ["from tidelog import App", 'app = App("shop")', declared, '@app.view("v", key="id")', "def v(s): return s"]
    file.write_text("\n".join(lines))
    for words in (["plan", str(file)], ["run", str(file)]):
        ran = nowhere(*words)
        assert (ran.code, len(ran.err.splitlines())) == (2, 1)
        assert "shop.py:3: " in ran.err and message in ran.err


@proves("P1", "command_line")
def test_a_plan_takes_what_only_spark_can_read(nowhere: Command, tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    declared = [
        'app.stream("a", value="at timestamp, m map<string, decimal(5,2)>", event_time="at")',
        'app.stream("b", value="id double precision", event_time="at")',
        'app.stream("c", registry="http://127.0.0.1:1", subject="s", event_time="at")',
        'app.stream("d", value=\'{"type":"record","name":"x","fields":[]}\', event_time="at")',
        'app.stream("e", value="id long", event_time="timestamp")',
    ]
    view = ['@app.view("v", key="id")', "def v(a, b, c, d, e): return a"]
    file.write_text("\n".join(["from tidelog import App", 'app = App("shop")', *declared, *view]))
    assert "stream e" in nowhere.ok("plan", str(file)).out


@proves("P1", "command_line")
def test_a_run_says_that_no_broker_is_there_before_it_starts_spark(nowhere: Command) -> None:
    assert nowhere("run", SHOP, "--bootstrap", "127.0.0.1:1").code == 3


@proves("P1", "command_line")
@pytest.mark.parametrize("words", [["run", SHOP], ["rebuild", "revenue", "--app", SHOP]], ids=["run", "rebuild"])
def test_an_input_that_is_not_there_is_told_before_spark_starts(
    tidelog_broker: TestBroker, tmp_path: Path, words: list[str]
) -> None:
    ran = Command(tidelog_broker.bootstrap)(*words, "--store", f"sqlite:///{tmp_path}/shop.db")
    assert (ran.code, len(ran.err.splitlines())) == (2, 1), "a line that Spark is started would be one more"
    assert "stream 'orders' reads topic 'orders', which is not there; make it first" in ran.err


def settings(*words: str, environment: dict[str, str] | None = None, folder: Path, **code: str) -> Any:
    options = command.parse(parser(), ["shop.py", *words])
    return settings_of(options, App("shop", **code), environment=environment or {}, folder=folder)  # type: ignore[arg-type]


@proves("P1")
def test_settings_come_from_the_command_line_the_environment_the_file_and_the_code(tmp_path: Path) -> None:
    (tmp_path / "tidelog.toml").write_text('[app]\nstore = "redis://file"\nmemory = "3g"\n[broker]\n"node.id" = 2\n')
    environment = {"TIDELOG_STORE": "redis://environment", "TIDELOG_NUM_PARTITIONS": "3", "TIDELOG_MASTER": "local[1]"}
    found = settings("--store", "redis://words", environment=environment, folder=tmp_path, store="redis://code")
    assert (found.store, found.memory, found.master) == ("redis://words", "3g", "local[1]")
    assert settings(environment=environment, folder=tmp_path, store="redis://code").store == "redis://environment"
    assert settings(folder=tmp_path, store="redis://code").store == "redis://file"
    (tmp_path / "tidelog.toml").unlink()
    found = settings(folder=tmp_path, store="redis://code", checkpoints="s3a://bucket/place")
    assert (found.store, found.checkpoints, found.trigger_ms) == ("redis://code", "s3a://bucket/place", 100)
    assert found.bootstrap == "127.0.0.1:9092"


@proves("P1", "E3")
def test_a_store_that_is_where_it_is_by_the_folder_alone_is_told_apart_from_one_that_was_named(tmp_path: Path) -> None:
    assert settings(folder=tmp_path).store_by_folder
    assert settings(folder=tmp_path, store="sqlite:///views.db").store_by_folder
    assert not settings(folder=tmp_path, store="sqlite:////srv/views.db").store_by_folder
    assert not settings("--store", "sqlite:///views.db", folder=tmp_path).store_by_folder


@proves("P1")
def test_a_store_is_unnamed_only_where_nobody_has_said_any(tmp_path: Path) -> None:
    assert settings(folder=tmp_path).store_unnamed
    said = {"TIDELOG_STORE": "sqlite:///views.db"}
    assert not settings("--store", "sqlite:///views.db", folder=tmp_path).store_unnamed
    assert not settings(environment=said, folder=tmp_path).store_unnamed
    assert not settings(folder=tmp_path, store="sqlite:///views.db").store_unnamed
    (tmp_path / "tidelog.toml").write_text('[app]\nstore = "sqlite:///views.db"\n')
    assert not settings(folder=tmp_path).store_unnamed


@proves("P1")
def test_a_run_says_which_views_stay_in_other_stores_than_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app = App("shop")
    app.stream("orders")
    app.view("revenue", key="product")(lambda orders: orders)
    app.view("ranking", key="product", store="redis://named")(lambda orders: orders)
    graph, said = graph_of(app), StringIO()
    old = "sqlite:////srv/tidelog-views/shop.db"
    of = {"revenue": (old,), "ranking": ("redis://named",)}
    targets = [Target(node, "shop", "t", "s", "/c", generation=1, stores=of[node.name]) for node in graph.nodes]
    tell_views(Logger(said), graph, targets, settings(folder=tmp_path), None)
    lines = [line for line in said.getvalue().splitlines() if "stays" in line]
    assert len(lines) == 1 and f"view revenue stays where it is stores={old} default=sqlite:///{tmp_path}/" in lines[0]
    said.truncate(0)
    tell_views(Logger(said), graph, targets, settings("--store", "redis://other", folder=tmp_path), None)
    assert "stays" not in said.getvalue()


@proves("P1")
def test_a_store_that_is_none_is_refused_with_who_has_said_it(tmp_path: Path) -> None:
    said = "'foo://x' is not a store; a URL begins with sqlite://, .*postgresql://"
    with pytest.raises(UsageError, match=f"^--store: {said}"):
        settings("--store", "foo://x", folder=tmp_path)
    with pytest.raises(UsageError, match=f"^the environment variable TIDELOG_STORE: {said}"):
        settings(environment={"TIDELOG_STORE": "foo://x"}, folder=tmp_path)
    with pytest.raises(UsageError, match=rf"^{Path(__file__).name}:\d+: {said}"):
        settings(folder=tmp_path, store="foo://x")
    (tmp_path / "tidelog.toml").write_text('[app]\nstore = "foo://x"\n')
    with pytest.raises(UsageError, match=rf"^{tmp_path}/tidelog.toml \[app\]: {said}"):
        settings(folder=tmp_path)


@proves("P1")
def test_an_unknown_setting_of_an_app_is_refused_with_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "tidelog.toml").write_text('[app]\nchekpoints = "x"\n')
    with pytest.raises(ConfigError, match=r"chekpoints is not a setting; did you mean checkpoints\?"):
        settings(folder=tmp_path)


@proves("P1", "E3", "command_line")
def test_a_run_its_appliers_and_a_rebuild_wait_for_an_answer_as_long_as_timeout_says(tmp_path: Path) -> None:
    told = ["--timeout", "2.5", "--bootstrap", "127.0.0.1:1"]
    for parsed in (
        command.parse(parser(), [SHOP, *told]),
        command.parse(rebuild.parser(), ["revenue", "--app", SHOP, *told]),
    ):
        found = settings_of(parsed, App("shop"), environment={}, folder=tmp_path)
        with found.connect() as cluster:
            assert cluster.timeout_s == 2.5
        node = graph_of(load_app(SHOP)).node("revenue")
        target = Target(node, "shop", "revenue.v1", "revenue.v1", "", stores=("sqlite:///shop.db",))
        (applier,) = appliers_of(target, found)
        assert isinstance(applier, ChildPart)
        words = apply.parser().parse_args(applier.command[applier.command.index("apply") + 1 :])
        assert (words.timeout, words.bootstrap, words.view) == (2.5, "127.0.0.1:1", "revenue")
    with settings(folder=tmp_path).connect() as cluster:
        assert cluster.timeout_s == command.DEFAULT_TIMEOUT_S, "as of all other commands"


@proves("B1")
def test_a_stretch_of_history_is_two_times_in_order() -> None:
    found = span_of(Namespace(begin="2026-01-01", end="2026-01-01T00:00:01Z"))
    assert (found.begin_ms, found.end_ms) == (1_767_225_600_000, 1_767_225_601_000)
    assert span_of(Namespace(begin=None, end=None)) == (None, None)
    with pytest.raises(UsageError, match="is not before --to"):
        span_of(Namespace(begin="2026-01-02", end="2026-01-01"))
    with pytest.raises(UsageError, match="write a time like"):
        span_of(Namespace(begin="yesterday", end=None))


@proves("P3", "F1")
def test_parts_of_long_ago_are_left_out_and_the_reason_of_a_failed_one_stays(
    tidelog: Command, cluster: Cluster, topic: str
) -> None:
    now_ms = int(time.time() * 1000)
    hours = {"old": 25, "dead": 25, "broken": 25, "forgotten": 24 * 8, "ended": 1}
    fault = {"message": "ViewChanged: it has other columns", "file": None, "line": None}
    told: dict[str, dict[str, Any]] = {
        "old": {"ended": True},
        "dead": {},
        "broken": {"state": "failed", "error": fault},
        "forgotten": {"state": "failed", "error": fault},
        "ended": {"state": "stopped", "error": fault},
    }
    for name, figures in told.items():
        at_ms = now_ms - hours[name] * 3_600_000
        Reporter(cluster, "applier", f"{topic}.{name}").tell({**figures, "at_ms": at_ms}, at_once=True)
    shown = [line.split()[1:3] for line in tidelog("status").lines if topic in line]
    assert shown == [[f"{topic}.broken", "failed"], [f"{topic}.ended", "stopped"]]
    lines = [line for line in tidelog("status").lines if topic in line]
    assert all(line.endswith("ViewChanged: it has other columns") for line in lines)
    every = [line.split()[1:3] for line in tidelog("status", "--all").lines if topic in line]
    assert every[1] == [f"{topic}.dead", "gone"] and len(every) == 5
    assert tidelog("status", f"{topic}.dead").lines[1].endswith("has not reported for 25 hours")


@proves("P3", "F1")
def test_status_shows_parts_and_fails_where_one_has_a_fault(tidelog: Command, cluster: Cluster, topic: str) -> None:
    reporter = Reporter(cluster, "query", topic)
    reporter.tell({"state": "running", "rows_in": 12, "lag": {"records": 3, "seconds": 1.5}})
    ran = tidelog("status", topic)
    assert ran.code == 0 and ran.out.splitlines()[1].split() == ["query", topic, "running", "12", "-", "3", "1.5", "-"]
    fault = {"message": "ValueError: no", "file": "shop.py", "line": 7}
    reporter.tell({"state": "failed", "error": fault}, at_once=True)
    ran = tidelog("status", topic)
    assert ran.code == 1 and "ValueError: no (shop.py:7)" in ran.out
    reporter.tell({"state": "paused"}, at_once=True)
    assert tidelog("status", topic).code == 0, "somebody has told it to"


@proves("P3", "F1")
def test_the_lag_of_a_query_that_has_ended_is_of_now(
    cluster: Cluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    at, group = TopicPartition(topic, 0), f"tidelog.{topic}"
    topics.create(cluster, topic, partitions=1)
    with Producer(cluster) as producer:
        for _ in range(3):
            producer.send(topic, b"{}")
    groups.commit(cluster, group, {at: 1})
    reporter = Reporter(cluster, "query", topic)

    def lag(state: str) -> int:
        reporter.tell({"state": state, "group": group, "lag": {"records": 0, "seconds": 0.0}}, at_once=True)
        status.run([topic, "--json", "--bootstrap", str(cluster.bootstrap[0])])
        return int(json.loads(capsys.readouterr().out)[0]["lag"]["records"])

    assert {state: lag(state) for state in ("running", "stopped", "failed")} == {
        "running": 0,
        "stopped": 2,
        "failed": 2,
    }


@proves("P3", "F1")
def test_status_shows_a_crash_loop_the_watermark_and_what_is_lost(
    tidelog: Command, cluster: Cluster, topic: str
) -> None:
    told = {
        "state": "retrying",
        "restarts": 7,
        "error": {"message": "Disconnected: away"},
        "next_try_ms": 1_800_000_000_000,
        "watermark_ms": 1_700_000_000_000,
        "late_rows": 3,
        "held": {"enrich": 2, "spark stateStoreSave": 3},
        "left_out": {"orders": {"it is not JSON": 2, "passed": 1}},
    }
    Reporter(cluster, "query", topic).tell(told, at_once=True)
    ran = tidelog("status", topic)
    header, row = ran.out.splitlines()[:2]
    assert ran.code == 1
    assert header.split()[9:] == ["S", "WATERMARK", "HELD", "LATE", "LEFT", "OUT", "RESTARTS", "NEXT", "TRY", "ERROR"]
    lost = ["2023-11-14T22:13:20Z", "5", "3", "3", "7", "2027-01-15T08:00:00Z", "Disconnected:", "away"]
    assert row.split()[-8:] == lost
    (said,) = json.loads(tidelog("status", topic, "--json").out)
    assert (said["state"], said["restarts"], said["next_try_ms"]) == ("retrying", 7, 1_800_000_000_000)


@proves("P1", "command_line")
def test_pass_names_a_record_of_an_input_that_is_there(tidelog: Command, cluster: Cluster, topic: str) -> None:
    ensure_catalog(cluster)
    Editor(cluster, topic).write(Derived(f"{topic}-out", "shop", f"{topic}-out", f"shop.{topic}-out", (topic,)))
    with Producer(cluster) as producer:
        producer.send(topic, b"bad", partition=0)
    out = f"{topic}-out"
    ran = tidelog.ok("pass", out, f"{topic}:0:0")
    assert ran.out == f"{out} passes {topic}:0:0; a query that has failed goes on by `tidelog resume shop.{out}`\n"
    assert "passes already" in tidelog.ok("pass", out, f"{topic}:0:0").out
    assert tidelog.ok("pass", out).out == f"{topic}:0:0\n"
    for wrong, said in (
        (f"{topic}:0:1", f"is not in {topic}[0]: it begins at 0, and its next record will have offset 1"),
        (f"{topic}:99:0", "does not have a partition 99"),
        ("other:0:0", f"does not read topic other; it reads {topic}"),
        (f"{topic}:0", "write TOPIC:PARTITION:OFFSET"),
    ):
        ran = tidelog("pass", out, wrong)
        assert ran.code == 2 and said in ran.err, ran.err
    assert "does not exist" in tidelog("pass", f"{topic}-nothing", f"{topic}:0:0").err


@proves("P3", "F1", "command_line")
def test_a_part_is_told_to_pause_resume_or_stop_by_its_name_and_its_kind_where_that_is_not_enough(
    tidelog: Command, cluster: Cluster, topic: str
) -> None:
    told = Commands(cluster)
    Reporter(cluster, "query", topic).tell({"state": "running"})
    told.first()
    for name in ("pause", "resume", "stop"):
        assert tidelog.ok(name, topic).out == f"query {topic} is told to {name}\n"
    Reporter(cluster, "app", topic).tell({"state": "running"})
    both = tidelog("pause", topic)
    assert (
        both.code == 2 and f"parts of several kinds are called {topic!r}: app, query; say which by --kind" in both.err
    )
    tidelog.ok("pause", topic, "--kind", "app")
    found = [(one.kind, one.command) for one in told.next() if one.name == topic]
    assert found == [("query", "pause"), ("query", "resume"), ("query", "stop"), ("app", "pause")]
    assert "is of kind 'broker'; there is app, query" in tidelog("stop", topic, "--kind", "broker").err
    assert "no part is called" in tidelog("stop", f"{topic}-nothing").err


@proves("P3", "command_line")
@pytest.mark.parametrize(
    ("state", "ended"), [("failed", True), ("running", True), ("stopped", False), ("paused", False)]
)
def test_a_part_that_ended_by_a_fault_is_shown_no_more_once_it_is_told_to_stop(
    tidelog: Command, cluster: Cluster, topic: str, state: str, ended: bool
) -> None:
    long_ago = int(time.time() * 1000) - SILENT_MS - 1
    Reporter(cluster, "capture", topic).tell({"state": state, "at_ms": long_ago})
    said = "does not run; `tidelog status` shows it no more" if ended else "is told to stop"
    assert tidelog.ok("stop", topic).out == f"capture {topic} {said}\n"
    assert (topic in {one.name for one in read_status(cluster)}) is not ended
    Reporter(cluster, "capture", topic).tell({"state": "failed"})
    assert "is told to stop" in tidelog.ok("stop", topic).out, "it told that just now, and may be there"


@proves("P3")
def test_a_run_warns_of_another_that_has_told_of_itself_a_moment_ago(cluster: Cluster, topic: str) -> None:
    app = App(topic)
    app.stream("orders")
    app.view("revenue", key="product")(lambda orders: orders)
    graph, said = graph_of(app), StringIO()
    warn_of_another(Logger(said), cluster, graph)
    assert said.getvalue() == ""
    other = Reporter(cluster, "app", topic)
    other.tell({"state": "running", "pid": 7, "parts": {f"query {topic}.revenue": "running"}})
    warn_of_another(Logger(said), cluster, graph)
    assert (
        f"WARNING app {topic} may be run by another process: if that is alive, stop it first pid=7" in said.getvalue()
    )
    said.truncate(0)
    other.tell({"state": "stopped", "pid": 7, "parts": {f"query {topic}.revenue": "stopped"}}, at_once=True)
    warn_of_another(Logger(said), cluster, graph)
    assert said.getvalue() == ""


@proves("P3", "command_line")
def test_the_command_warns_of_another_run_before_it_starts_spark(
    tidelog_broker: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_spark(*_: object) -> None:
        raise UsageError("no Spark here")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(running, "session_of", no_spark)
    monkeypatch.setattr(run, "stop_on_signals", lambda *_: Event())
    with Cluster(tidelog_broker.bootstrap) as cluster:
        topics.create(cluster, "orders", partitions=1)
        told = {"state": "running", "pid": 7, "parts": {"query shop.revenue": "running"}}
        Reporter(cluster, "app", "shop").tell(told)
    assert main(["run", SHOP, "--bootstrap", tidelog_broker.bootstrap]) == 2
    warned, starting, refused = capsys.readouterr().err.splitlines()
    assert "WARNING app shop may be run by another process: if that is alive, stop it first pid=7" in warned
    assert STARTING_SPARK in starting and "no Spark here" in refused


@proves("P1", "D7")
def test_a_run_says_how_its_views_are_read_by_where_the_broker_serves_http() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for said, url in ((f"127.0.0.1:{port}", f"http://127.0.0.1:{port}"), ("-", None), ("127.0.0.1:0", None)):
        with Broker(settings={"tidelog.http.listener": said}) as broker, Cluster(broker.bootstrap) as cluster:
            assert http_of(cluster) == url
    assert rows_at("http://127.0.0.1:8642", "revenue") == "http://127.0.0.1:8642/views/revenue"
    assert rows_at(None, "revenue") == "tidelog views rows revenue"
