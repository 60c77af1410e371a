"""Internal topics: a decision is answered when it is synced; a snapshot and what follows fold to the state."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.broker import internal
from tidelog.broker.decision import Decision, NewRecord
from tidelog.broker.internal import InternalTopic, TopicFold
from tidelog.errors import DataFolderError, StorageError
from tidelog.log.commit import Committer
from tidelog.log.files import RealFiles
from tidelog.log.log import Log
from tidelog.log.settings import LogSettings
from tidelog.testing.disk import SimulatedDisk

NOW = 1_700_000_000_000


def apply(state: dict[bytes, bytes], key: bytes, value: bytes | None) -> None:
    if value is None:
        state.pop(key, None)
    else:
        state[key] = value


def to_records(state: dict[bytes, bytes]) -> list[NewRecord]:
    return [NewRecord(key, value) for key, value in state.items()]


class Ticket:
    def __init__(self) -> None:
        self.answers: list[object] = []

    def reply(self, answer: object) -> None:
        self.answers.append(answer)

    def drop(self) -> None:
        self.answers.append("dropped")


class Topic:
    """An internal topic that folds into a dict, on a committer whose rounds the test runs by hand."""

    def __init__(self, folder: Path, files: RealFiles | SimulatedDisk | None = None) -> None:
        self.lost: list[StorageError] = []
        self.failed: list[BaseException] = []
        self.files = files or RealFiles()
        self.committer = Committer(self.files, lambda: None, threads=False)
        self.topic = InternalTopic("__tidelog.test", TopicFold(dict, apply, to_records), self.lost.append)
        log = Log.open(f"{folder}/partition", self.files, LogSettings(segment_bytes=4096), self.committer)
        self.topic.recover(log, str(folder), self.files)

    def put(self, **values: str | None) -> Ticket:
        ticket = Ticket()
        records = [NewRecord(k.encode(), None if v is None else v.encode()) for k, v in values.items()]
        self.topic.commit(Decision(records, [(ticket, "done")]), NOW)
        return ticket

    def snapshot(self) -> None:
        def at_once(work, done) -> None:
            try:
                result = work()
            except OSError as error:
                done(None, error)
            else:
                done(result, None)

        self.topic.snapshot(at_once, self.failed.append)
        self.committer.settle()


@proves("T6")
def test_a_reply_leaves_when_its_records_are_synced_and_not_before(tmp_path):
    test = Topic(tmp_path)
    ticket = test.put(a="1")
    assert test.topic.state == {b"a": b"1"}
    assert ticket.answers == []
    test.committer.settle()
    assert ticket.answers == ["done"]


@proves("T6")
def test_a_reply_that_only_read_waits_for_what_it_rests_on(tmp_path):
    test = Topic(tmp_path)
    test.put(a="1")
    reader = Ticket()
    test.topic.commit(Decision([], [(reader, test.topic.state[b"a"])]), NOW)
    assert reader.answers == []
    test.committer.settle()
    assert reader.answers == [b"1"]


@proves("T6")
@given(st.data())
def test_any_history_with_snapshots_and_restarts_folds_to_the_same_state(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("internal")
    test = Topic(folder)
    oracle: dict[bytes, bytes] = {}
    for _ in range(data.draw(st.integers(1, 12))):
        step = data.draw(st.sampled_from(["put", "put", "put", "snapshot", "restart", "stop"]))
        if step == "put":
            values = data.draw(
                st.dictionaries(st.sampled_from("abcdef"), st.none() | st.text(max_size=200), max_size=4)
            )
            test.put(**values)
            for key, value in values.items():
                apply(oracle, key.encode(), None if value is None else value.encode())
            test.committer.settle()
        elif step == "snapshot":
            test.snapshot()
        else:
            if step == "stop":
                test.topic.close()
            test = Topic(folder)
        assert test.topic.state == oracle


@proves("T6")
def test_the_log_below_the_snapshot_before_the_last_is_cut(tmp_path):
    test = Topic(tmp_path)
    for round_ in range(4):
        for number in range(40):
            test.put(**{f"key{number}": f"{round_}" * 100})
            test.committer.settle()
        test.snapshot()
    assert test.topic.log.start_offset == 120
    assert len(Topic(tmp_path).topic.state) == 40


@proves("T6")
def test_a_snapshot_that_is_damaged_is_passed_over_for_the_one_before(tmp_path):
    test = Topic(tmp_path)
    for value in ("1", "2"):
        test.put(a=value)
        test.committer.settle()
        test.snapshot()
    newest = max(tmp_path.glob("*.fold"))
    newest.write_bytes(newest.read_bytes()[:-1] + b"\xff")
    assert Topic(tmp_path).topic.state == {b"a": b"2"}


@proves("T6")
def test_the_log_is_whole_as_long_as_there_is_one_snapshot_only(tmp_path):
    test = Topic(tmp_path)
    for number in range(100):
        test.put(**{f"key{number}": "x" * 100})
    test.committer.settle()
    test.snapshot()
    (only,) = tmp_path.glob("*.fold")
    only.write_bytes(only.read_bytes()[:-1] + b"\xff")
    assert len(Topic(tmp_path).topic.state) == 100


@proves("T6")
def test_clean_stops_leave_two_snapshots_however_many_there_are(tmp_path):
    for number in range(5):
        test = Topic(tmp_path)
        test.put(a=str(number))
        test.committer.settle()
        test.topic.close()
    assert len(list(tmp_path.glob("*.fold"))) == 2
    assert Topic(tmp_path).topic.state == {b"a": b"4"}


@proves("T6")
def test_a_snapshot_that_cannot_be_written_is_told(tmp_path):
    disk = SimulatedDisk(tmp_path / "disk")
    test = Topic(tmp_path / "disk", disk)
    test.put(a="1")
    test.committer.settle()
    disk.fail("create", OSError(errno.ENOSPC, "no room"), name=".fold")
    test.snapshot()
    assert [str(error) for error in test.failed] == ["[Errno 28] no room"]
    assert Topic(tmp_path / "disk", disk).topic.state == {b"a": b"1"}


@proves("T6")
def test_a_snapshot_of_a_newer_format_is_refused_by_name(tmp_path):
    test = Topic(tmp_path)
    test.put(a="1")
    test.committer.settle()
    test.snapshot()
    (path,) = tmp_path.glob("*.fold")
    content = bytearray(path.read_bytes())
    content[8:10] = (internal.FORMAT_VERSION + 1).to_bytes(2, "big")
    path.write_bytes(content)
    with pytest.raises(DataFolderError, match=r"format version 2.*reads up to 1"):
        Topic(tmp_path)


@proves("T6")
def test_what_could_not_be_written_was_never_decided(tmp_path):
    disk = SimulatedDisk(tmp_path)
    test = Topic(tmp_path, disk)
    test.put(a="1")
    test.committer.settle()
    disk.fail("write", OSError(errno.ENOSPC, "no space left on device"))
    ticket = test.put(a="2", b="2")
    test.committer.settle()
    assert ticket.answers == ["dropped"]
    assert len(test.lost) == 1
    test.topic.refold()
    assert test.topic.state == {b"a": b"1"}
    assert test.put(a="3").answers == []
    test.committer.settle()
    assert test.topic.state == {b"a": b"3"}


@proves("T6")
def test_a_hole_stops_the_start_and_names_the_command_that_passes_it(tmp_path):
    test = Topic(tmp_path)
    for number in range(5):
        test.put(**{f"key{number}": "value"})
        test.committer.settle()
    (path,) = [path for path in (tmp_path / "partition").glob("*.log") if b"key2" in path.read_bytes()]
    path.write_bytes(path.read_bytes().replace(b"key2", b"kez2"))
    with pytest.raises(
        DataFolderError, match=r"__tidelog\.test is damaged.*tidelog repair --data .* __tidelog\.test 0 --skip"
    ):
        Topic(tmp_path)
