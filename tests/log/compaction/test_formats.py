"""A compacted partition, kept as it was: opened, read, written on and compacted again, and as docs/formats draws it."""

from __future__ import annotations

import shutil
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from log.compaction.table import SETTINGS, Table
from log.partition import NOW
from proving import proves
from tidelog.log.settings import DAY_MS
from tidelog.record import codec
from tidelog.record.header import DELETE_HORIZON_BIT

KEPT = Path(__file__).parent / "format2" / "p"
COMPACTED = f"{0:020d}-{8:020d}-1"
FOUND = [
    (3, NOW + 20, b"gone", None),
    (4, NOW + 20, b"b", b"kept" * 30),
    *((7 + n, NOW + 32 + n, b"a", b"again %d " % (n + 2) * 20) for n in range(7)),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(KEPT, tmp_path / "p")


@proves("T6", "D5")
def test_a_compacted_partition_is_opened_read_and_compacted_again(folder: Path) -> None:
    table = Table(folder, settings=replace(SETTINGS, segment_bytes=5500))
    assert [row[:4] for row in table.records()] == FOUND
    assert table.first_dirty == 8
    assert table.log.producers[7].last_sequence == 0
    assert table.log.offset_at(NOW) == (3, NOW + 20)
    table.fill(9, keys=1)
    table.compact(NOW + 2 * DAY_MS)
    assert [row.key for row in table.records() if row.offset < table.active] == [b"b", b"a", b"key-0"]


@proves("T6", "D5")
def test_a_compacted_segment_is_as_its_page_draws_it() -> None:
    data = (KEPT / f"{COMPACTED}.log").read_bytes()
    assert struct.unpack_from(">8sH2xqq", data) == (b"TIDELOGS", 1, 0, NOW)
    assert struct.unpack_from(">QqQ", data, 512) == (2, 8, len(data))
    gap, remembered, dated, *_ = found = codec.scan(data, 4096).headers
    assert [(header.base_offset, header.next_offset, header.count) for header in found] == [
        (0, 2, 0),
        (2, 3, 0),
        (3, 5, 2),
        (5, 7, 0),
        (7, 8, 1),
    ]
    assert gap == (0, 61, 0, 0, 1, -1, -1, -1, -1, -1, 0)
    assert (remembered.producer_id, remembered.producer_epoch, remembered.base_sequence) == (7, 0, 0)
    assert (remembered.base_timestamp, remembered.max_timestamp) == (-1, NOW + 10)
    assert dated.attributes == DELETE_HORIZON_BIT
    assert (dated.base_timestamp, dated.max_timestamp) == (NOW + DAY_MS, NOW + 20)


@proves("T6", "D5")
def test_the_facts_say_how_far_compaction_has_come() -> None:
    text = (KEPT / "partition").read_bytes()
    body, crc = text[:-13], text[-13:]
    assert body.decode().splitlines() == ["tidelog partition 2", "start 0", "dirty 8", "epoch 0 0"]
    assert crc == b"crc %08x\n" % codec.crc32c(body)
