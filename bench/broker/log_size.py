"""Row `size`: launch to first ack with a log of 1, 10 and 100 GB, after a clean stop and after `kill -9`.

The log is made of sparse files, as a broker would have left them: batches of about 1 MB whose values are zeros, so
that only their headers take room on the disk, with indexes and snapshots beside them.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from bench.broker.bench import Bench
from bench.broker.figures import TIDELOG_DISK
from bench.broker.startup import seconds_to_first_ack

from against.tidelog_process import TidelogProcess
from tidelog.log import index as index_file
from tidelog.log import snapshot
from tidelog.log.files import RealFiles
from tidelog.log.header_block import HEADER_BLOCK, SLOT_AT, Slot, pack_block, pack_slot
from tidelog.log.snapshot import Snapshot
from tidelog.record.codec import patch
from tidelog.record.columns import encode

GIGABYTES = (1, 10, 100)
SEGMENT_BATCHES = 1000
VALUE_SIZE = 1_000_000
STAMP = 1_700_000_000_000
INTERVAL = 4096
IN_DOUBT = 8
INTERNAL = b"__".hex()


def run(bench: Bench) -> None:
    for size in GIGABYTES[: 1 if bench.quick else None]:
        broker = bench.new_tidelog({"log.retention.ms": "-1"})
        seconds_to_first_ack(broker)
        broker.kill()
        _fill(_partition_folder(broker), segments=size)
        _measure(bench, broker, f"start with {size} GB")
        bench.discard(broker)


def _measure(bench: Bench, broker: TidelogProcess, row: str) -> None:
    seconds_to_first_ack(broker)
    for _ in range(bench.reps):
        broker.kill()
        bench.figures.add(row, "after kill -9 ms", TIDELOG_DISK, seconds_to_first_ack(broker) * 1000)
        broker.stop()
        bench.figures.add(row, "after a clean stop ms", TIDELOG_DISK, seconds_to_first_ack(broker) * 1000)


def _partition_folder(broker: TidelogProcess) -> Path:
    found = [folder for folder in broker.data.glob("*-0") if not folder.name.startswith(INTERNAL)]
    assert len(found) == 1, found
    return found[0]


def _fill(folder: Path, segments: int) -> None:
    for path in folder.iterdir():
        path.unlink()
    for number in range(segments):
        _write_segment(folder, number * SEGMENT_BATCHES, SEGMENT_BATCHES)
    last = segments * SEGMENT_BATCHES
    kept = _write_segment(folder, last, SEGMENT_BATCHES // 2, complete=False)
    snapshot.write(RealFiles(), str(folder), Snapshot(kept.synced_offset, last, kept.synced_position, {}))


def _write_segment(folder: Path, base_offset: int, batches: int, *, complete: bool = True) -> Slot:
    """One-record batches from `base_offset` on; of an incomplete segment the last IN_DOUBT are not marked as synced."""
    batch = encode([(None, bytes(VALUE_SIZE), None, STAMP)])
    patch(batch, 0, 0)
    written = bytes(batch).rstrip(b"\0")
    index = index_file.Index(base_offset)
    descriptor = os.open(folder / f"{base_offset:020d}.log", os.O_CREAT | os.O_WRONLY)
    os.pwrite(descriptor, pack_block(base_offset, STAMP), 0)
    position = HEADER_BLOCK
    for offset in range(base_offset, base_offset + batches):
        os.pwrite(descriptor, struct.pack(">q", offset) + written[8:], position)
        index.note(offset, position, STAMP, INTERVAL)
        position += len(batch)
    os.truncate(descriptor, position)
    doubtful = 0 if complete else IN_DOUBT
    synced = Slot(2, base_offset + batches - doubtful, position - doubtful * len(batch))
    os.pwrite(descriptor, pack_slot(synced), SLOT_AT[0])
    os.close(descriptor)
    covered = index.covered(index_file.BatchStart(synced.synced_position, synced.synced_offset), complete=complete)
    blocks = index_file.head(base_offset) + index_file.block(index, 0, len(index) - doubtful, covered)
    (folder / f"{base_offset:020d}.index").write_bytes(blocks)
    return synced
