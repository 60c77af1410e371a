"""Checkpoints and logs that do not come from one backup: what may go on does, what would leave rows out is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipelines.app.driven import Driven, make_topic, produce
from proving import proves
from tidelog.broker.backup import manifest
from tidelog.broker.embedded import Broker
from tidelog.cli import backup, restore
from tidelog.client.cluster import Cluster
from tidelog.client.transactions import Transactions
from tidelog.control.marks import read_mark
from tidelog.errors import LostCheckpoint
from tidelog.pipelines.loading import load_app, travelling_whole

PROGRAM = Path(__file__).with_name("backed_up_app.py")
QUIET = {"tidelog.log.level": "ERROR"}


@contextmanager
def driven(data: Path, checkpoints: Path, spark: SparkSession) -> Iterator[Driven]:
    app = load_app(str(PROGRAM))
    travelling_whole(app)
    with Broker(data, settings=QUIET) as broker, Cluster(broker.bootstrap) as cluster:
        made = Driven(app, spark, cluster, broker.bootstrap, checkpoints)
        made.settings = replace(made.settings, checkpoints=str(checkpoints))
        yield made


def order(app: Driven, first: int, count: int) -> None:
    rows = [{"id": n, "product": f"p{n % 3}", "amount": n} for n in range(first, first + count)]
    produce(app.cluster, "orders", rows, key=["all"] * count)  # one partition, so that offsets are counted easily


def is_the_batch_query(app: Driven, view: str) -> bool:
    return app.said(view, app.view(view)) == app.said(view, app.batch(view))


@proves("P3", "F2")
@pytest.mark.slow
def test_a_checkpoint_that_is_newer_than_its_log_is_refused_and_the_one_of_the_backup_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    data, checkpoints, saved = tmp_path / "data", tmp_path / "checkpoints", tmp_path / "saved"
    with driven(data, checkpoints, spark) as app:
        make_topic(app.cluster, "orders", 1)
        order(app, 0, 10)
        app.step("revenue")
        places = ["--app", str(PROGRAM), "--checkpoints", str(checkpoints), "--store", app.settings.store or ""]
        assert backup.run([str(saved), "--data", str(data), *places]) == 0
        order(app, 10, 10)
        app.step("revenue")
    assert restore.run([str(saved), "--data", str(tmp_path / "older")]) == 0
    with driven(tmp_path / "older", checkpoints, spark) as app:
        order(app, 100, 25)  # the log is longer again than it was
        with pytest.raises(LostCheckpoint, match="is newer than the log") as refused:
            app.step("revenue")
        assert "tidelog rebuild" in str(refused.value)
        mark = read_mark(app.cluster, "revenue.v1")
        assert mark is not None and sum(mark.sources.offsets.values()) == 10, "nothing was written"
    both = ["--data", str(tmp_path / "whole"), "--app-folder", str(tmp_path / "app")]
    assert restore.run([str(saved), *both]) == 0
    with driven(tmp_path / "whole", tmp_path / "app" / "tidelog-checkpoints", spark) as app:
        order(app, 100, 25)
        app.step("revenue")
        assert is_the_batch_query(app, "revenue")


@proves("P3", "F1")
@pytest.mark.full
def test_a_checkpoint_with_a_fold_goes_on_where_it_was_moved_to(spark: SparkSession, tmp_path: Path) -> None:
    data, before, after = tmp_path / "data", tmp_path / "before", tmp_path / "after"
    with driven(data, before, spark) as app:
        make_topic(app.cluster, "orders", 1)
        order(app, 0, 10)
        app.step("sold")
    before.rename(after)
    with driven(data, after, spark) as app:
        order(app, 10, 10)
        app.step("sold")
        assert is_the_batch_query(app, "sold")
    for metadata in (after / "shop/sold.v1/state/0/_metadata/v2").glob("[0-9]*"):
        (path,) = json.loads(metadata.read_text().partition("\n")[2])["stateStoreInfo"][0]["stateSchemaFilePaths"]
        assert path.startswith(f"file:{after}/shop/sold.v1/state/")


@proves("P3")
@pytest.mark.full
def test_an_app_and_a_broker_that_have_stopped_are_backed_up_too(spark: SparkSession, tmp_path: Path) -> None:
    data, checkpoints, saved = tmp_path / "data", tmp_path / "checkpoints", tmp_path / "saved"
    with driven(data, checkpoints, spark) as app:
        make_topic(app.cluster, "orders", 1)
        order(app, 0, 10)
        app.step("sold")
        app.forget_commits("sold")  # as if it had been killed: its last micro-batch is run again
    places = ["--app", str(PROGRAM), "--checkpoints", str(checkpoints)]
    assert backup.run([str(saved), "--data", str(data), *places]) == 0
    both = ["--data", str(tmp_path / "new" / "data"), "--app-folder", str(tmp_path / "new")]
    assert restore.run([str(saved), *both]) == 0
    with driven(tmp_path / "new" / "data", tmp_path / "new" / "tidelog-checkpoints", spark) as app:
        order(app, 10, 10)
        app.step("sold")
        assert is_the_batch_query(app, "sold")
        assert len(app.envelopes("sold")) == 6, "three rows, each changed once"


@proves("P3", "F2")
@pytest.mark.slow
@pytest.mark.parametrize("when", ["before the end", pytest.param("behind it", marks=pytest.mark.full)])
def test_a_backup_in_the_middle_of_a_commit_goes_on_exactly_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The mark is written, and its transaction open; or it is ended, and Spark has not noted that yet."""
    data, checkpoints, saved = tmp_path / "data", tmp_path / "checkpoints", tmp_path / "saved"
    end = Transactions._end
    is_due = False

    def ending(self: Transactions, *, committed: bool) -> None:
        is_it = is_due and committed and self.transactional_id == "tidelog.sink.sold.v1"
        if is_it and when == "before the end":
            assert backup.run(words) == 0
        end(self, committed=committed)
        if is_it and when == "behind it":
            assert backup.run(words) == 0

    monkeypatch.setattr(Transactions, "_end", ending)
    words = [str(saved), "--data", str(data), "--app", str(PROGRAM), "--checkpoints", str(checkpoints)]
    with driven(data, checkpoints, spark) as app:
        make_topic(app.cluster, "orders", 1)
        order(app, 0, 10)
        app.step("sold")
        order(app, 10, 10)
        is_due = True
        app.step("sold")
        is_due = False
    about = manifest.read(str(saved)).apps
    assert about is not None
    (query,) = about.about["apps"][0]["queries"]
    assert (query["batch"], query["again"]) == (1, True)
    both = ["--data", str(tmp_path / "new" / "data"), "--app-folder", str(tmp_path / "new")]
    assert restore.run([str(saved), *both]) == 0
    with driven(tmp_path / "new" / "data", tmp_path / "new" / "tidelog-checkpoints", spark) as app:
        before = read_mark(app.cluster, "sold.v1")
        assert before is not None and before.batch_id == (0 if when == "before the end" else 1)
        app.step("sold")
        assert is_the_batch_query(app, "sold") and len(app.envelopes("sold")) == 6, "three rows, each changed once"
        order(app, 20, 10)
        app.step("sold")
        assert is_the_batch_query(app, "sold")
