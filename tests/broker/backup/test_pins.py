"""Holding the files of a cut while the broker's own housekeeping takes them away."""

from __future__ import annotations

import os
from errno import EPERM
from pathlib import Path

import pytest

from broker.backup.test_failures import RECORDS, filled, quiet, read, segments
from broker.topics.serving import serving
from proving import proves
from tidelog.broker.backup.copying import NOTHING_BEFORE, Copier
from tidelog.broker.backup.cut import Cut, StoppedFolder, asked, unpack
from tidelog.broker.backup.pins import FOLDED, Again, Pins, fold_of
from tidelog.broker.backup.restoring import restore
from tidelog.broker.backup.taking import take
from tidelog.broker.backup.verifying import verify
from tidelog.broker.cleaner import Cleaner
from tidelog.broker.cutting import Cutting
from tidelog.broker.embedded import Broker
from tidelog.errors import BackupError
from tidelog.log.files import Entry, RealFiles
from tidelog.log.log import Log
from tidelog.log.segment import Name
from tidelog.record.codec import check
from tidelog.record.columns import encode
from tidelog.testing.broker import TestBroker
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest


@pytest.fixture
def stopped(tidelog_broker: TestBroker) -> TestBroker:
    filled(tidelog_broker).stop()
    return tidelog_broker


def cut_of(broker: TestBroker) -> Cut:
    with StoppedFolder(str(broker.data), RealFiles()) as cut:
        return cut


def folder_of(broker: TestBroker) -> str:
    return segments(broker)[0].parent.name


class Stale(RealFiles):
    """Lists a folder as it was, and has lost a file of it since: as when retention comes between."""

    __slots__ = ("doomed",)

    def list(self, path: str) -> list[Entry]:
        entries = super().list(path)
        if self.doomed and path == str(self.doomed[0].parent):
            self.doomed.pop(0).unlink()
        return entries


@proves("T6")
def test_segments_that_retention_takes_meanwhile_are_left_out(stopped: TestBroker, tmp_path: Path) -> None:
    cut, folder = cut_of(stopped), folder_of(stopped)
    files = Stale()
    files.doomed = segments(stopped)[:3]
    left = [Name.parse(path.name) for path in segments(stopped)[3:]]
    with Pins(str(stopped.data), files) as pins:
        pinned, _ = pins.pin_all(cut.marks)
        (orders,) = [one for one in pinned if one.folder == folder]
        assert list(orders.segments) == left
        (tmp_path / "tree").mkdir()
        copied = Copier(RealFiles(), str(tmp_path / "tree"), NOTHING_BEFORE, cut.at_ms, lambda _size: None).copy(orders)
    assert left[0] is not None
    assert copied.mark.start_offset == left[0].base_offset and copied.mark.end_offset == RECORDS


@proves("T6")
def test_a_partition_that_retention_has_emptied_goes_on_where_it_ended(stopped: TestBroker, tmp_path: Path) -> None:
    cut, folder = cut_of(stopped), folder_of(stopped)
    *older, last = segments(stopped)
    name = Name.parse(last.name)
    assert name is not None
    for path in older:
        path.unlink()
    mark = cut.marks[folder]._replace(end_offset=name.base_offset, position=9999)
    with Pins(str(stopped.data), RealFiles()) as pins:
        ((orders,), _) = pins.pin_all({folder: mark})
        (tmp_path / "tree").mkdir()
        copied = Copier(RealFiles(), str(tmp_path / "tree"), NOTHING_BEFORE, cut.at_ms, lambda _size: None).copy(orders)
    assert (copied.mark.start_offset, copied.mark.end_offset) == (name.base_offset, name.base_offset)
    assert [kept.name for kept in copied.files if kept.name.endswith(".log")] == [f"{name}.log"]
    from tidelog.log.commit import Committer
    from tidelog.log.settings import LogSettings

    committer = Committer(RealFiles(), lambda: None, threads=False)
    log = Log.open(f"{tmp_path}/tree/{folder}", RealFiles(), LogSettings(), committer, clean=copied.mark)
    log.load()
    assert (log.start_offset, log.end_offset) == (name.base_offset, name.base_offset)


@proves("T6", "D5")
def test_compaction_rests_until_the_files_are_held(tmp_path: Path) -> None:
    """A pass that began behind the cut could miss a record that the cut has."""
    with serving(tmp_path) as served:
        cleaner = Cleaner(served.broker)
        cutting = Cutting(served.broker, cleaner)
        cutting.turn()
        assert not cleaner.rests
        (tmp_path / "cut.wanted").write_text("please")
        cutting.turn()
        assert cleaner.rests and not (tmp_path / "cut.wanted").exists()
        cut = unpack((tmp_path / "cut").read_bytes(), "please")
        assert cut is not None and unpack((tmp_path / "cut").read_bytes(), "thanks") is None
        cutting.turn()
        assert cleaner.rests
        (tmp_path / "cut").unlink()
        cutting.turn()
        assert not cleaner.rests


@proves("T6")
def test_a_cut_has_what_was_appended_and_comes_when_it_is_synced(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        topic = CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
        served.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
        partition = served.broker.partition("orders", 0)
        assert partition is not None
        batch = encode([(None, b"x", (), 0)])
        partition.log.append(memoryview(batch), check(batch), 0)
        (tmp_path / "cut.wanted").write_text("please")
        Cutting(served.broker, Cleaner(served.broker)).turn()
        while partition.log.high_watermark < 1:
            assert not (tmp_path / "cut").exists(), "it is not synced yet"
            served.turn()
        cut = unpack((tmp_path / "cut").read_bytes(), "please")
        assert cut is not None
        (name,) = [name for name in cut.marks if cut.topics[name.partition("-")[0]] == "orders"]
        assert (cut.marks[name].end_offset, cut.marks[name].position) == (1, 4096 + len(batch))


@proves("T6")
def test_a_topic_that_is_deleted_meanwhile_needs_a_newer_cut(stopped: TestBroker) -> None:
    cut, folder = cut_of(stopped), folder_of(stopped)
    (stopped.data / folder).rename(stopped.data / f"{folder}.deleted")
    with Pins(str(stopped.data), RealFiles()) as pins, pytest.raises(Again, match="was deleted"):
        pins.pin_all(cut.marks)


@proves("T6")
def test_an_internal_topic_without_a_snapshot_that_reaches_it_needs_a_newer_cut(stopped: TestBroker) -> None:
    cut = cut_of(stopped)
    (topics,) = [folder for folder, name in FOLDED.items() if name == "__tidelog.topics"]
    for path in stopped.data.glob("__tidelog.topics.*.fold"):
        assert fold_of(path.name)[0] == "__tidelog.topics"
        path.unlink()
    (log,) = (stopped.data / topics).glob("*.log")
    log.rename(log.with_name(f"{Name(1)}.log"))
    with Pins(str(stopped.data), RealFiles()) as pins, pytest.raises(Again, match="was cut short"):
        pins.pin_all(cut.marks)


@proves("T6")
def test_without_hard_links_files_are_held_open_and_copied(
    stopped: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(EPERM, "this file system has no links")

    monkeypatch.setattr(os, "link", refuse)
    held = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(2):
        taken = take(str(stopped.data), str(tmp_path / "saved"), RealFiles(), quiet)
        assert taken.taken_over == 0
    assert len(list(Path("/proc/self/fd").iterdir())) < held + 10, "all that was held is let go"
    assert verify(str(tmp_path / "saved"), RealFiles(), quiet).faults == ()
    restore(str(tmp_path / "saved"), str(tmp_path / "new"), RealFiles(), quiet)
    with Broker(tmp_path / "new") as again:
        assert len(read(again)) == RECORDS


@proves("T6")
def test_links_are_never_written_by_whoever_has_the_backup(tidelog_broker: TestBroker, tmp_path: Path) -> None:
    """The last segment grows in the broker; in the backup it does not."""
    filled(tidelog_broker)
    taken = take(str(tidelog_broker.data), str(tmp_path / "saved"), RealFiles(), quiet)
    tidelog_broker.produce("orders", ["later"] * 100)
    assert verify(str(tmp_path / "saved"), RealFiles(), quiet).faults == ()
    tree = tmp_path / "saved" / taken.manifest.tree
    shared = [path for path in tree.glob("*/*") if path.stat().st_nlink > 1]
    assert shared and all(path.suffix == ".log" for path in shared)
    grown = segments(tidelog_broker)[-1]
    assert all(not path.samefile(grown) for path in shared)


@proves("T6")
def test_a_process_that_gives_no_cut_is_named(tidelog_broker: TestBroker, tmp_path: Path) -> None:
    tidelog_broker.stop()
    data = str(tidelog_broker.data)
    refused = pytest.raises(BackupError, match="did not say within")
    with StoppedFolder(data, RealFiles()), refused, asked(data, RealFiles(), patience_s=0.2):
        pass
    assert not list(tidelog_broker.data.glob("cut*"))
    with pytest.raises(BackupError, match="stopped meanwhile"), asked(data, RealFiles(), patience_s=60):
        pass
