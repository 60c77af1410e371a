"""The breakable disk breaks as it says, or the tests that stand on it prove nothing."""

from __future__ import annotations

from errno import EIO, ENOSPC
from pathlib import Path

import pytest

from proving import proves
from tidelog.log.files import PAGE
from tidelog.testing.disk import PowerCut, SimulatedDisk, flip_bit

SEEDS = range(40)


@pytest.fixture
def disk(tmp_path: Path) -> SimulatedDisk:
    return SimulatedDisk(tmp_path / "disk")


def images(disk: SimulatedDisk, tmp_path: Path) -> list[Path]:
    return [disk.crash(tmp_path / f"image{seed}", seed) for seed in SEEDS]


def contents(disk: SimulatedDisk, tmp_path: Path, name: str) -> set[bytes | None]:
    paths = [image / name for image in images(disk, tmp_path)]
    return {path.read_bytes() if path.exists() else None for path in paths}


def make(disk: SimulatedDisk, name: str, data: bytes, *, sync: bool = True) -> int:
    fd = disk.open(f"{disk.folder}/{name}", create=True)
    disk.write(fd, [data], 0)
    if sync:
        disk.sync(fd)
        disk.sync_folder(str(disk.folder))
    return fd


@proves("crash")
def test_what_was_synced_is_there_in_every_image(disk: SimulatedDisk, tmp_path: Path) -> None:
    make(disk, "a", b"synced")
    assert contents(disk, tmp_path, "a") == {b"synced"}


@proves("crash")
def test_a_file_whose_folder_was_not_synced_may_be_missing(disk: SimulatedDisk, tmp_path: Path) -> None:
    fd = make(disk, "a", b"data", sync=False)
    disk.sync(fd)
    assert contents(disk, tmp_path, "a") == {b"data", None}


@proves("crash")
def test_unsynced_pages_come_in_any_combination_and_lengths_vary(disk: SimulatedDisk, tmp_path: Path) -> None:
    fd = make(disk, "a", b"o" * 3 * PAGE)
    for page in range(3):
        disk.write(fd, [b"n" * PAGE], page * PAGE)
    disk.write(fd, [b"tail"], 3 * PAGE)
    found = contents(disk, tmp_path, "a")
    pages = {content[::PAGE][:3] for content in found if content is not None}
    assert {b"ooo", b"nnn"} < pages
    assert pages & {b"onn", b"ono", b"oon"}, "a later page without an earlier one"
    assert {len(content) for content in found if content is not None} >= {3 * PAGE, 3 * PAGE + 4}


@proves("crash")
def test_the_last_write_may_be_torn_at_any_byte(disk: SimulatedDisk, tmp_path: Path) -> None:
    fd = make(disk, "a", b"o" * 100)
    disk.write(fd, [b"n" * 100], 0)
    found = {content.count(b"n") for content in contents(disk, tmp_path, "a") if content is not None}
    assert {0, 100} < found
    assert len(found) > 4


@proves("crash")
def test_an_unsynced_rename_and_an_unsynced_removal_are_done_or_not(disk: SimulatedDisk, tmp_path: Path) -> None:
    make(disk, "a", b"a")
    make(disk, "b", b"b")
    disk.rename(f"{disk.folder}/a", f"{disk.folder}/c")
    disk.remove(f"{disk.folder}/b")
    names = {tuple(sorted(path.name for path in image.iterdir())) for image in images(disk, tmp_path)}
    assert names == {("a", "b"), ("b", "c"), ("a",), ("c",)}


@proves("crash")
def test_after_a_failed_sync_the_next_one_says_fine_and_brings_nothing(disk: SimulatedDisk, tmp_path: Path) -> None:
    fd = make(disk, "a", b"o" * PAGE)
    disk.write(fd, [b"n" * PAGE], 0)
    disk.fail("sync", OSError(EIO, "no"))
    with pytest.raises(OSError, match="no"):
        disk.sync(fd)
    disk.sync(fd)
    assert disk.read(fd, 1, 0) == b"n"
    survivors = contents(disk, tmp_path, "a")
    assert len(survivors) == 1, "what the disk has was settled when the sync failed"


@proves("crash")
def test_after_the_cut_nothing_works_and_nothing_changes(disk: SimulatedDisk, tmp_path: Path) -> None:
    fd = make(disk, "a", b"synced")
    disk.cut_power_at(2)
    disk.write(fd, [b"SYNCED"], 0)
    with pytest.raises(PowerCut):
        disk.sync(fd)
    for operation in (lambda: disk.write(fd, [b"x"], 0), lambda: disk.list(str(disk.folder)), lambda: disk.sync(fd)):
        with pytest.raises(PowerCut):
            operation()
    assert contents(disk, tmp_path, "a") >= {b"synced", b"SYNCED"}


@proves("crash")
def test_a_full_disk_takes_a_part_and_then_nothing(disk: SimulatedDisk) -> None:
    disk.capacity = 10
    fd = make(disk, "a", b"12345678")
    assert disk.write(fd, [b"abcd"], 8) == 2
    with pytest.raises(OSError) as caught:
        disk.write(fd, [b"cd"], 10)
    assert caught.value.errno == ENOSPC
    assert disk.write(fd, [b"over"], 0) == 4, "what is there can be written over"
    assert disk.free_bytes(str(disk.folder)) == 0


@proves("crash")
def test_the_same_seed_gives_the_same_image(disk: SimulatedDisk, tmp_path: Path) -> None:
    fd = make(disk, "a", b"o" * 5 * PAGE)
    disk.write(fd, [b"n" * 5 * PAGE], 0)
    one, two = disk.crash(tmp_path / "one", 7), disk.crash(tmp_path / "two", 7)
    assert (one / "a").read_bytes() == (two / "a").read_bytes()


@proves("crash")
def test_a_flipped_bit_is_one_bit(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(8))
    flip_bit(path, 3, 5)
    assert path.read_bytes() == bytes([0, 0, 0, 32, 0, 0, 0, 0])
