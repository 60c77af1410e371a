"""Rot on top of a power cut: a flipped bit is a hole where it was synced, a cut above, and never served or silent."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from crash.power_cut import NOW, READ_BYTES, SETTINGS, Story, quick_folder
from log.partition import batch
from proving import proves
from tidelog.errors import HoleError
from tidelog.log.commit import Committer
from tidelog.log.log import Log
from tidelog.record import codec
from tidelog.testing.disk import SimulatedDisk, flip_bit

FEW = 120
MANY = int(os.environ.get("TIDELOG_SEEDS", "300"))
FIRST = int(os.environ.get("TIDELOG_SEED", "1"))


def read_all(log: Log, committer: Committer) -> tuple[dict[int, bytes], list[tuple[int, int]]]:
    """Every good batch by its offset, and the holes between them: together they are dense."""
    found: dict[int, bytes] = {}
    holes = []
    offset = log.start_offset
    while offset < log.high_watermark:
        try:
            piece = log.read(offset, READ_BYTES)
            assert piece is not None
            piece.warm()
        except HoleError:
            committer.settle()
            hole = next(hole for hole in log.holes if hole.base_offset <= offset < hole.end_offset)
            assert hole.end_offset > offset
            holes.append((hole.base_offset, hole.end_offset))
            offset = hole.end_offset
            continue
        data = piece.read()
        scan = codec.scan(data)
        assert scan.error is None, "what is served is good"
        for position, header in zip(scan.positions, scan.headers, strict=True):
            assert header.base_offset <= offset < header.next_offset, "a jump"
            found[header.base_offset] = data[position : position + header.size]
            offset = header.next_offset
    return found, holes


def rot(seed: int, folder: Path) -> None:
    """A life, a last commit, a power cut, one flipped bit in one file, and what a reader then gets."""
    story = Story(folder, seed)
    story.live(steps=120, cut_after=10**9)
    story.committer.settle()
    assert story.log is not None
    certain = story.log.high_watermark
    for number in range(3):
        story.append_alone(b"in the last commit %d" % number)
    story.committer.settle()
    story.crash()
    rng = random.Random(seed)
    path = rng.choice([path for path in sorted((story.disk.folder / "p").iterdir()) if path.stat().st_size])
    flip_bit(path, rng.randrange(path.stat().st_size), rng.randrange(8))
    disk = SimulatedDisk(story.disk.folder)
    committer = Committer(disk, lambda: None, threads=False)
    log = Log.open(f"{disk.folder}/p", disk, SETTINGS, committer)
    found, holes = read_all(log, committer)
    lost = [
        offset for offset, data in story.told.acked.items() if offset >= log.start_offset and found.get(offset) != data
    ]
    for offset in lost:
        in_hole = any(start <= offset < end for start, end in holes)
        was_cut = log.recovery.cut_bytes > 0 and log.end_offset <= offset >= certain
        assert in_hole or was_cut, f"{path.name}: offset {offset} vanished without a word"
    assert len(lost) <= 1 or min(lost) >= certain, f"{path.name}: one bit took {lost}"
    data = batch(b"after")
    done = log.append(memoryview(data), codec.check(data), NOW)
    committer.settle()
    assert log.high_watermark == done.base_offset + 1, "and the partition goes on"


def run(folder: Path, first: int, count: int) -> None:
    for seed in range(first, first + count):
        try:
            rot(seed, folder / str(seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@proves("T1")
@pytest.mark.slow
def test_a_flipped_bit_is_never_served_and_takes_one_batch_at_most() -> None:
    with quick_folder() as folder:
        run(folder, 1, FEW)


@proves("T1")
@pytest.mark.soak
def test_a_flipped_bit_is_never_served_with_many_seeds() -> None:
    with quick_folder() as folder:
        run(folder, FIRST * MANY, MANY)
