"""One flipped bit anywhere in a compacted segment is found: in a record, in a header, in a batch without records."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from crash.power_cut import quick_folder
from log.compaction.table import Table
from proving import proves
from tidelog.errors import HoleError
from tidelog.log.header_block import HEADER_BLOCK
from tidelog.record.columns import Row
from tidelog.testing.disk import flip_bit

FLIPS = 80


def readable(table: Table) -> list[Row]:
    """What can be read around what cannot."""
    rows: list[Row] = []
    offset = 0
    while offset < table.log.high_watermark:
        try:
            rows += table.records(offset)
            return rows
        except HoleError:
            hole = next(hole for hole in table.log.holes if hole.end_offset > offset)
            rows += [row for at in range(offset, hole.base_offset) for row in _at(table, at)]
            offset = hole.end_offset
    return rows


def _at(table: Table, offset: int) -> list[Row]:
    found = table.rows(offset, 1)
    assert found is not None
    return [row for row in found.rows() if row.offset == offset]


@proves("T1", "T6", "D5")
def test_a_flipped_bit_in_a_compacted_segment_is_found_and_costs_no_other_batch() -> None:
    with quick_folder() as folder:
        table = Table(folder / "p")
        table.fill(40, keys=4, size=60)
        table.write((b"key-1", None), (b"other", b"kept"))
        table.fill(60, keys=4, size=60)
        table.compact()
        whole = table.records()
        table.log.close()
        rng = random.Random(1)
        for number in range(FLIPS):
            copy = shutil.copytree(folder / "p", folder / f"flip{number}")
            path: Path = rng.choice(sorted(copy.glob("*-*.log")))
            place = rng.randrange(HEADER_BLOCK, path.stat().st_size)
            flip_bit(path, place, rng.randrange(8))
            damaged = Table(copy)
            scrubbed = damaged.log.scrub(1 << 30)
            assert len(scrubbed.holes) == 1, f"byte {place} of {path.name}"
            (hole,) = scrubbed.holes
            assert hole.position <= place < hole.end_position
            found = readable(damaged)
            assert found == [row for row in whole if not hole.base_offset <= row.offset < hole.end_offset]
            shutil.rmtree(copy)
