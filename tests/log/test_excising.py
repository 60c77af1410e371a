"""Excision of one partition: what was taken out is in no file, everything else is as it was, whatever happens."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from crash.power_cut import quick_folder
from log.compaction.table import Table
from log.partition import NOW, Partition, batch
from proving import proves
from tidelog.errors import StorageError
from tidelog.log.settings import LogSettings
from tidelog.record import codec
from tidelog.record.columns import decode, encode
from tidelog.testing.disk import PowerCut, SimulatedDisk, flip_bit

SECRET = b"alice@example.org"
SMALL = LogSettings(segment_bytes=9000, index_interval_bytes=300)


def excise(partition: Partition, *offsets: int) -> tuple[int, StorageError | None]:
    told: list[tuple[int, StorageError | None]] = []
    partition.log.excise(offsets, NOW, lambda removed, error: told.append((removed, error)))
    partition.commit()
    (outcome,) = told
    return outcome


def files_with(folder: Path, secret: bytes = SECRET) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and secret in path.read_bytes())


def fill(partition: Partition, count: int = 30, secrets: Iterable[int] = (7,)) -> None:
    for number in range(count):
        value = SECRET + b"-%d" % number if number in secrets else b"value-%d" % number
        partition.append(batch(value + b"." * 400))
    partition.commit()


def values(partition: Partition) -> list[bytes | None]:
    """Everything that can be read. A batch without records is passed, as consumers do."""
    found: list[bytes | None] = []
    offset = partition.log.start_offset
    while (piece := partition.log.read(offset, 1)) is not None:
        data = bytes(piece.read())
        found += [row.value for row in decode(data, partial=False).rows() if row.offset >= offset]
        offset = codec.scan(data).headers[-1].next_offset
    return found


def expected(count: int, without: Iterable[int]) -> list[bytes]:
    return [b"value-%d" % number + b"." * 400 for number in range(count) if number not in without]


@proves("E6", "es.21")
def test_an_excised_record_is_in_no_file_and_all_others_keep_their_offsets(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "p", settings=SMALL)
    fill(partition, secrets=(7, 8, 21))
    assert len(files_with(tmp_path)) >= 2, "the search finds what is there"
    assert excise(partition, 7, 8, 21) == (3, None)
    assert files_with(tmp_path) == []
    assert values(partition) == expected(30, (7, 8, 21))
    rows = partition.rows(9)
    assert rows is not None
    assert rows.offsets[0] == 9
    again = partition.reopen()
    assert values(again) == expected(30, (7, 8, 21))
    assert again.log.end_offset == 30
    assert again.put(b"next").base_offset == 30


@proves("E6", "es.21")
def test_the_segment_that_grows_is_ended_for_it(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "p")
    fill(partition, 3, secrets=(2,))
    assert excise(partition, 2) == (1, None)
    assert files_with(tmp_path) == []
    assert values(partition) == expected(2, ())
    assert partition.log.end_offset == 3
    assert partition.put(b"later").base_offset == 3


@proves("E6")
def test_it_is_ended_also_while_appends_are_under_way(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "p")
    fill(partition, 3, secrets=(2,))
    partition.append(batch(b"under way"))
    assert excise(partition, 2) == (1, None)
    assert files_with(tmp_path) == []
    assert values(partition) == [*expected(2, ()), b"under way"]


@proves("E6", "es.21")
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_of_a_batch_only_that_record_goes_and_the_header_stays(tmp_path: Path, compression: str) -> None:
    partition = Partition(tmp_path / "p")
    headers = [("who", b"me"), ("who", None)]
    rows = [(b"key-%d" % number, b"value-%d" % number, headers, NOW + number) for number in range(5)]
    rows[3] = (SECRET, SECRET, [("mail", SECRET)], NOW + 99)
    stamps = {"producer_id": 4, "producer_epoch": 1, "base_sequence": 20}
    partition.append(encode(rows, compression=compression, **stamps))  # type: ignore[arg-type]
    partition.commit()
    before = codec.peek(_first_batch(partition))
    found = decode(_first_batch(partition)).rows()
    others = [row for row in found if row.offset != 3]
    assert excise(partition, 3) == (1, None)
    data = _first_batch(partition)
    assert codec.scan(data).headers[0]._replace(size=0) == before._replace(size=0, count=4)
    assert list(decode(data).rows()) == others
    assert SECRET not in data
    again = partition.reopen()
    assert list(decode(_first_batch(again)).rows()) == others


def _first_batch(partition: Partition) -> bytes:
    piece = partition.log.read(0, 1)
    assert piece is not None
    return bytes(piece.read())


@proves("E6")
def test_a_producer_goes_on_where_it_was_though_its_last_batch_is_empty(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "p")
    partition.append(batch(SECRET, b"other", producer=(9, 0, 0)))
    partition.commit()
    assert excise(partition, 0, 1) == (2, None)
    for life in (partition, partition.reopen(), partition.reopen()):
        for name in [path for path in (tmp_path / "p").iterdir() if path.suffix == ".snapshot"]:
            name.unlink()
        sent = life.append(batch(SECRET, b"other", producer=(9, 0, 0)))
        assert (sent.duplicate, sent.base_offset) == (True, 0)
        life.commit()
    life = partition.reopen()
    assert life.append(batch(b"more", producer=(9, 0, 2))).base_offset == 2
    life.commit()
    assert files_with(tmp_path) == []


@proves("E6")
@pytest.mark.parametrize("commit", [True, False])
def test_records_of_transactions_go_and_the_transactions_end_as_they_would(tmp_path: Path, commit: bool) -> None:
    partition = Partition(tmp_path / "p")
    partition.append(batch(SECRET, b"kept", producer=(3, 0, 0), transactional=True))
    partition.append(batch(b"of nobody"))
    partition.commit()
    assert partition.log.last_stable_offset == 0
    assert excise(partition, 0) == (1, None)
    assert partition.log.last_stable_offset == 0
    again = partition.reopen()
    assert again.log.last_stable_offset == 0
    again.mark(3, commit=commit)
    again.commit()
    assert again.log.last_stable_offset == 4
    assert values(again)[:2] == [b"kept", b"of nobody"]
    assert files_with(tmp_path) == []
    assert len(list(again.log.stable().aborted.between(0, 4, 4))) == (0 if commit else 1)


@proves("E6")
def test_a_marker_stays_and_counts_for_nothing(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "p")
    partition.append(batch(b"kept", producer=(3, 0, 0), transactional=True))
    partition.mark(3, commit=True)
    partition.commit()
    assert excise(partition, 1) == (0, None)
    assert partition.reopen().log.last_stable_offset == 2


@proves("E6")
def test_what_is_not_there_yet_is_refused_and_what_is_gone_is_nothing(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "p", settings=SMALL)
    fill(partition)
    removed, error = excise(partition, 30)
    assert removed == 0
    assert "offset 30 is not there yet" in str(error)
    assert excise(partition, 7) == (1, None)
    assert excise(partition, 7) == (0, None)
    partition.log.delete_before(12)
    partition.commit()
    assert excise(partition, 2) == (0, None)


@proves("E6")
def test_what_lies_below_the_start_in_a_file_that_is_there_goes_too(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "p")
    fill(partition, 10, secrets=(1,))
    partition.log.delete_before(5)
    partition.commit()
    assert files_with(tmp_path) != []
    assert excise(partition, 1) == (1, None)
    assert files_with(tmp_path) == []


@proves("E6")
def test_what_recovery_has_cut_aside_goes_too(tmp_path: Path) -> None:
    """A batch that was torn, and sent again: the torn one is in a side file."""
    partition = Partition(tmp_path / "p")
    fill(partition, 1)
    partition.commit()
    (path,) = (tmp_path / "p").glob("*.log")
    with path.open("ab") as file:
        file.write(bytes(batch(SECRET + b"." * 100))[:150])
    again = partition.reopen()
    assert [name.rpartition(".")[2] for name in files_with(tmp_path)] == ["cut"]
    again.append(batch(SECRET + b"." * 100))
    again.commit()
    assert excise(again, 1) == (1, None)
    assert files_with(tmp_path) == []


@proves("E6")
def test_a_reader_that_has_the_old_file_reads_on_in_it(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "p", settings=SMALL)
    fill(partition)
    begun = partition.log.read(0, 3000)
    assert begun is not None
    assert excise(partition, 7) == (1, None)
    assert decode(begun.read()).offsets[0] == 0
    assert b"value-0" in bytes(begun.read())


@proves("E6")
def test_a_pass_of_compaction_that_is_under_way_does_not_bring_it_back(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    table.fill(40)
    table.write((b"key-secret", SECRET))
    table.fill(40)
    assert files_with(tmp_path) != []
    assert table.turn(max_bytes=1).more, "a pass is under way"
    turns: list[object] = []
    table.log.compact(NOW, 1 << 20, turns.append, 1 << 20)
    assert excise(table, 40) == (1, None)
    assert files_with(tmp_path) == []
    table.compact()
    again = table.reopen()
    assert files_with(tmp_path) == []
    assert again.log.end_offset == 81


@proves("E6")
def test_a_damaged_segment_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "p", settings=SMALL)
    fill(partition)
    path = min((tmp_path / "p").glob("*.log"))
    flip_bit(path, 4096 + 300, 3)
    removed, error = excise(partition, 7)
    assert removed == 0
    assert "segment 0 is damaged" in str(error)
    assert excise(partition, 25) == (1, None), "others are not concerned"


@proves("E6")
@pytest.mark.slow
def test_the_power_may_go_at_every_operation_of_an_excision() -> None:
    with quick_folder() as folder:
        for cut in range(1, 200):
            disk = SimulatedDisk(folder / f"cut{cut}" / "disk")
            partition = Partition(folder / f"cut{cut}" / "disk" / "p", disk, SMALL)
            fill(partition, secrets=(7, 29))
            disk.cut_power_at(cut)
            whole = False
            with suppress(PowerCut, StorageError, ValueError):
                whole = excise(partition, 7, 29) == (2, None)
            for seed in range(3):
                image = SimulatedDisk(disk.crash(folder / f"cut{cut}" / f"image{seed}", seed))
                _check_image(image, folder / f"cut{cut}" / f"image{seed}", whole)
            if whole:
                return
    raise AssertionError("the excision never ended")


def _check_image(disk: SimulatedDisk, folder: Path, whole: bool) -> None:
    """Nothing is lost; what was told to be done stays done; and done again it is done."""
    if whole:
        assert files_with(folder) == []
    partition = Partition(folder / "p", disk, SMALL)
    kept = [value for value in values(partition) if value is not None and not value.startswith(SECRET)]
    assert kept == expected(30, (7, 29))
    removed, error = excise(partition, 7, 29)
    assert error is None
    assert removed <= 2
    assert files_with(folder) == []
    assert values(partition) == kept
