"""What goes with a log is asked before and behind a cut, and reads the cut: committed, aborted and open records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from proving import proves
from tidelog.broker.backup import manifest as manifest_file
from tidelog.broker.backup.companion import CutEntry, CutReading
from tidelog.broker.backup.manifest import Apps
from tidelog.broker.backup.restoring import AppsFolder, restore
from tidelog.broker.backup.taking import ROUNDS, take
from tidelog.broker.backup.verifying import verify
from tidelog.client.cluster import Cluster
from tidelog.client.transactions import Transactions
from tidelog.errors import BackupError, DataFolderError
from tidelog.log.files import RealFiles
from tidelog.log.seal import sealed_json, unsealed_json
from tidelog.testing.broker import TestBroker

Files = Mapping[str, str]


def quiet(_done: int, _total: int) -> None:
    """Nobody watches."""


@dataclass(slots=True)
class Belonging:
    files: Files
    about: Mapping[str, Any]
    missing: str = ""


@dataclass(slots=True)
class Companion:
    """`missing`: what it says of one cut after the other."""

    path: Path
    missing: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    last: list[CutEntry] = field(default_factory=list)
    entries: list[CutEntry] = field(default_factory=list)

    def before_cut(self, scratch: str) -> None:
        self.asked.append("before")

    def after_cut(self) -> None:
        self.asked.append("after")

    def belonging(self, log: CutReading) -> Belonging:
        self.asked.append("belonging")
        self.last, self.entries = log.last("marks"), log.entries("marks")
        why = self.missing.pop(0) if self.missing else ""
        return Belonging({"deep/down/file": str(self.path)}, {"apps": [], "stores": []}, why)

    def release(self) -> None:
        self.asked.append("release")


@pytest.fixture
def companion(tmp_path: Path) -> Companion:
    (tmp_path / "file").write_text("of an app")
    return Companion(tmp_path / "file")


def taken(broker: TestBroker, companion: Companion, folder: Path) -> str:
    take(str(broker.data), str(folder), RealFiles(), quiet, companion)
    return str(folder)


@proves("T6", "F2")
def test_a_companion_reads_what_was_committed_at_the_cut_and_knows_what_was_open(
    tidelog_broker: TestBroker, companion: Companion, tmp_path: Path
) -> None:
    with Cluster(tidelog_broker.bootstrap) as cluster, Transactions(cluster, "t") as owner:
        tidelog_broker.create_topic("marks")
        for number in range(3):
            with owner.transaction() as producer:
                producer.send("marks", b"%d" % number, key=b"k", partition=0)
        with pytest.raises(ZeroDivisionError), owner.transaction() as producer:
            producer.send("marks", b"aborted", key=b"k", partition=0)
            producer.flush()
            raise ZeroDivisionError
        taken(tidelog_broker, companion, tmp_path / "first")
        assert companion.last == [CutEntry(b"k", b"2", True)]
        assert [entry.value for entry in companion.entries] == [b"0", b"1", b"2"]
        with owner.transaction() as producer:
            producer.send("marks", b"open", key=b"k", partition=0)
            producer.flush()
            taken(tidelog_broker, companion, tmp_path / "second")
        assert companion.last == [CutEntry(b"k", b"2", True), CutEntry(b"k", b"open", False)]
    tidelog_broker.stop()
    taken(tidelog_broker, companion, tmp_path / "third")
    assert companion.last == [CutEntry(b"k", b"open", True)]


@proves("T6")
def test_what_it_misses_is_taken_anew_and_at_last_given_up(
    tidelog_broker: TestBroker, companion: Companion, tmp_path: Path
) -> None:
    tidelog_broker.produce("orders", ["a"])
    companion.missing = ["state"]
    taken(tidelog_broker, companion, tmp_path / "saved")
    assert companion.asked == [*["before", "after", "belonging"] * 2, "release"]
    companion.missing = ["version 3 of the state"] * ROUNDS
    with pytest.raises(BackupError, match="version 3 of the state; try again when less is going on"):
        taken(tidelog_broker, companion, tmp_path / "another")
    assert companion.asked[-1] == "release"
    assert not (tmp_path / "another" / "manifest").exists()


@proves("T6")
def test_it_is_verified_and_restored_with_the_log_and_only_where_that_is_wanted(
    tidelog_broker: TestBroker, companion: Companion, tmp_path: Path
) -> None:
    tidelog_broker.produce("orders", ["a"])
    saved = taken(tidelog_broker, companion, tmp_path / "saved")
    companion.path.unlink()
    assert verify(saved, RealFiles(), quiet).faults == ()
    settled: list[str] = []

    def settle(folder: str, apps: Apps) -> None:
        assert apps.about == {"apps": [], "stores": []}
        settled.append((Path(folder) / "deep/down/file").read_text())
        assert not (tmp_path / "new" / "data" / "format").exists(), "before the log"

    both = AppsFolder(str(tmp_path / "new"), settle)
    restore(saved, str(tmp_path / "new" / "data"), RealFiles(), quiet, (), both)
    assert settled == ["of an app"]
    restore(saved, str(tmp_path / "alone"), RealFiles(), quiet)
    assert not list((tmp_path / "alone").glob("**/deep"))
    with pytest.raises(DataFolderError, match="not empty"):
        restore(saved, str(tmp_path / "other"), RealFiles(), quiet, (), both)
    assert not (tmp_path / "other").exists()
    (file,) = Path(saved).glob("tree-*/apps/deep/down/file")
    file.write_text("of ane app")
    assert [fault.file for fault in verify(saved, RealFiles(), quiet).faults] == ["apps/deep/down/file"]
    with pytest.raises(BackupError, match="not what was backed up"):
        restore(saved, str(tmp_path / "other"), RealFiles(), quiet, (), AppsFolder(str(tmp_path / "third"), settle))
    assert not (tmp_path / "other").exists() and not (tmp_path / "third").exists()


@proves("T6")
def test_names_that_lead_elsewhere_are_refused_and_a_backup_without_an_app_is_as_before(
    tidelog_broker: TestBroker, companion: Companion, tmp_path: Path
) -> None:
    tidelog_broker.produce("orders", ["a"])
    plain = tmp_path / "plain"
    take(str(tidelog_broker.data), str(plain), RealFiles(), quiet)
    said: Any = unsealed_json((plain / "manifest").read_bytes())
    assert said["v"] == 1 and "apps" not in said and manifest_file.read(str(plain)).apps is None
    with pytest.raises(BackupError, match="taken without --app"):
        restore(
            str(plain), str(tmp_path / "x"), RealFiles(), quiet, (), AppsFolder(str(tmp_path / "y"), lambda *_: None)
        )
    saved = Path(taken(tidelog_broker, companion, tmp_path / "saved"))
    said = unsealed_json((saved / "manifest").read_bytes())
    assert said["v"] == 2
    for name in ("../file", "/etc/passwd", "a//b", "deep/../../file", ""):
        said["apps"]["files"][0][0] = name
        (saved / "manifest").write_bytes(sealed_json(json.loads(json.dumps(said))))
        with pytest.raises(BackupError, match="not a name of Tidelog's"):
            manifest_file.read(str(saved))
