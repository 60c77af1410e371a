"""How much of a segment is known to have been synced: believed as far as it goes, and no further."""

from __future__ import annotations

from pathlib import Path

import pytest

from log.partition import NOW, Partition, batch
from proving import proves
from tidelog.errors import HoleError
from tidelog.log.header_block import HEADER_BLOCK, SLOT_AT, unpack_block, unpack_slots
from tidelog.log.settings import LogSettings
from tidelog.testing.disk import flip_bit

SETTINGS = LogSettings(segment_bytes=20_000, index_interval_bytes=500)
SIZE = len(batch(b"0" * 800))


def filled(folder: Path, count: int) -> Partition:
    partition = Partition(folder, settings=SETTINGS)
    for number in range(count):
        partition.put(b"%d" % (number % 10) * 800)
    return partition


@proves("T1")
def test_a_slot_that_was_torn_while_it_was_written_leaves_the_one_before_it(tmp_path: Path) -> None:
    partition = filled(tmp_path / "p", 8)
    (log,) = (tmp_path / "p").glob("*.log")
    newest = unpack_slots(log.read_bytes())
    assert newest is not None
    assert newest.synced_position == HEADER_BLOCK + 7 * SIZE, "what the sync before the last made durable"
    flip_bit(log, SLOT_AT[newest.sequence & 1] + 3)
    before = unpack_block(log.read_bytes(), str(log))
    assert before is not None and before.slot is not None
    assert before.slot.synced_position == HEADER_BLOCK + 6 * SIZE
    flip_bit(log, HEADER_BLOCK + SIZE + 200)
    again = partition.reopen()
    assert (again.log.end_offset, again.log.recovery.cut_bytes) == (8, 0), "what was synced is never cut"
    with pytest.raises(HoleError, match="offsets 1 to 1"):
        again.log.read(1, 1).warm()


@proves("T1")
@pytest.mark.parametrize("lost", [1, 3 * SIZE, 9 * SIZE + 100])
def test_an_index_of_bytes_that_are_gone_is_not_believed(tmp_path: Path, lost: int) -> None:
    partition = filled(tmp_path / "p", 40)
    first, second = sorted((tmp_path / "p").glob("*.log"))[:2]
    size, following = first.stat().st_size - lost, int(second.stem)
    first.write_bytes(first.read_bytes()[:size])
    there = (size - HEADER_BLOCK) // SIZE
    again = partition.reopen()
    for offset in reversed(range(following)):
        if offset < there:
            assert [row.offset for row in again.rows(offset, 1).rows()] == [offset]
        else:
            with pytest.raises(HoleError, match=f"offsets {there} to {following - 1} "):
                again.log.read(offset, 1)
    assert [hole[:2] for hole in again.log.holes] == [(there, following)]
    assert again.log.offset_at(NOW) == (0, NOW)
    assert [row.offset for row in again.rows(following, 1).rows()] == [following]
