"""Backups that do not end, of folders that are damaged, into folders that are not ours: clean, and said by name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from errno import ENOSPC
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest

from proving import proves
from tidelog.broker.backup.restoring import restore
from tidelog.broker.backup.taking import take
from tidelog.broker.backup.verifying import verify
from tidelog.broker.embedded import Broker
from tidelog.errors import BackupError, DataFolderError
from tidelog.log.files import Buffer, RealFiles
from tidelog.log.seal import sealed_json, unsealed_json
from tidelog.testing.broker import TestBroker
from tidelog.testing.disk import flip_bit

HEADER_BLOCK = 4096
RECORDS = 200
CONFIGS = {"internal.segment.bytes": 1 << 14}


def quiet(_done: int, _total: int) -> None:
    """Nobody watches."""


def filled(broker: TestBroker) -> TestBroker:
    broker.create_topic("orders", configs=CONFIGS)
    for start in range(0, RECORDS, 10):
        broker.produce("orders", [f"record {number} " + "x" * 500 for number in range(start, start + 10)])
    return broker


def segments(broker: TestBroker) -> list[Path]:
    """Of `orders`, the oldest first."""
    return sorted(path for path in broker.data.glob("*-0/*.log") if b"record " in path.read_bytes())


@pytest.fixture
def stopped(tidelog_broker: TestBroker) -> TestBroker:
    filled(tidelog_broker).stop()
    return tidelog_broker


@proves("T6")
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
def test_a_stopped_brokers_folder_is_backed_up_too(tidelog_broker: TestBroker, tmp_path: Path, clean: bool) -> None:
    filled(tidelog_broker)
    tidelog_broker.stop() if clean else tidelog_broker.kill()
    before = sorted(path.name for path in tidelog_broker.data.iterdir())
    taken = take(str(tidelog_broker.data), str(tmp_path / "saved"), RealFiles(), quiet)
    assert sorted(path.name for path in tidelog_broker.data.iterdir()) == before
    (orders,) = [one for one in taken.manifest.partitions if one.topic == "orders"]
    assert (orders.mark.start_offset, orders.mark.end_offset) == (0, RECORDS)
    assert verify(str(tmp_path / "saved"), RealFiles(), quiet).faults == ()
    restore(str(tmp_path / "saved"), str(tmp_path / "new"), RealFiles(), quiet)
    tidelog_broker.start()
    there = [row.value for row in tidelog_broker.records("orders")]
    assert len(there) == RECORDS
    with Broker(tmp_path / "new") as again:
        assert read(again) == there


def read(broker: Broker) -> list[bytes | None]:
    from tidelog.client.cluster import Cluster
    from tidelog.client.consumer import Consumer
    from tidelog.client.metadata import TopicPartition
    from tidelog.client.offsets import LATEST, list_offsets

    at = TopicPartition("orders", 0)
    with Cluster(broker.bootstrap) as cluster:
        end = list_offsets(cluster, {at: LATEST})[at].offset
        consumer = Consumer(cluster)
        consumer.assign({at: 0})
        found: list[bytes | None] = []
        while consumer.positions[at] < end:
            found += [row.value for one in consumer.fetch() for row in one.rows()]
        return found


@proves("T6")
def test_what_is_restored_goes_on(stopped: TestBroker, tmp_path: Path) -> None:
    take(str(stopped.data), str(tmp_path / "saved"), RealFiles(), quiet)
    restore(str(tmp_path / "saved"), str(tmp_path / "new"), RealFiles(), quiet)
    for _ in range(2):
        with Broker(tmp_path / "new") as again:
            before = read(again)
            produce(again, b"more")
            assert read(again) == [*before, b"more"]
    assert verify(str(tmp_path / "saved"), RealFiles(), quiet).faults == (), "it shares nothing that is written"


def produce(broker: Broker, value: bytes) -> None:
    from tidelog.client.cluster import Cluster
    from tidelog.client.producer import Producer

    with Cluster(broker.bootstrap) as cluster, Producer(cluster) as producer:
        producer.send("orders", value)


# Ends that are none ---------------------------------------------------------------------------------------------------

KILLED = """
import os, sys
from signal import SIGKILL
from typing import Any
from tidelog.broker.backup.taking import take
from tidelog.log.files import RealFiles

class Deadly(RealFiles):
    __slots__ = ("left",)
    def write(self, fd, buffers, position):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), SIGKILL)
        return super().write(fd, buffers, position)

files = Deadly()
files.left = int(sys.argv[3])
take(sys.argv[1], sys.argv[2], files, lambda done, total: None)
"""


@proves("T6")
@pytest.mark.parametrize("running", [True, False], ids=["running", "stopped"])
def test_a_backup_that_is_killed_leaves_the_one_before(
    tidelog_broker: TestBroker, tmp_path: Path, running: bool
) -> None:
    saved = tmp_path / "saved"
    filled(tidelog_broker)
    first = take(str(tidelog_broker.data), str(saved), RealFiles(), quiet)
    tidelog_broker.produce("orders", ["later"])
    if not running:
        tidelog_broker.stop()
    for writes in (2, 4, 7):
        line = [sys.executable, "-c", KILLED, str(tidelog_broker.data), str(saved), str(writes)]
        assert subprocess.run(line, capture_output=True).returncode == -SIGKILL
        verified = verify(str(saved), RealFiles(), quiet)
        assert verified.faults == () and verified.manifest == first.manifest
    last = take(str(tidelog_broker.data), str(saved), RealFiles(), quiet)
    assert last.manifest.at_ms > first.manifest.at_ms
    assert sorted(path.name for path in saved.iterdir()) == ["manifest", last.manifest.tree]
    assert not list(tidelog_broker.data.glob("backup*"))
    assert verify(str(saved), RealFiles(), quiet).faults == ()


@proves("T6")
def test_a_first_backup_that_was_killed_is_no_backup(stopped: TestBroker, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    line = [sys.executable, "-c", KILLED, str(stopped.data), str(saved), "3"]
    assert subprocess.run(line, capture_output=True).returncode == -SIGKILL
    with pytest.raises(BackupError, match="never finished; take it again"):
        verify(str(saved), RealFiles(), quiet)
    with pytest.raises(BackupError, match="never finished"):
        restore(str(saved), str(tmp_path / "new"), RealFiles(), quiet)
    assert not (tmp_path / "new").exists()
    take(str(stopped.data), str(saved), RealFiles(), quiet)
    assert verify(str(saved), RealFiles(), quiet).faults == ()


class FullDisk(RealFiles):
    """Room for so many bytes in the folder that is filled."""

    __slots__ = ("_folder", "_paths", "room")

    def __init__(self, folder: Path, room: int) -> None:
        super().__init__()
        self._folder = str(folder)
        self._paths: set[int] = set()
        self.room = room

    def open(self, path: str, *, create: bool = False) -> int:
        fd = super().open(path, create=create)
        (self._paths.add if path.startswith(self._folder) else self._paths.discard)(fd)
        return fd

    def write(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        if fd in self._paths:
            self.room -= sum(len(buffer) for buffer in buffers)
            if self.room < 0:
                raise OSError(ENOSPC, os.strerror(ENOSPC))
        return super().write(fd, buffers, position)


@proves("T6")
@pytest.mark.parametrize("room", [0, 3_000, 9_000])
def test_a_full_disk_leaves_the_backup_before(stopped: TestBroker, tmp_path: Path, room: int) -> None:
    saved = tmp_path / "saved"
    first = take(str(stopped.data), str(saved), RealFiles(), quiet)
    stopped.start()
    stopped.produce("orders", ["later"])
    stopped.stop()
    with pytest.raises(OSError, match="No space left"):
        take(str(stopped.data), str(saved), FullDisk(saved, room), quiet)
    assert sorted(path.name for path in saved.iterdir()) == ["manifest", first.manifest.tree]
    assert not list(stopped.data.glob("backup*"))
    verified = verify(str(saved), RealFiles(), quiet)
    assert verified.faults == () and verified.manifest == first.manifest


@proves("T6")
def test_a_restore_to_a_full_disk_leaves_nothing(stopped: TestBroker, tmp_path: Path) -> None:
    take(str(stopped.data), str(tmp_path / "saved"), RealFiles(), quiet)
    with pytest.raises(OSError, match="No space left"):
        restore(str(tmp_path / "saved"), str(tmp_path / "new"), FullDisk(tmp_path / "new", 20_000), quiet)
    assert not (tmp_path / "new").exists()


# Damage -----------------------------------------------------------------------------------------------------------


@proves("T6")
def test_holes_are_copied_as_holes_and_told(stopped: TestBroker, tmp_path: Path) -> None:
    damaged = next(path for path in segments(stopped) if b"record 50 " in path.read_bytes())
    flip_bit(damaged, damaged.read_bytes().index(b"record 50 "))
    taken = take(str(stopped.data), str(tmp_path / "saved"), RealFiles(), quiet)
    ((partition, hole),) = taken.manifest.holes
    assert partition.topic == "orders" and hole.base_offset <= 50 < hole.end_offset <= 60
    verified = verify(str(tmp_path / "saved"), RealFiles(), quiet)
    assert verified.faults == () and len(verified.manifest.holes) == 1
    restore(str(tmp_path / "saved"), str(tmp_path / "new"), RealFiles(), quiet)
    (copy,) = (tmp_path / "new").glob(f"*/{damaged.name}")
    assert copy.read_bytes() == damaged.read_bytes()
    again = take(str(stopped.data), str(tmp_path / "saved"), RealFiles(), quiet)
    assert again.taken_over > 0 and again.manifest.holes == taken.manifest.holes


@proves("T6")
def test_a_damaged_file_is_named_and_not_restored(stopped: TestBroker, tmp_path: Path) -> None:
    saved, new = tmp_path / "saved", tmp_path / "new"
    taken = take(str(stopped.data), str(saved), RealFiles(), quiet)
    tree = saved / taken.manifest.tree
    victim = max(tree.glob("*-0/*.log"), key=lambda path: path.name)
    content = victim.read_bytes()
    name = victim.relative_to(tree).as_posix()
    for broken, what in (
        (content[:-1], "bytes and had"),
        (content[:-1] + bytes([content[-1] ^ 1]), "its checksum is not what it was"),
    ):
        victim.write_bytes(broken)
        (fault,) = verify(str(saved), RealFiles(), quiet).faults
        assert fault.file == name and what in fault.what
        with pytest.raises(BackupError, match=f"{name} is not what was backed up"):
            restore(str(saved), str(new), RealFiles(), quiet)
        assert not new.exists()
    victim.unlink()
    assert verify(str(saved), RealFiles(), quiet).faults[0].what == "it is missing"
    with pytest.raises(BackupError, match="is missing"):
        restore(str(saved), str(new), RealFiles(), quiet)
    victim.write_bytes(content)
    (tree / "stranger").write_bytes(b"?")
    (fault,) = verify(str(saved), RealFiles(), quiet).faults
    assert fault.file == "stranger"


@proves("T6")
def test_what_is_no_backup_of_ours_is_refused_by_name(stopped: TestBroker, tmp_path: Path) -> None:
    saved, new = tmp_path / "saved", tmp_path / "new"
    with pytest.raises(BackupError, match="does not exist; name that of a backup"):
        verify(str(saved), RealFiles(), quiet)
    (tmp_path / "other").mkdir()
    with pytest.raises(BackupError, match="is not a backup: it has no file 'manifest'"):
        restore(str(tmp_path / "other"), str(new), RealFiles(), quiet)
    take(str(stopped.data), str(saved), RealFiles(), quiet)
    path = saved / "manifest"
    good = path.read_bytes()
    told = unsealed_json(good)
    assert isinstance(told, dict)
    for content, what in (
        (good.replace(b"orders", b"ordets"), "manifest is damaged"),
        (good[: len(good) // 2], "manifest is damaged"),
        (sealed_json({**told, "v": 3}), "format 3, newer than 2"),
        (sealed_json({"kind": "shopping list"}), "not of a Tidelog backup"),
    ):
        path.write_bytes(content)
        with pytest.raises(BackupError, match=what):
            restore(str(saved), str(new), RealFiles(), quiet)
        with pytest.raises(BackupError, match=what):
            take(str(stopped.data), str(saved), RealFiles(), quiet)
    path.write_bytes(sealed_json({**told, "cluster_id": "another"}))
    with pytest.raises(BackupError, match="is a backup of cluster another"):
        take(str(stopped.data), str(saved), RealFiles(), quiet)


@proves("T6")
def test_folders_that_have_something_else_are_left_alone(stopped: TestBroker, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("chapter 1")
    with pytest.raises(BackupError, match=r"not empty and not a backup: it has thesis\.txt"):
        take(str(stopped.data), str(tmp_path / "full"), RealFiles(), quiet)
    with pytest.raises(BackupError, match="is in the data folder"):
        take(str(stopped.data), str(stopped.data / "saved"), RealFiles(), quiet)
    with pytest.raises(DataFolderError, match="is not a broker's data folder"):
        take(str(tmp_path / "full"), str(tmp_path / "saved"), RealFiles(), quiet)
    take(str(stopped.data), str(tmp_path / "saved"), RealFiles(), quiet)
    with pytest.raises(DataFolderError, match="is there and not empty"):
        restore(str(tmp_path / "saved"), str(tmp_path / "full"), RealFiles(), quiet)
    assert (tmp_path / "full" / "thesis.txt").read_text() == "chapter 1"


@proves("T6")
def test_secrets_stay_with_the_owner(stopped: TestBroker, tmp_path: Path) -> None:
    taken = take(str(stopped.data), str(tmp_path / "saved"), RealFiles(), quiet)
    restore(str(tmp_path / "saved"), str(tmp_path / "new"), RealFiles(), quiet)
    for path in (tmp_path / "saved", tmp_path / "saved" / taken.manifest.tree, tmp_path / "new"):
        assert path.stat().st_mode & 0o077 == 0
    # Also where somebody opens the data folder to others later on.
    assert taken.manifest.folds
    for name in ("format", "clean"):
        (tmp_path / "new" / name).unlink(missing_ok=True)
    assert [path for path in (tmp_path / "new").rglob("*") if path.stat().st_mode & 0o077] == []


@proves("T6")
@pytest.mark.parametrize(
    "broken",
    [
        lambda told: told["partitions"][0].update(folder="../outside"),
        lambda told: told["partitions"][0].update(folder=".."),
        lambda told: told["partitions"][0]["files"][0].__setitem__(0, "../../outside"),
        lambda told: told["folds"][0].__setitem__(0, "/tmp/outside"),
        lambda told: told["folds"][0].__setitem__(0, 7),
        lambda told: told.update(tree="tree-1/../../outside"),
        lambda told: told.update(tree=".."),
        lambda told: told.update(tree=None),
    ],
)
def test_a_backup_of_somebody_else_writes_and_removes_nothing_beside_its_place(
    stopped: TestBroker, tmp_path: Path, broken: Callable[[dict[str, Any]], None]
) -> None:
    saved = tmp_path / "saved"
    take(str(stopped.data), str(saved), RealFiles(), quiet)
    told = unsealed_json((saved / "manifest").read_bytes())
    assert isinstance(told, dict)
    broken(told)
    (saved / "manifest").write_bytes(sealed_json(told))
    for use in (
        lambda: restore(str(saved), str(tmp_path / "new"), RealFiles(), quiet),
        lambda: verify(str(saved), RealFiles(), quiet),
        lambda: take(str(stopped.data), str(saved), RealFiles(), quiet),
    ):
        with pytest.raises(BackupError, match=r"which is not a name of Tidelog's"):
            use()
    assert not (tmp_path / "new").exists()


@proves("T6")
def test_a_link_in_a_backup_is_not_followed(stopped: TestBroker, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    taken = take(str(stopped.data), str(saved), RealFiles(), quiet)
    victim = max((saved / taken.manifest.tree).glob("*-0/*.log"), key=lambda path: path.name)
    victim.rename(tmp_path / "elsewhere")
    victim.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BackupError, match="is missing"):
        restore(str(saved), str(tmp_path / "new"), RealFiles(), quiet)


@proves("T6")
def test_two_backups_at_once_are_one_too_many(stopped: TestBroker, tmp_path: Path) -> None:
    from tidelog.broker.backup.pins import Pins

    with Pins(str(stopped.data), RealFiles()), pytest.raises(BackupError, match=r"another backup of .* is under way"):
        take(str(stopped.data), str(tmp_path / "saved"), RealFiles(), quiet)
    take(str(stopped.data), str(tmp_path / "saved"), RealFiles(), quiet)


@proves("T6")
def test_the_manifest_says_when_what_and_by_whom(stopped: TestBroker, tmp_path: Path) -> None:
    from tidelog import __version__

    taken = take(str(stopped.data), str(tmp_path / "saved"), RealFiles(), quiet)
    told = json.loads((tmp_path / "saved" / "manifest").read_bytes().splitlines()[0])
    assert (told["v"], told["tidelog"], told["at_ms"]) == (1, __version__, taken.manifest.at_ms)
    (orders,) = [one for one in told["partitions"] if one["topic"] == "orders"]
    assert (orders["start"], orders["end"]) == (0, RECORDS)
    assert all(len(file) == 3 for file in orders["files"])
