"""Stages in files: only beside the driver, only in a folder that is ours, gone after the commit, moved when the disk is
full; and a stage that is lost is never a lost row.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from proving import proves
from spark.sinking import (
    IN_FILES,
    IN_TOPIC,
    committed,
    connected,
    numbers_of,
    run,
    staged_numbers,
    up_to,
    writing_of,
)
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.errors import DataLoss
from tidelog.spark import stage_files
from tidelog.spark.commit import commit
from tidelog.spark.routing import Routed
from tidelog.spark.stage_files import LEFT_S, STALE_S, Beside, beside, driver_here, folder_of, local_folder, machine
from tidelog.spark.staging import Stage, stage
from tidelog.testing.broker import TestBroker

AT = TopicPartition("out", 0)


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    return tmp_path


@pytest.fixture
def cluster(tidelog_broker: TestBroker) -> Iterator[Cluster]:
    with Cluster(tidelog_broker.bootstrap) as made:
        topics.create(made, "out", partitions=3)
        yield made


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("tidelog-stages-*/*/*"))


def written(cluster: Cluster, batch_id: int, stages: list[Stage]) -> bool:
    return commit(cluster, writing_of("s", batch_id, "out"), stages, lambda: connected(cluster))


@proves("eo.8")
def test_only_a_task_on_the_drivers_machine_stages_in_files(cluster: Cluster, scratch: Path) -> None:
    driver = driver_here()
    assert driver is not None and driver.machine == machine()
    assert beside(driver, 3) == Beside(scratch, driver.run, 3)
    assert beside(driver._replace(machine="elsewhere"), 3) is None
    assert beside(None, 3) is None
    staged_numbers(cluster, "out", "s", numbers_of(0), limit=IN_TOPIC)
    assert files(scratch) == []
    stages = staged_numbers(cluster, "out", "s", numbers_of(0), limit=IN_FILES)
    assert [one.file for one in stages] == files(scratch) and len(stages) == 2
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in files(scratch))
    assert written(cluster, 0, stages)
    assert committed(cluster, "out") == up_to(1)
    assert files(scratch) == []


@proves("eo.8")
def test_the_folder_is_sparks_for_scratch_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/scratch/blockmgr-1-2,/other")
    assert local_folder() == Path("/scratch")
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    assert local_folder().is_dir()


@proves("eo.8")
def test_no_name_that_anybody_chose_is_part_of_a_path(scratch: Path) -> None:
    for name in ("../../etc", "/etc", "", "a/b", "n\0ul"):
        folder = folder_of(scratch, name, name)
        assert folder.parent.parent == scratch and folder.name.isalnum()
    assert folder_of(scratch, "one", "s") != folder_of(scratch, "two", "s")


@proves("eo.8")
def test_a_stage_whose_file_is_gone_or_changed_fails_the_micro_batch_and_the_next_try_writes_it(
    cluster: Cluster, scratch: Path
) -> None:
    def cut_short(path: Path) -> None:
        os.truncate(path, path.stat().st_size - 1)

    def change(path: Path) -> None:
        path.write_bytes(path.read_bytes()[:-1] + b"?")

    def link(path: Path) -> None:
        elsewhere = scratch / "elsewhere"
        path.replace(elsewhere)
        path.symlink_to(elsewhere)

    for spoil in (Path.unlink, cut_short, change, link):
        stages = staged_numbers(cluster, "out", "s", numbers_of(0), tasks=1, limit=IN_FILES)
        assert stages[0].file is not None
        spoil(stages[0].file)
        with pytest.raises(DataLoss, match="nothing was written"):
            written(cluster, 0, stages)
    assert committed(cluster, "out") == []
    assert run(cluster, "out", "s", 0, limit=IN_FILES)
    assert committed(cluster, "out") == up_to(1)
    assert files(scratch) == []


@proves("eo.8")
def test_a_commit_takes_the_files_of_its_micro_batch_and_of_those_before(cluster: Cluster, scratch: Path) -> None:
    def staged(batch_id: int, run: str = "run") -> Stage:
        rows = staged_numbers(cluster, "out", "s", numbers_of(batch_id), tasks=1)[0].inline
        return stage(cluster, rows, sink="s", limit=0, near=Beside(scratch, run, batch_id))

    left, mine, twin, later = staged(0, "killed"), staged(1), staged(1), staged(2)
    assert files(scratch) == sorted(one.file for one in (left, mine, twin, later) if one.file)
    assert written(cluster, 1, [mine])
    assert files(scratch) == [later.file]
    assert written(cluster, 2, [later])
    assert files(scratch) == [] and list(scratch.glob("tidelog-stages-*/*")) == []
    assert committed(cluster, "out") == numbers_of(1) + numbers_of(2)


@proves("eo.8")
def test_a_query_that_is_killed_again_and_again_does_not_fill_the_disk(cluster: Cluster, scratch: Path) -> None:
    def staged(run: str) -> Path:
        rows = staged_numbers(cluster, "out", "s", numbers_of(0), tasks=1)[0].inline
        path = stage(cluster, rows, sink="s", limit=0, near=Beside(scratch, run, 0)).file
        assert path is not None
        return path

    long_ago = time.time() - STALE_S - 60
    old, own, young = staged("killed"), staged("mine"), staged("just-killed")
    for path in (old, own):
        os.utime(path, (long_ago, long_ago))
    newest = staged("mine")
    assert files(scratch) == sorted([own, young, newest])


@proves("eo.8")
def test_a_commit_takes_what_a_killed_run_left_also_when_its_own_rows_are_few(cluster: Cluster, scratch: Path) -> None:
    rows = staged_numbers(cluster, "out", "s", numbers_of(1), tasks=1)[0].inline
    killed = [stage(cluster, rows, sink="s", limit=0, near=Beside(scratch, "killed", batch_id)) for batch_id in (0, 1)]
    few = stage(cluster, rows, sink="s", near=Beside(scratch, "mine", 1))
    assert files(scratch) == sorted(one.file for one in killed if one.file) and few.file is None
    assert written(cluster, 1, [few])
    assert list(scratch.glob("tidelog-stages-*/*")) == []
    assert committed(cluster, "out") == numbers_of(1)


@proves("eo.8")
def test_what_other_sinks_left_goes_after_a_day_and_that_of_slow_ones_stays(cluster: Cluster, scratch: Path) -> None:
    """Each batch write has a folder of its own, so nobody else would look into it."""
    rows = staged_numbers(cluster, "out", "s", numbers_of(0), tasks=1)[0].inline

    def staged(sink: str, age_s: float) -> Path:
        path = stage(cluster, rows, sink=sink, limit=0, near=Beside(scratch, sink, 0)).file
        assert path is not None
        os.utime(path, (time.time() - age_s,) * 2)
        return path

    slow = staged("slow", LEFT_S - 600)
    killed = staged("killed", LEFT_S + 60)
    mine = staged("mine", 0)
    assert files(scratch) == sorted([slow, mine]) and LEFT_S > STALE_S + 600
    assert not killed.parent.exists()


@proves("eo.8", "F1")
@pytest.mark.parametrize("name", [".nfs0001", "lost+found", "0", "1.a.b.c", "x.run.0.abc"])
def test_a_file_that_is_not_ours_stops_no_query_and_stays(cluster: Cluster, scratch: Path, name: str) -> None:
    folder = folder_of(scratch, cluster.cluster_id, "s")
    folder.mkdir(parents=True)
    folder.parent.chmod(0o700)
    folder.chmod(0o700)
    foreign = folder / name
    foreign.touch()
    for batch_id, touched in ((0, time.time()), (1, 0)):
        os.utime(foreign, (touched, touched))
        assert run(cluster, "out", "s", batch_id, limit=IN_FILES)
        assert files(scratch) == [foreign]
    assert committed(cluster, "out") == up_to(2)


@proves("eo.8", "F1")
@pytest.mark.parametrize("limit", [IN_FILES, IN_TOPIC])
def test_stages_that_cannot_be_deleted_stop_no_query(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, limit: int
) -> None:
    """The rows are written by then."""

    def fail(*_: object) -> None:
        raise ValueError("of a kind that nobody thought of")

    monkeypatch.setattr(stage_files, "remove_up_to", fail)
    monkeypatch.setattr(topics, "delete_records", fail)
    assert run(cluster, "out", "s", 0, limit=limit)
    assert committed(cluster, "out") == up_to(1)
    assert "of a kind that nobody thought of" in caplog.text


@proves("eo.8")
def test_a_task_that_fails_leaves_no_file(cluster: Cluster, scratch: Path) -> None:
    rows = staged_numbers(cluster, "out", "s", numbers_of(0), tasks=1)[0].inline

    def some_and_then_a_fault() -> Iterator[Routed]:
        yield rows[0]
        assert len(files(scratch)) == 1
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        stage(cluster, some_and_then_a_fault(), sink="s", limit=0, near=Beside(scratch, "run", 0))
    assert files(scratch) == []


@proves("eo.8", "F1")
@pytest.mark.parametrize("room", [0, 1, 150, 200])
def test_when_the_disk_is_full_a_stage_is_moved_to_the_topic(
    cluster: Cluster, scratch: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    def pwrite(number: int, data: memoryview, position: int) -> int:
        if position >= room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(number, data[: room - position], position)

    real = os.pwrite
    monkeypatch.setattr(stage_files.os, "pwrite", pwrite)
    stages = staged_numbers(cluster, "out", "s", numbers_of(0), tasks=2, limit=IN_FILES)
    assert all(one.file is None and one.staging is not None for one in stages)
    assert files(scratch) == []
    assert written(cluster, 0, stages)
    assert committed(cluster, "out") == up_to(1)


@proves("eo.8")
@pytest.mark.parametrize("fate", ["open to others", "a link", "a file", "no folder"])
def test_a_folder_that_is_not_ours_alone_is_not_used(
    cluster: Cluster, scratch: Path, monkeypatch: pytest.MonkeyPatch, fate: str
) -> None:
    theirs = scratch / f"tidelog-stages-{os.getuid()}"
    if fate == "open to others":
        theirs.mkdir()
        theirs.chmod(0o777)
    elif fate == "a link":
        (scratch / "elsewhere").mkdir(mode=0o700)
        theirs.symlink_to(scratch / "elsewhere")
    elif fate == "a file":
        theirs.touch()
    else:
        monkeypatch.setenv("SPARK_LOCAL_DIRS", str(scratch / "nowhere"))
    stages = staged_numbers(cluster, "out", "s", numbers_of(0), limit=IN_FILES)
    assert all(one.file is None and one.staging is not None for one in stages)
    assert written(cluster, 0, stages)
    assert committed(cluster, "out") == up_to(1)
