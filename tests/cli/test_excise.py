"""`tidelog excise`, and `restore --shun`, as an operator runs them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cli.command import Command
from log.test_excising import files_with
from proving import proves
from tidelog.broker.embedded import Broker
from tidelog.broker.excision import shunning
from tidelog.errors import DataFolderError
from tidelog.log.files import RealFiles
from tidelog.testing.broker import TestBroker

SECRET = "alice@example.org"


def secret_files(data: Path) -> list[str]:
    return files_with(data, SECRET.encode())


@proves("E6")
@pytest.mark.slow
def test_records_are_taken_out_and_what_is_left_to_do_is_said(tidelog_broker: TestBroker, nowhere: Command) -> None:
    tidelog = Command(tidelog_broker.bootstrap)
    tidelog_broker.create_topic("mails", partitions=2)
    tidelog_broker.produce("mails", ["a", SECRET, "b", SECRET, SECRET, "c"], partition=1)
    unsure = tidelog("excise", "mails:1:1", "--reason", "ticket 4711")
    assert (unsure.code, "say --yes" in unsure.err) == (2, True)
    assert secret_files(tidelog_broker.data) != []
    done = tidelog.ok("excise", "mails:1:1", "mails:1:3-4", "--reason", "ticket 4711", "--yes")
    assert done.lines[0] == "3 offsets taken out; nothing of them is in any file of the broker"
    assert {"backups", "consumers", "Spark"} <= {line.split()[0] for line in done.lines[2:]}
    assert secret_files(tidelog_broker.data) == []
    assert tidelog.ok("tail", "mails", "--from", "earliest", "--values").lines == ["a", "b", "c"]
    (listed,) = tidelog.ok("excise", "--list").lines[1:]
    assert listed.split()[:5] == ["mails", "1", "1,3-4", "done", "3"]
    assert listed.endswith("ticket 4711")


@proves("E6")
@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "name records as TOPIC:PARTITION:OFFSET"),
        (("mails:0", "--reason", "x"), "is not a place"),
        (("mails:0:9-3", "--reason", "x"), "ends before it begins"),
        (("mails:0:0", "--yes"), "--reason TEXT"),
    ],
)
def test_what_is_written_wrongly_is_said(tidelog_broker: TestBroker, words: tuple[str, ...], why: str) -> None:
    ran = Command(tidelog_broker.bootstrap)("excise", *words)
    assert (ran.code, why in ran.err) == (2, True), ran.err


@proves("E6", "es.21")
@pytest.mark.slow
def test_an_older_backup_does_not_bring_back_what_was_excised(
    tidelog_broker: TestBroker, nowhere: Command, tmp_path: Path
) -> None:
    tidelog = Command(tidelog_broker.bootstrap)
    data, monday, friday = str(tidelog_broker.data), str(tmp_path / "monday"), str(tmp_path / "friday")
    tidelog_broker.produce("mails", ["a", SECRET, "c"])
    nowhere.ok("backup", monday, "--data", data)
    tidelog_broker.produce("mails", ["d"])
    tidelog.ok("excise", "mails:0:1", "--reason", "ticket 4711", "--yes")
    (tmp_path / "excised.json").write_text(tidelog.ok("excise", "--list", "--json").out)
    nowhere.ok("backup", friday, "--data", data)
    plain = nowhere.ok("restore", monday, "--data", str(tmp_path / "plain"))
    assert "records that were excised after this backup are back" in plain.out
    assert secret_files(tmp_path / "plain") != [], "without the list it comes back"
    for number, shun in enumerate((friday, data, str(tmp_path / "excised.json"))):
        new = tmp_path / f"new{number}"
        nowhere.ok("restore", monday, "--data", str(new), "--shun", shun)
        assert secret_files(new) == []
        with Broker(new) as again:
            restored = Command(again.bootstrap)
            assert restored.ok("tail", "mails", "--from", "earliest", "--values").lines == ["a", "c"]
            (listed,) = restored.ok("excise", "--list", "--json").json
            assert (listed["state"], listed["removed"], listed["reason"]) == ("done", 1, "ticket 4711")
        assert secret_files(new) == []


@proves("E6")
@pytest.mark.slow
def test_a_restore_that_was_killed_while_it_took_records_out_is_not_opened(
    tidelog_broker: TestBroker, nowhere: Command, tmp_path: Path
) -> None:
    tidelog_broker.produce("mails", ["a", SECRET, "c"])
    saved, new = str(tmp_path / "saved"), tmp_path / "new"
    nowhere.ok("backup", saved, "--data", str(tidelog_broker.data))
    nowhere.ok("restore", saved, "--data", str(new))
    shunning.begin(str(new), RealFiles())
    with pytest.raises(DataFolderError, match="remove it and restore again"), Broker(new, in_process=True):
        pass


@proves("E6")
@pytest.mark.slow
def test_a_list_that_is_none_is_refused_before_anything_is_copied(nowhere: Command, tmp_path: Path) -> None:
    with TestBroker(tmp_path / "data") as broker:
        broker.produce("mails", ["a"])
        nowhere.ok("backup", str(tmp_path / "saved"), "--data", str(broker.data))
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps([{"topic": "mails"}]))
    for shun, why in ((str(wrong), "is not the output of"), (str(tmp_path / "none"), "is not there")):
        ran = nowhere("restore", str(tmp_path / "saved"), "--data", str(tmp_path / "new"), "--shun", shun)
        assert (ran.code, why in ran.err) == (2, True), ran.err
        assert not (tmp_path / "new").exists()
    shutil.rmtree(tmp_path / "saved")
