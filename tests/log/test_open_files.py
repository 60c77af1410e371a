"""Open files: a cache with a limit, and readers who hold on to what it has let go of."""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from log.partition import Partition
from proving import proves
from tidelog.log.files import RealFiles
from tidelog.log.open_files import HELD_AT_LEAST
from tidelog.log.settings import LogSettings
from tidelog.log.slice import Cold, Slice

SETTINGS = LogSettings(segment_bytes=6000)
LIMIT = 3
SEGMENTS = 2 * HELD_AT_LEAST


def open_in(folder: Path) -> int:
    """How many of this process's descriptors are files of the folder."""
    found = list(Path("/proc/self/fd").iterdir())
    return sum(path.is_symlink() and path.readlink().is_relative_to(folder) for path in found)


def filled(folder: Path) -> Partition:
    partition = Partition(folder, settings=SETTINGS, open_files_limit=LIMIT)
    for number in range(2 * SEGMENTS):
        partition.put(b"%d" % (number % 10) * 800)
    assert len(partition.log.segments()) == SEGMENTS
    return partition


def hold_all(partition: Partition) -> list[Slice]:
    """What a slow client that asks for every segment holds in the end."""
    found = [partition.log.read(segment.base_offset, 1) for segment in partition.log.segments()]
    return [piece for piece in found if piece is not None]


@proves("T5")
@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are counted in /proc")
def test_readers_who_are_slow_leave_descriptors_for_whoever_writes(tmp_path: Path) -> None:
    partition = filled(tmp_path / "p")
    slow = hold_all(partition)
    assert LIMIT < len(slow) < SEGMENTS
    assert open_in(tmp_path) <= LIMIT + HELD_AT_LEAST + 1
    partition.put(b"more" * 2000)
    assert partition.visible[-1] == (2 * SEGMENTS, None)
    for piece in slow:
        piece.release()
    assert len(partition.values()) == 2 * SEGMENTS + 1


@proves("T5")
def test_what_is_open_is_read_however_many_are_held(tmp_path: Path) -> None:
    partition = filled(tmp_path / "p")
    slow = hold_all(partition)
    with pytest.raises(Cold):
        partition.log.read(2 * SEGMENTS - 9, 1, wait=False)
    assert partition.log.read(2 * SEGMENTS - 9, 1) is None
    partition.put(b"newest")
    newest = partition.log.read(2 * SEGMENTS, 1, wait=False)
    assert newest is not None
    assert b"newest" in newest.read()
    assert len(slow) < SEGMENTS


@contextmanager
def no_descriptors() -> Iterator[None]:
    """This process cannot open anything, but for what it closes."""
    gc.disable()  # what earlier tests have abandoned would be closed meanwhile
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        gc.enable()


@proves("T5")
def test_a_folder_can_be_synced_when_the_process_has_no_descriptors_left(tmp_path: Path) -> None:
    files = RealFiles()
    with no_descriptors():
        with pytest.raises(OSError, match="Too many open files"):
            files.open(str(tmp_path / "x"), create=True)
        for _ in range(3):
            files.sync_folder(str(tmp_path))


@proves("T5")
def test_other_faults_of_a_folder_are_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        RealFiles().sync_folder(str(tmp_path / "gone"))
