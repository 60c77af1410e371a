"""Several views in one store, each with its applier: what goes wrong with one is said by its name, and is no other's.

And a store that has no room: it is said by name, nothing is lost, and it goes on when there is room.
"""

from __future__ import annotations

import resource
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from contract import TIMEOUT_S
from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.control.health import told_state
from tidelog.control.status import read_status, send_command
from tidelog.errors import DiskFullError
from tidelog.testing.broker import TestBroker
from tidelog.views.changes import NoChange
from tidelog.views.stores.sqlite import SqliteStore
from views.applying import applying, shown, until, until_applied
from views.stores.applied import Applied, put, row, stretch
from views.writing import Pipeline, declare_view

NAMES = ("orders", "revenue", "stock")
REFUSED = """CREATE TRIGGER refused BEFORE INSERT ON _tidelog_revenue_v1 BEGIN SELECT RAISE(ABORT, 'not now'); END"""


@pytest.fixture
def pipelines(cluster: Cluster) -> dict[str, Pipeline]:
    return {name: Pipeline(cluster, declare_view(cluster, name).generations[0]) for name in NAMES}


@proves("P3", "F3", "eo.20")
def test_a_view_that_cannot_be_applied_is_said_by_name_and_holds_up_no_other(
    tidelog_broker: TestBroker, pipelines: dict[str, Pipeline], tmp_path: Path, url: str
) -> None:
    with ExitStack() as stack:
        running = {name: stack.enter_context(applying(tidelog_broker.bootstrap, url, name)) for name in NAMES}
        for name, pipeline in pipelines.items():
            until_applied(url, pipeline.batch({"tea": 1}).ends, name)
        somebody = stack.enter_context(sqlite3.connect(tmp_path / "views.db", isolation_level=None))
        somebody.execute(REFUSED)
        ends = {name: pipeline.batch({"tea": 2, "rum": 2}).ends for name, pipeline in pipelines.items()}
        for name in ("orders", "stock"):
            assert until_applied(url, ends[name], name).rows == {"tea": 2, "rum": 2}
        until(lambda: running["revenue"].said != [])
        assert running["revenue"].said == [f"view revenue: {tmp_path}/views.db: not now"]
        assert running["orders"].said == running["stock"].said == []
        assert shown(url, "revenue").rows == {"tea": 1}  # type: ignore[union-attr]
        somebody.execute("DROP TRIGGER refused")
        assert until_applied(url, ends["revenue"], "revenue").rows == {"tea": 2, "rum": 2}


@proves("P3", "F3", "eo.20")
def test_a_view_whose_topic_has_rows_that_are_none_ends_alone(
    tidelog_broker: TestBroker, pipelines: dict[str, Pipeline], url: str
) -> None:
    with ExitStack() as stack:
        running = {name: stack.enter_context(applying(tidelog_broker.bootstrap, url, name)) for name in NAMES}
        tidelog_broker.produce("revenue.v1", [("{}", "somebody else's")])
        ends = {name: pipeline.batch({"tea": 2}).ends for name, pipeline in pipelines.items()}
        running["revenue"].thread.join(TIMEOUT_S)
        assert isinstance(running["revenue"].error, NoChange) and "revenue.v1" in str(running["revenue"].error)
        for name in ("orders", "stock"):
            assert until_applied(url, ends[name], name).rows == {"tea": 2}
            assert running[name].error is None


# No room --------------------------------------------------------------------------------------------------------------


@proves("P3", "F3", "eo.16")
def test_a_transaction_that_the_file_has_no_room_for_leaves_all_as_it_was(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "views.db", "revenue")
    one = Applied(store)
    one.put(row("tea"))
    assert store._opened is not None
    store._opened.execute("PRAGMA max_page_count = 1")  # as many as it has
    many = [put(one.declared, row(f"product {number}"), number + 2) for number in range(1000)]
    with pytest.raises(DiskFullError, match=f"^no room for {tmp_path}/views.db: database or disk is full"):
        store.apply(1, stretch(many, 1002), before=one.before)
    one.is_equal()
    store.apply(1, stretch(many, 1002), before=one.before)
    store.close()


@pytest.fixture
def process(tidelog_broker: TestBroker, url: str) -> Iterator[subprocess.Popen[str]]:
    """`tidelog apply revenue`."""
    words = ["apply", "revenue", "--store", url, "--bootstrap", tidelog_broker.bootstrap]
    running = subprocess.Popen([sys.executable, "-m", "tidelog", *words], stderr=subprocess.PIPE, text=True)
    yield running
    running.kill()
    running.communicate()


@proves("P3", "F3", "eo.16")
@pytest.mark.real_interpreter
def test_an_applier_whose_store_has_no_room_says_so_keeps_its_place_and_goes_on_when_there_is(
    cluster: Cluster, pipelines: dict[str, Pipeline], process: subprocess.Popen[str], tmp_path: Path, url: str
) -> None:
    """A limit on the size of files stands for a disk that is full: it needs no other disk, and nobody's rights."""
    pipeline, said = pipelines["revenue"], process.stderr
    assert said is not None
    first = until_applied(url, pipeline.batch({"tea": 1}).ends)
    _, most = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1024, most))
    last = pipeline.batch({f"product {number}": number for number in range(500)})
    line = said.readline()
    assert line.startswith(f"tidelog: view revenue: {tmp_path}/views.db: disk I/O error; is a quota used up"), line
    assert shown(url) == first
    until(lambda: any("disk I/O error" in str(one.figures.get("error")) for one in read_status(cluster)))
    (report,) = [one for one in read_status(cluster) if one.kind == "applier"]
    assert report.name.startswith("revenue.sqlite-views-")
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most, most))
    assert len(until_applied(url, last.ends).rows) == 501
    while "view revenue is applied again" not in said.readline():
        pass
    assert process.poll() is None


def applier_state(cluster: Cluster) -> str | None:
    return next((told_state(one.figures) for one in read_status(cluster) if one.kind == "applier"), None)


@proves("P3", "eo.16")
def test_an_applier_of_its_own_is_paused_resumed_and_stopped_by_commands(
    cluster: Cluster, pipelines: dict[str, Pipeline], process: subprocess.Popen[str], url: str
) -> None:
    pipeline = pipelines["revenue"]
    first = until_applied(url, pipeline.batch({"tea": 1}).ends)
    until(lambda: applier_state(cluster) == "running")
    (report,) = [one for one in read_status(cluster) if one.kind == "applier"]
    send_command(cluster, report.kind, report.name, "pause")
    until(lambda: applier_state(cluster) == "paused")
    last = pipeline.batch({"cup": 2})
    assert shown(url) == first, "nothing is applied while it is paused"
    send_command(cluster, report.kind, report.name, "resume")
    assert len(until_applied(url, last.ends).rows) == 2
    send_command(cluster, report.kind, report.name, "stop")
    assert process.wait(TIMEOUT_S) == 0
    assert applier_state(cluster) == "stopped"
