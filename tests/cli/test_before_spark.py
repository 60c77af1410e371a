"""What `tidelog run` and `tidelog rebuild` refuse before they start Spark: by file, this machine and the catalog.

Every test would start Spark where the command does not refuse: a session that cannot be had says so.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from proving import proves
from tidelog.cli import rebuild, run
from tidelog.cli.main import main
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.control.catalog import Editor, View, ensure_catalog
from tidelog.errors import UsageError
from tidelog.pipelines import running
from tidelog.pipelines.graph import graph_of
from tidelog.pipelines.loading import load_app
from tidelog.pipelines.locks import OutputLocks
from tidelog.schema.declaration import declare
from tidelog.testing.broker import TestBroker
from tidelog.views import lifecycle
from views.writing import Pipeline, declare_view

PROGRAM = """
from tidelog import App

app = App("shop")
app.stream("orders", value="id long, product string")
app.view("revenue", key="product")(lambda orders: orders.where("id > LIMIT"))
app.view("ranking", key="product")(lambda revenue: revenue)
app.topic("big-orders", key="id")(lambda orders: orders)
"""
COLUMNS = declare({"id": "long", "product": "string"}, ("product",))
NO_SPARK = "no Spark here"


@pytest.fixture
def bootstrap(tidelog_broker: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Of a broker with the topic; this process stands in a folder of its own, and has no Spark."""

    def no_spark(*_: object) -> None:
        raise UsageError(NO_SPARK)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(running, "session_of", no_spark)
    for one in (run, rebuild):
        monkeypatch.setattr(one, "stop_on_signals", lambda *_: Event())
    with Cluster(tidelog_broker.bootstrap) as cluster:
        topics.create(cluster, "orders", partitions=1)
        ensure_catalog(cluster)
    yield tidelog_broker.bootstrap


def shop(limit: int = 1, program: str = PROGRAM) -> str:
    Path("shop.py").write_text(program.replace("LIMIT", str(limit)))
    return "shop.py"


def built(bootstrap: str, file: str, app: str = "shop") -> None:
    """The catalog as a run of this file would leave it."""
    with Cluster(bootstrap) as cluster:
        for node in graph_of(load_app(file)).nodes:
            if node.output.kind == "view":
                inputs = [read.name for read in node.reads]
                view: View = lifecycle.new_view(node.name, app=app, inputs=inputs, stores=["sqlite:///shop.db"])
                Editor(cluster, node.name).write(lifecycle.begin(view, COLUMNS, node.fingerprint, 1))


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(list(words))
    return code, capsys.readouterr().err


@proves("P1", "command_line")
def test_a_topic_that_is_not_there_is_told_with_the_one_that_was_perhaps_meant(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = shop(program=PROGRAM.replace('"orders", value', '"orders", topic="oders", value'))
    code, said = told(capsys, "run", file, "--bootstrap", bootstrap)
    assert code == 2 and "shop.py:5: stream 'orders' reads topic 'oders', which is not there" in said
    assert "did you mean 'orders'? Or make it first: `tidelog topics create oders`" in said
    assert not Path("tidelog-checkpoints").exists(), "a command that is refused has made nothing"


@proves("P1", "command_line")
def test_it_is_told_of_an_output_with_partitions_of_its_own_and_of_a_batch_too(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    one = 'app.view("revenue", key="product", partitions=1)(lambda orders: orders)'
    program = (
        f'from tidelog import App\n\napp = App("shop")\napp.stream("orders", topic="oders", value="id long")\n{one}'
    )
    for more in ([], ["--batch"], ["--batch", "--show"]):
        code, said = told(capsys, "run", shop(program=program), "--bootstrap", bootstrap, *more)
        assert code == 2 and "stream 'orders' reads topic 'oders', which is not there; did you mean 'orders'?" in said
        assert NO_SPARK not in said


@proves("P1", "command_line")
def test_a_batch_of_what_a_query_keeps_up_to_date_is_refused(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", shop(), "--only", "revenue", "--bootstrap", bootstrap, "--batch"]
    assert NO_SPARK in told(capsys, *words)[1]
    with Cluster(bootstrap) as cluster:
        Pipeline(cluster, declare_view(cluster, "revenue").generations[0]).batch({"tea": 1})
    code, said = told(capsys, *words)
    assert code == 2 and "view revenue is kept up to date by a query; --show shows what the batch gives" in said
    assert NO_SPARK not in said and NO_SPARK in told(capsys, *words, "--show")[1]


@proves("P1", "command_line")
def test_a_folder_that_cannot_be_written_to_is_told_with_its_name(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("taken").write_text("")
    code, said = told(capsys, "run", shop(), "--bootstrap", bootstrap, "--checkpoints", "taken/here")
    assert (
        code == 1 and f"checkpoints cannot be written to {Path.cwd()}/taken/here: {Path.cwd()}/taken is a file" in said
    )
    code, said = told(capsys, "run", shop(), "--bootstrap", bootstrap, "--store", "sqlite:///taken/shop.db")
    assert code == 2 and "shop.py:6: view 'revenue' cannot be written to sqlite:///" in said and "is a file;" in said
    code, said = told(capsys, "rebuild", "revenue", "--app", shop(), "--bootstrap", bootstrap, "--checkpoints", "taken")
    assert code == 1 and "checkpoints cannot be written to " in said


@proves("P1", "command_line")
def test_a_view_that_stays_elsewhere_needs_no_default_store(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("tidelog-views").write_text("")
    built(bootstrap, shop())
    assert NO_SPARK in told(capsys, "run", shop(), "--bootstrap", bootstrap)[1]


@proves("P1", "command_line")
def test_a_port_that_spark_must_have_and_that_is_taken_is_told(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ["run", shop(), "--bootstrap", bootstrap, "--set", f"spark.driver.port={port}"]
        assert NO_SPARK in told(capsys, *words)[1], "Spark would take the next one"
        code, said = told(capsys, *words, "--set", "spark.port.maxRetries=0")
    assert code == 1 and f"port {port} of spark.driver.port is taken by another process" in said


@proves("eo.26", "P1", "command_line")
def test_a_changed_view_and_who_reads_it_are_told_and_where_nothing_is_left_it_ends(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    built(bootstrap, shop(1))
    words = ["run", shop(2), "--bootstrap", bootstrap]
    code, said = told(capsys, *words)
    assert "WARNING view revenue will not run" in said and "WARNING view ranking will not run" in said
    assert "`tidelog rebuild revenue --app shop.py` builds a new one beside it" in said
    assert "`tidelog rebuild revenue --app shop.py --with-readers` rebuilds both" in said
    assert NO_SPARK in said, "the topic runs"
    code, said = told(capsys, *words, "--only", "revenue")
    assert code == 2 and "shop.py:6: view revenue is declared otherwise than generation 1 was built" in said
    assert NO_SPARK not in said
    assert NO_SPARK in told(capsys, *words, "--only", "revenue", "--grown", "revenue")[1], "that only Spark can tell"


@proves("eo.26", "P1", "command_line")
def test_a_view_of_another_app_is_told(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    built(bootstrap, shop(), app="other")
    code, said = told(capsys, "run", shop(), "--bootstrap", bootstrap)
    assert code == 2 and "view 'revenue' belongs to app other; call it otherwise" in said and NO_SPARK not in said


@proves("eo.26", "P1", "command_line")
def test_a_table_that_begins_with_a_view_that_is_not_there_is_told(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    built(bootstrap, shop())
    seeded = 'app.table("r", key="id", value="id long", start_from="sqlite:///shop.db#revenues")'
    file = shop(program=f'{PROGRAM}{seeded}\napp.view("mine", key="id")(lambda r: r)\n')
    code, said = told(capsys, "run", file, "--only", "mine", "--bootstrap", bootstrap)
    assert (
        code == 2
        and "table 'r' begins with view 'revenues', which is not in the catalog; did you mean 'revenue'" in said
    )


@proves("E3", "command_line")
def test_a_rebuild_that_readers_are_in_the_way_of_is_told(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["rebuild", "revenue", "--app", shop(), "--bootstrap", bootstrap]
    assert "view revenue is not in the catalog" in told(capsys, *words)[1]
    built(bootstrap, shop())
    code, said = told(capsys, *words)
    assert code == 2 and "view ranking reads view revenue, generation 1" in said and "--with-readers" in said
    assert NO_SPARK not in said
    assert NO_SPARK in told(capsys, *words, "--with-readers")[1]


@proves("P3", "command_line")
def test_a_second_run_of_an_output_is_refused_and_of_another_it_is_not(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    held = OutputLocks(Path("tidelog-checkpoints/shop"), ["revenue"])
    assert held.take() is None
    words = ["run", shop(), "--bootstrap", bootstrap]
    code, said = told(capsys, *words)
    assert (
        code == 1 and f"revenue of app shop is run by process {os.getpid()}; stop that first, or give --standby" in said
    )
    assert NO_SPARK in told(capsys, *words, "--only", "big-orders")[1]
    held.release()
    assert NO_SPARK in told(capsys, *words)[1]
    assert NO_SPARK in told(capsys, *words, "--standby")[1], "nobody is waited for"
    assert NO_SPARK in told(capsys, *words, "--checkpoints", "hdfs://host/checkpoints")[1], "fencing is what is left"
    code, said = told(capsys, *words, "--checkpoints", "hdfs://host/checkpoints", "--standby")
    assert code == 2 and "--standby needs checkpoints on this machine" in said


@proves("P1", "command_line")
def test_a_plan_compares_with_the_catalog_where_a_broker_is_named(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    built(bootstrap, shop(1))
    words = ["plan", shop(2), "--bootstrap", bootstrap]
    assert main(words) == 1
    shown = [line.strip() for line in capsys.readouterr().out.splitlines() if "catalog" in line]
    assert shown[0].startswith(
        "catalog would not run: shop.py:6: view revenue is declared otherwise than generation 1 was built"
    )
    assert shown[1].startswith("catalog would not run: shop.py:7: view ranking reads view revenue, which has changed")
    assert shown[2] == "catalog new"
    assert main(["plan", shop(1), "--bootstrap", bootstrap, "--json"]) == 0
    told_of = {one["name"]: one["catalog"] for one in json.loads(capsys.readouterr().out)}
    there = {"is_there": True, "generation": 1, "would_not_run": None, "state_partitions": None}
    assert told_of["ranking"] == there
    assert told_of["big-orders"] == {**there, "is_there": False, "generation": None}
    kept = Path("tidelog-checkpoints/shop/ranking.v1")
    (kept / "state").mkdir(parents=True)
    (kept / "offsets").mkdir()
    (kept / "offsets" / "0").write_text('v1\n{"conf":{"spark.sql.shuffle.partitions":"2"}}\n{}')
    assert main(["plan", shop(1), "--bootstrap", bootstrap]) == 0
    assert "state in 2 partitions: as many tasks; `tidelog rebuild --parallelism N`" in capsys.readouterr().out
    assert main(["plan", shop(2)]) == 0 and "catalog" not in capsys.readouterr().out, "without a broker it is not asked"
