"""A partition of format 1, kept as it was: opened, read, written on, and as the pages in docs/formats draw it."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from log.partition import NOW, Partition, batch
from proving import proves
from tidelog.log.clean_mark import CleanMark
from tidelog.log.settings import LogSettings
from tidelog.record import codec

KEPT = Path(__file__).parent / "format1" / "p"
SETTINGS = LogSettings(segment_bytes=9000, index_interval_bytes=200, durable=False)
MARK = CleanMark(start_offset=3, end_offset=25, leader_epoch=1, size_bytes=14590, position=5823)
VALUES = [b"record %d.%d " % (number // 2, number % 2) * 20 for number in range(24)] + [b"after the unclean stop"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(KEPT, tmp_path / "p")


def check_crc(data: bytes) -> None:
    assert struct.unpack(">I", data[-4:])[0] == codec.crc32c(data[:-4])


@proves("T6")
@pytest.mark.parametrize("clean", [MARK, None], ids=["clean", "unclean"])
def test_a_partition_of_format_1_is_opened_read_and_written_on(folder: Path, clean: CleanMark | None) -> None:
    partition = Partition(folder, settings=SETTINGS, clean=clean)
    assert partition.values() == VALUES[3:]
    log = partition.log
    assert log.leader_epoch == (1 if clean else 2)
    assert [log.epoch_at(offset) for offset in (3, 23, 24)] == [0, 0, 1]
    assert log.offset_at(NOW + 100) == (20, NOW + 100)
    assert log.recovery.cut_bytes == 0
    assert partition.append(batch(b"after the unclean stop", producer=(1001, 0, 24))).duplicate
    partition.append(batch(b"written on", producer=(1001, 0, 25)))
    partition.commit()
    assert partition.reopen().values() == [*VALUES[3:], b"written on"]


@proves("T6")
def test_a_segment_is_as_its_page_draws_it() -> None:
    data = (KEPT / "00000000000000000018.log").read_bytes()
    assert struct.unpack_from(">8sH2xqq", data) == (b"TIDELOGS", 1, 18, NOW)
    check_crc(data[:32])
    slots = []
    for at in (512, 1024):
        check_crc(data[at : at + 28])
        slots.append(struct.unpack_from(">QqQ", data, at))
    assert {sequence % 2 for sequence, _, _ in slots} == {0, 1}
    assert slots[0][0] % 2 == 0
    assert max(slots)[1:] == (25, len(data))
    assert not any(data[1052:4096])
    scan = codec.scan(data, 4096)
    assert scan.error is None
    assert [header.base_offset for header in scan.headers] == [18, 20, 22, 24]


@proves("T6")
def test_an_index_is_as_its_page_draws_it() -> None:
    data = (KEPT / "00000000000000000000.index").read_bytes()
    assert struct.unpack_from(">8sH2xq", data) == (b"TIDEINDX", 1, 0)
    check_crc(data[:24])
    count, flags, end_offset, end_position, latest, latest_offset = struct.unpack_from(">IIqQqq", data, 24)
    assert (flags, end_offset, latest, latest_offset) == (1, 18, NOW + 81, 16)
    assert end_position == (KEPT / "00000000000000000000.log").stat().st_size
    check_crc(data[24:])
    columns = struct.unpack_from(f">{count}I{count}I{count}q", data, 64)
    offsets, positions, times = columns[:count], columns[count : 2 * count], columns[2 * count :]
    assert offsets == tuple(range(0, 18, 2))
    assert positions[0] == 4096
    assert times == (-1, *(NOW + number * 10 + 1 for number in range(8)))


@proves("T6")
def test_a_snapshot_is_as_its_page_draws_it() -> None:
    data = (KEPT / "00000000000000000025.producers").read_bytes()
    assert struct.unpack_from(">8sH2xqqQ", data) == (b"TIDEPROD", 1, 25, 18, 5823)
    assert struct.unpack_from(">I", data, 36)[0] == codec.crc32c(data[40:], codec.crc32c(data[:36]))
    assert struct.unpack_from(">qh8xB", data, 40) == (1001, 0, 5)
    last = struct.unpack_from(">iiqq", data, len(data) - 24)
    assert last == (24, 24, 24, -1)


@proves("T6")
def test_the_facts_are_as_their_page_draws_them() -> None:
    text = (KEPT / "partition").read_bytes()
    body, crc = text[:-13], text[-13:]
    assert body.decode().splitlines() == ["tidelog partition 1", "start 3", "volatile", "epoch 0 0", "epoch 1 24"]
    assert crc == b"crc %08x\n" % codec.crc32c(body)
