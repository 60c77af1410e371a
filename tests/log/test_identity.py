"""The file `topic` of a partition's folder: there before the first ack, whole or not believed, new settings in time."""

from __future__ import annotations

from pathlib import Path

import pytest

from log.partition import NOW, UnsyncedFiles, batch
from proving import proves
from tidelog.errors import DataFolderError
from tidelog.log import contents, identity
from tidelog.log.commit import Committer
from tidelog.log.files import Files
from tidelog.log.identity import IDENTITY_NAME, Identity
from tidelog.log.log import Log
from tidelog.log.seal import sealed
from tidelog.log.settings import LogSettings
from tidelog.record import codec
from tidelog.testing.disk import SimulatedDisk

ORDERS = Identity("orders", bytes(range(16)), 3, {"retention.ms": "-1"}, 1_700_000_000_000)


def opened(folder: Path, files: Files, whose: Identity | None = ORDERS) -> tuple[Log, Committer]:
    committer = Committer(files, lambda: None, threads=False)
    log = Log.open(str(folder / "p"), files, LogSettings(), committer, identity=whose)
    committer.settle()
    return log, committer


def put(log: Log, committer: Committer) -> list[object]:
    acked: list[object] = []
    data = memoryview(batch(b"x"))
    log.append(data, codec.check(data), NOW)
    log.when_visible(1, acked.append)
    committer.settle()
    return acked


@proves("T6")
def test_every_bit_of_it_is_covered_by_its_checksum() -> None:
    packed = identity.pack(ORDERS)
    assert identity.unpack(packed, "p") == ORDERS
    for byte in range(len(packed)):
        for bit in range(8):
            damaged = bytearray(packed)
            damaged[byte] ^= 1 << bit
            assert identity.unpack(bytes(damaged), "p") is None
        assert identity.unpack(packed[:byte], "p") is None


@proves("T6")
def test_a_newer_one_is_refused_by_name() -> None:
    line = identity.pack(ORDERS).partition(b"\n")[0].replace(b'"v":1', b'"v":2') + b"\n"
    newer = sealed(line)
    with pytest.raises(DataFolderError, match=r"/p/topic has format 2, newer than 1; open it with a newer Tidelog"):
        identity.unpack(newer, "/p/topic")


@proves("T1")
def test_no_power_cut_leaves_an_acked_record_in_a_folder_that_does_not_say_whose_it_is(tmp_path: Path) -> None:
    acked_at = []
    for step in range(1, 60):
        disk = SimulatedDisk(tmp_path / f"{step}")
        disk.cut_power_at(step)
        log, committer = opened(tmp_path / f"{step}", disk)
        acked = put(log, committer) == [None]
        for seed in range(4):
            image = disk.crash(tmp_path / f"{step}-{seed}", seed)
            if acked:
                assert identity.load(UnsyncedFiles(), str(image / "p")) == ORDERS
                assert contents.look(UnsyncedFiles(), str(image / "p")).records == 1
        acked_at += [step] if acked else []
        if acked and not disk.is_off:
            break
    assert acked_at, "the walk must reach the ack"


@proves("T6")
def test_a_folder_without_one_gets_one_when_it_is_opened_and_one_of_old_settings_the_new(tmp_path: Path) -> None:
    files = UnsyncedFiles()
    put(*opened(tmp_path, files, None))
    assert not (tmp_path / "p" / IDENTITY_NAME).exists()
    opened(tmp_path, files)
    assert identity.load(files, str(tmp_path / "p")) == ORDERS
    altered = ORDERS._replace(configs={})
    opened(tmp_path, files, altered)
    assert identity.load(files, str(tmp_path / "p")) == altered
    opened(tmp_path, files, altered._replace(partitions=9))
    assert identity.load(files, str(tmp_path / "p")) == altered, "how many there are is not worth a write"
    (tmp_path / "p" / IDENTITY_NAME).write_bytes(b"rot")
    opened(tmp_path, files)
    assert identity.load(files, str(tmp_path / "p")) == ORDERS


@proves("T6")
def test_many_folders_get_new_settings_by_one_sync(tmp_path: Path) -> None:
    disk = SimulatedDisk(tmp_path)
    folders = [str(tmp_path / f"p{number}") for number in range(5)]
    for folder in folders:
        disk.make_folder(folder)
        identity.save(disk, folder, ORDERS)
    altered = ORDERS._replace(configs={})
    before = disk.syncs
    identity.save_all(disk, [*folders, str(tmp_path / "gone")], altered)
    assert disk.syncs == before, "all of them by one sync of the whole disk"
    for seed in range(5):
        image = disk.crash(tmp_path.parent / f"{tmp_path.name}-{seed}", seed)
        found = [identity.load(UnsyncedFiles(), str(image / Path(folder).name)) for folder in folders]
        assert set(map(repr, found)) <= {repr(ORDERS), repr(altered)}
    assert [identity.load(disk, folder) for folder in folders] == [altered] * 5


@proves("T6")
def test_what_a_folder_holds_is_seen_from_outside(tmp_path: Path) -> None:
    files = UnsyncedFiles()
    assert contents.look(files, str(tmp_path / "p")) == contents.Held(0, 0)
    log, committer = opened(tmp_path, files)
    for _ in range(3):
        put(log, committer)
    found = contents.look(files, str(tmp_path / "p"))
    assert found == contents.Held(3, 3 * len(batch(b"x"))) and found.anything
    (segment,) = (tmp_path / "p").glob("*.log")
    segment.write_bytes(segment.read_bytes()[:4096])
    assert not contents.look(files, str(tmp_path / "p")).anything
    (tmp_path / "p" / "notes").write_text("somebody's")
    assert contents.look(files, str(tmp_path / "p")).anything
