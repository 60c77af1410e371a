"""`tidelog sql` as users run it: formats, the prompt, following, and what it refuses."""

from __future__ import annotations

import csv
import json
import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from against.patience import eventually
from cli.command import Command, on_a_terminal
from contract import Broker
from proving import proves
from tidelog.cli import options as command
from tidelog.cli import sql
from tidelog.cli.main import FAILED, USAGE, failed
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer
from tidelog.control.catalog import Editor
from tidelog.control.starting import tell_starting
from tidelog.errors import NotShown, UsageError
from tidelog.schema.declaration import Declaration, declare
from tidelog.views.changes import Change, Stretch
from tidelog.views.lifecycle import begin, new_view
from tidelog.views.stores.opening import open_store


@pytest.fixture
def orders(cluster: Cluster, topic: str) -> str:
    topics.create(cluster, topic, partitions=2)
    with Producer(cluster) as producer:
        for n in range(10):
            value = {"id": n, "product": f"p{n % 2}", "amount": n * 1.5}
            producer.send(topic, json.dumps(value).encode(), key=b"k%d" % n, partition=n % 2)
    return topic


@proves("sql", "T10")
def test_rows_are_json_lines_where_nobody_watches(tidelog: Command, orders: str) -> None:
    ran = tidelog.ok("sql", f'select product, sum(amount) total from "{orders}" group by 1 order by 1')
    assert [json.loads(line) for line in ran.lines] == [
        {"product": "p0", "total": 30.0},
        {"product": "p1", "total": 37.5},
    ]
    assert ran.err == ""


@proves("sql")
def test_csv_and_a_table_have_the_same_rows(tidelog: Command, orders: str) -> None:
    query = f'select id, product, null "no", headers from "{orders}" order by id limit 2'
    rows = list(csv.reader(tidelog.ok("sql", query, "--format", "csv").lines))
    assert rows == [["id", "product", "no", "headers"], ["0", "p0", "", "[]"], ["1", "p1", "", "[]"]]
    table = tidelog.ok("sql", query, "--format", "table").lines
    assert [line.split() for line in table[1:]] == [["0", "p0", "(null)", "[]"], ["1", "p1", "(null)", "[]"]]
    assert tidelog.ok("sql", f"{query} offset 20", "--format", "csv").lines == ["id,product,no,headers"]


@proves("sql")
def test_a_terminal_gets_a_table(tidelog: Command, orders: str) -> None:
    shown = on_a_terminal(tidelog, "sql", f'select id, product from "{orders}" order by id limit 1', NO_COLOR="1")
    assert [line.split() for line in shown.splitlines()] == [["id", "product"], ["0", "p0"]]


@proves("sql", "T7")
def test_places_bound_what_is_read(tidelog: Command, orders: str) -> None:
    query = f'select count(*) n from "{orders}"'
    assert tidelog.ok("sql", query, "--from", "1", "--to", "3").json == {"n": 4}
    assert tidelog.ok("sql", query, "--from=-1").json == {"n": 2}
    assert tidelog.ok("sql", query, "--from", "1h").json == {"n": 10}
    assert tidelog.ok("sql", query, "--latest").json == {"n": 10}


@proves("sql")
def test_a_question_comes_by_standard_input_too(tidelog: Command, orders: str) -> None:
    assert tidelog.ok("sql", stdin=f'select count(*) n from "{orders}";\n').json == {"n": 10}


@proves("sql")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("select 1; select 2",), "2 statements"),
        (("drop table x",), "only questions are taken"),
        (("select * from nowhere_at_all",), "no topic or view nowhere_at_all"),
        (("select offset from x",), 'written "offset", in quotes'),
        (("select sum(a) from x", "--follow"), "cannot be followed: sum is of all rows"),
        (("select 1", "--json", "--format", "csv"), "not both"),
        (("  ",), "the query is missing"),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_code_2(tidelog: Command, words: tuple[str, ...], said: str) -> None:
    ran = tidelog("sql", *words)
    assert (ran.code, len(ran.err.splitlines())) == (2, 1)
    assert said in ran.err


@proves("sql")
def test_no_broker_is_exit_code_3(nowhere: Command) -> None:
    assert nowhere("sql", "select * from orders").code == 3


@proves("sql")
def test_a_value_that_does_not_fit_is_said_once_beside_the_rows(tidelog: Command, cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic)
    with Producer(cluster) as producer:
        for value in [*(b'{"n": %d}' % n for n in range(30)), b"{broken"]:
            producer.send(topic, value)
    ran = tidelog.ok("sql", f'select count(n) n from "{topic}"')
    assert ran.json == {"n": 30}
    assert "1 of the values" in ran.err and "offset 30" in ran.err and len(ran.err.splitlines()) == 1
    assert tidelog("sql", f'select count(n) n from "{topic}"', "--strict").code == 1


@proves("sql", "T2")
def test_following_shows_rows_as_they_come_until_it_is_interrupted(
    tidelog: Command, cluster: Cluster, topic: str
) -> None:
    topics.create(cluster, topic, partitions=2)
    query = f'select id, amount from "{topic}" where amount > 100'
    words = ("sql", query, "--follow", "--from", "earliest")
    with tidelog.start(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        with Producer(cluster) as producer:  # the topic is empty: its fields are known with the first record
            for n in (1, 101, 2, 102):
                producer.send(topic, json.dumps({"id": n, "amount": n}).encode(), partition=0)
        assert [json.loads(process.stdout.readline())["id"] for _ in range(2)] == [101, 102]
        with Producer(cluster) as producer:
            producer.send(topic, b'{"id": 200, "amount": 200}', partition=1)
        assert json.loads(process.stdout.readline()) == {"id": 200, "amount": 200}
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == b""
        assert process.stderr.read() == b""
    assert process.returncode == 130


@proves("sql")
def test_the_prompt_answers_lists_tables_goes_on_after_a_fault_and_quits(tidelog: Command, orders: str) -> None:
    ours, theirs = pty.openpty()
    settings = {**tidelog.environment, "TERM": "dumb", "NO_COLOR": "1"}
    with subprocess.Popen(tidelog.line("sql"), stdin=theirs, stdout=theirs, stderr=theirs, env=settings) as process:
        os.close(theirs)
        lines = [".tables", "select nope;", "select count(*) + 4200 n", f'from "{orders}";', ".quit"]
        os.write(ours, "".join(f"{line}\n" for line in lines).encode())
        said = b""
        while True:
            try:
                chunk = os.read(ours, 4096)
            except OSError:
                break
            if not chunk:
                break
            said += chunk
    os.close(ours)
    text = said.decode()
    assert process.returncode == 0
    assert f"topic  {orders}" in text.replace("\r", "")
    assert "nope" in text and "4210" in text


@proves("sql")
def test_neither_pyarrow_nor_pandas_is_loaded_for_a_question(tidelog: Command, orders: str) -> None:
    program = (
        "import sys; from tidelog.cli.main import main;"
        f"main(['sql', 'select * from \"{orders}\" limit 1']);"
        "print(sorted({'pyarrow', 'pandas', 'numpy', 'duckdb'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", program], env=tidelog.environment, capture_output=True, text=True)
    assert ran.stdout.splitlines()[-1] == "['duckdb']", ran.stderr


@proves("sql")
def test_a_question_that_takes_long_is_interrupted(tidelog: Command, orders: str) -> None:
    endless = f'select count(*) from "{orders}", range(10000000) a, range(10000000) b where a.range + b.range > id'
    with tidelog.start("sql", endless, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        eventually(lambda: threads_of(process.pid) > 2)  # DuckDB works
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err) == (130, b"", b"")


def threads_of(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


@proves("sql", "P3")
def test_a_view_that_is_not_shown_yet_is_waited_for_and_then_no_wrong_usage(
    cluster: Cluster,
    broker: Broker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    declared = declare({"product": "string"}, ("product",))
    url = f"sqlite:///{tmp_path}/views.db"
    view = new_view("early", app="shop", inputs=[], stores=[url])
    Editor(cluster, "early").write(begin(view, declared, "plan", 1))
    topics.create(cluster, "early.v1")
    words = ["select product from early", "--bootstrap", broker.bootstrap, "--allow-store", url, "--format", "json"]
    options = command.parse(sql.parser(), words)
    with pytest.raises(NotShown) as early:
        sql.ask(options.query, options, patience_s=0.0)
    assert failed(early.value) == FAILED
    capsys.readouterr()
    rest = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: show(url, declared))
    monkeypatch.setattr(sql, "time", rest)  # it is shown while it is waited for
    sql.ask(options.query, options)
    said = capsys.readouterr()
    assert json.loads(said.out) == {"product": "tea"}
    assert said.err.count("; waiting for up to 60 s") == 1


@proves("sql", "P3")
def test_a_view_that_an_app_is_about_to_make_is_no_wrong_usage(cluster: Cluster, broker: Broker) -> None:
    """Spark takes seconds to start, and only then the catalog has the view."""
    words = ["select product from promised", "--bootstrap", broker.bootstrap]
    options = command.parse(sql.parser(), words)
    with tell_starting(cluster, "shop", ["promised"]):
        with pytest.raises(
            NotShown, match="promised is not there yet: app shop is starting; try again in 5 s"
        ) as early:
            sql.ask(options.query, options, patience_s=0.0)
        assert failed(early.value) == FAILED
    with pytest.raises(RuntimeError), tell_starting(cluster, "shop", ["promised"]):
        raise RuntimeError("it does not start")
    with pytest.raises(UsageError, match="no topic or view promised") as wrong:
        sql.ask(options.query, options, patience_s=0.0)
    assert failed(wrong.value) == USAGE


def show(url: str, declared: Declaration) -> None:
    with closing(open_store(url, "early")) as store:
        store.prepare(1, declared)
        changes = [Change(("tea",), {"product": "tea"}, None, TopicPartition("early.v1", 0), 0, 0)]
        store.apply(1, Stretch(changes, {TopicPartition("early.v1", 0): 1}, None), before={}, show=True)
