"""A partition is compacted beside all that happens to it: readers, retention, faults, deletion, settings."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from errno import EIO, ENOSPC
from pathlib import Path

import pytest

from crash.power_cut import quick_folder
from log.compaction.table import SETTINGS, Table, last_of_each
from log.partition import NOW, UnsyncedFiles
from proving import proves
from tidelog.errors import HoleError
from tidelog.log.commit import Committer
from tidelog.log.compaction.compactor import Turn
from tidelog.log.files import RealFiles
from tidelog.log.index import BatchStart
from tidelog.log.log import Log
from tidelog.log.segment import Name, newest
from tidelog.log.settings import DAY_MS, LogSettings
from tidelog.record import codec
from tidelog.record.columns import decode, encode
from tidelog.testing.disk import PowerCut, SimulatedDisk, flip_bit

IMAGES = 3
STEPS_MAX = 2000
PATIENCE_S = 180.0
PASSES = 6


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "p")


# What a pass does -----------------------------------------------------------------------------------------------------


@proves("T6", "T8", "D5")
def test_a_pass_leaves_the_last_record_of_each_key_and_fewer_segments(table: Table) -> None:
    table.fill(60)
    before, segments, size = table.records(), len(table.log.segments()), table.log.size_bytes
    turns = table.compact()
    (over,) = [turn.over for turn in turns if turn.over is not None]
    assert table.records() == last_of_each(before, table.active)
    assert (over.start, over.end) == (0, table.active) == (0, table.first_dirty)
    assert (over.tally.records_before, over.tally.records_after) == (table.active, 5)
    assert len(table.log.segments()) < segments
    assert table.log.size_bytes < size / 2
    assert table.trouble == []


@proves("T6", "D5")
def test_how_far_compaction_has_come_outlives_the_process(table: Table) -> None:
    table.fill(60)
    table.compact()
    for clean in (True, False):
        again = table.again(clean=clean)
        again.log.load()
        assert again.first_dirty == table.first_dirty > 0
        assert again.turn() == Turn(more=False)
        assert again.records() == table.records()


@proves("T6", "D5")
def test_a_second_pass_reads_only_new_records_for_their_keys_and_writes_nothing_that_stays(table: Table) -> None:
    table.fill(60)
    table.compact()
    files = {path.name: path.stat().st_mtime_ns for path in table.folder.glob("*-*.log")}
    for number in range(14):
        table.write((b"other-%d" % number, b"y" * 500))
    table.commit()
    turns = table.compact()
    (over,) = [turn.over for turn in turns if turn.over is not None]
    assert over.end == table.first_dirty == table.active
    there = {path.name: path.stat().st_mtime_ns for path in table.folder.glob("*-*.log")}
    assert files.items() <= there.items() or len(there) < len(files) + 2
    assert table.turn() == Turn(more=False)


@proves("T6", "D5")
def test_more_keys_than_memory_take_more_passes(table: Table) -> None:
    table.fill(60, keys=20)
    before = table.records()
    turns = table.compact(key_bytes=27 * 7)
    passes = [turn.over for turn in turns if turn.over is not None]
    assert len(passes) > 2
    assert [over.start for over in passes[1:]] == [over.end for over in passes[:-1]]
    assert table.records() == last_of_each(before, table.active)


@proves("T6", "D5")
def test_a_pass_goes_on_where_it_was_turn_by_turn(table: Table) -> None:
    table.fill(60)
    before = table.records()
    turns = table.compact(max_bytes=1)
    assert len(turns) > 20
    assert sum(turn.over is not None for turn in turns) == 1
    assert table.records() == last_of_each(before, table.active)


@proves("T6", "T8", "D5")
def test_tombstones_stay_for_their_time_and_take_what_they_cover_at_once(table: Table) -> None:
    table.fill(20)
    for key in range(5):
        table.write((b"key-%d" % key, None))
    table.fill(30, keys=1)
    table.compact()
    gone = [row.key for row in table.records() if row.offset < table.active]
    assert gone == [b"key-1", b"key-2", b"key-3", b"key-4", b"key-0"]
    table.fill(30, keys=1)
    table.compact(NOW + DAY_MS - 1)
    assert b"key-1" in [row.key for row in table.records()]
    table.fill(30, keys=1)
    table.compact(NOW + DAY_MS)
    assert {row.key for row in table.records()} == {b"key-0"}
    assert table.again().records() == table.records()


@proves("T6", "D5")
def test_the_segment_that_grows_is_ended_by_age_so_that_it_is_compacted_too(tmp_path: Path) -> None:
    table = Table(tmp_path / "p", settings=replace(SETTINGS, segment_ms=1000, segment_bytes=60_000))
    table.fill(5, keys=1)
    assert table.compact(NOW + 999)[-1] == Turn(more=False)
    assert len(table.records()) == 5
    table.compact(NOW + 1000)
    table.compact(NOW + 1000)
    assert len(table.records()) == 1
    assert table.first_dirty == table.log.high_watermark == 5
    assert table.turn(NOW + 5000) == Turn(more=False)
    assert len(table.log.segments()) == 2


@proves("T6", "T8", "D5")
def test_what_is_found_by_time_is_a_record_that_is_there(tmp_path: Path) -> None:
    table = Table(tmp_path / "p")
    for number in range(60):
        table.write((b"key-%d" % (number % 5), b"x" * 500), timestamp=NOW + number)
    table.commit()
    table.compact()
    rows = table.records()
    for at in range(60):
        assert table.log.offset_at(NOW + at) == next((r.offset, r.timestamp) for r in rows if r.timestamp >= NOW + at)
    assert table.log.max_timestamp() == (59, NOW + 59)


@proves("T6", "D5")
def test_producers_are_known_from_compacted_segments_alone(table: Table) -> None:
    for number in range(30):
        table.write(
            (b"k", b"%d" % number + b"x" * 500), producer_id=number % 3, producer_epoch=0, base_sequence=number // 3
        )
    table.fill(30, keys=1)
    table.commit()
    table.compact()
    for path in table.folder.glob("*.producers"):
        path.unlink()
    again = table.again()
    for one in (again, table):
        known = {number: producer.last_sequence for number, producer in one.log.producers.items()}
        assert known == {0: 9, 1: 9, 2: 9}


@proves("T6", "D5")
def test_a_snapshot_with_a_position_in_a_segment_that_was_compacted_since_is_read_all_the_same(table: Table) -> None:
    table.fill(2)
    table.log._upkeep.save(table.log._appending.plan_at_end(table.log._reading.segments[-1]))
    table.commit()
    kept = table.folder / f"{2:020d}.producers"
    saved = kept.read_bytes()
    for number in range(40):
        table.write((b"k", b"x" * 500), producer_id=9, producer_epoch=0, base_sequence=number)
    table.commit()
    table.compact()
    for path in table.folder.glob("*.producers"):
        path.unlink()
    kept.write_bytes(saved)
    again = table.again()
    assert again.log.holes == ()
    assert again.log.producers[9].last_sequence == 39
    assert again.records() == table.records()


# Beside readers -------------------------------------------------------------------------------------------------------


@proves("T6", "T1", "D5")
def test_whoever_reads_an_old_segment_reads_on(table: Table) -> None:
    table.fill(60)
    before = table.records()
    old = table.log._reading.segments[:-1]
    held = [table.log.read(segment.base_offset, 1 << 20) for segment in old]
    table.compact()
    replaced = [segment for segment in old if segment.end_offset is not None]
    assert len(replaced) > len(old) / 2
    assert not any(Path(segment.log_path).exists() for segment in replaced)
    rows = []
    for piece in held:
        assert piece is not None
        piece.warm()
        rows += decode(piece.read(), partial=False).rows()
    assert rows == [row for row in before if row.offset < table.active]
    for segment in replaced:  # one that had found its segment, and not yet its place there
        segment.let_go_of_index()
        end = table.log._reading.end_of(segment)
        assert table.log._reading._find(segment, end.offset - 1, wait=True).base_offset == end.offset - 1
        assert table.log._reading._position_of(segment, end.offset, wait=True) == segment.end
    assert not any(Path(segment.index_path).exists() for segment in replaced)
    assert table.log.holes == ()


@proves("T6", "T1", "D5")
def test_damage_in_a_segment_that_was_replaced_is_no_hole(table: Table) -> None:
    table.fill(60)
    piece = table.log.read(0, 1 << 20)
    assert piece is not None
    table.compact()
    real = RealFiles()
    real.write(piece.fileno(), (b"rot",), piece.position + 100)
    start = BatchStart(piece.position, piece.base_offset)
    assert isinstance(table.log._reading.found_bad(piece._segment, start, "rot"), HoleError)
    table.commit()
    assert table.log.holes == ()
    assert len(table.records()) > 0


@proves("T6", "T1", "D5")
def test_readers_writers_and_compaction_in_threads_of_their_own(tmp_path: Path) -> None:
    settings = LogSettings(
        segment_bytes=20_000, index_interval_bytes=500, compact=True, min_cleanable_ratio=0.0, durable=False
    )
    committer = Committer(UnsyncedFiles(), lambda: None)
    committer.start()
    log = Log.open(str(tmp_path / "p"), committer.files, settings, committer)
    faults: list[BaseException] = []
    stop = threading.Event()

    def read() -> None:
        try:
            while not stop.is_set():
                offset = log.start_offset
                while (piece := log.read(offset, 3000)) is not None and not stop.is_set():
                    piece.warm()
                    for header in codec.scan(piece.read()).headers:
                        assert header.base_offset <= offset < header.next_offset
                        offset = header.next_offset
                    piece.release()
                    time.sleep(0.0005)
        except BaseException as error:
            faults.append(error)

    readers = [threading.Thread(target=read, daemon=True) for _ in range(2)]
    turns: list[Turn] = []
    number = 0
    while sum(turn.over is not None for turn in turns) < PASSES and not faults:
        for _ in range(20):
            data = encode([(b"key-%d" % (number % 13), b"x" * 300, None, NOW)])
            log.append(memoryview(data), codec.check(data), NOW)
            number += 1
        if number == 400:
            for reader in readers:
                reader.start()
        log.compact(NOW, 100_000, turns.append)
        time.sleep(0.005)  # no faster than snapshots of segments this small are written
        committer.drain()
    stop.set()
    for reader in readers:
        reader.join(PATIENCE_S)
    committer.stop()
    assert faults == []
    assert log.holes == ()


# Beside what else happens to a log ------------------------------------------------------------------------------------


@proves("T6", "T8", "D5")
def test_retention_and_compaction_work_on_the_same_log(tmp_path: Path) -> None:
    table = Table(tmp_path / "p", settings=replace(SETTINGS, retention_bytes=20_000))
    table.fill(60)
    before = table.records()
    table.compact()
    table.fill(80)
    after_fill = table.records()
    table.log.apply_retention(NOW)
    table.commit()
    table.compact()
    start = table.log.start_offset
    assert start > 0
    kept = [row for row in after_fill if row.offset >= start]
    assert table.records() == last_of_each(kept, table.active)
    assert before[-1].offset < table.active
    assert table.again().records() == table.records()


@proves("T6", "T8", "D5")
def test_segments_that_are_deleted_while_they_are_written_anew_stay_deleted(table: Table) -> None:
    table.fill(60)
    rows = table.records()
    turns: list[Turn] = []
    while not list(table.folder.glob("*.cleaned")):
        table.log.compact(NOW, 3000, turns.append)
        table.committer.background.wait()
        if not list(table.folder.glob("*.cleaned")):
            table.commit()
    table.log.delete_before(25)
    table.commit()
    table.compact()  # the pass that was under way is given up
    table.compact()
    assert table.records() == last_of_each([row for row in rows if row.offset >= 25], table.active)
    assert not list(table.folder.glob("*.cleaned"))
    again = table.again()
    assert again.log.start_offset == 25
    assert again.records() == table.records()


@proves("T6", "D5")
def test_a_topic_that_is_no_longer_compacted_is_left_as_it_is(table: Table) -> None:
    table.fill(60)
    table.turn(max_bytes=1)
    table.log.update_settings(replace(SETTINGS, compact=False))
    assert table.turn() == Turn(more=False)
    assert len(table.records()) == 60
    assert not table.log.may_be_dirty
    assert not list(table.folder.glob("*.cleaned"))


@proves("T6", "D5")
def test_a_partition_can_be_deleted_while_it_is_compacted(table: Table) -> None:
    table.fill(60)
    turns: list[Turn] = []
    table.log.compact(NOW, 20_000, turns.append)
    table.log.destroy()
    table.commit()
    assert not table.folder.exists()
    assert turns == [Turn(more=False)]
    assert table.turn() == Turn(more=False)


@proves("T6", "T1", "D5")
@pytest.mark.parametrize("operation", ["create", "write", "sync"])
def test_a_disk_that_refuses_puts_a_pass_off_and_leaves_nothing(tmp_path: Path, operation: str) -> None:
    disk = SimulatedDisk(tmp_path)
    table = Table(tmp_path / "p", disk)
    table.fill(60)
    before = table.records()
    disk.fail(operation, OSError(ENOSPC, "full"), name=".cleaned")
    table.compact()
    assert ["put off" in line for line in table.trouble] == [True]
    assert table.records() == before
    assert not list(table.folder.glob("*.cleaned"))
    table.compact()
    assert table.records() == last_of_each(before, table.active)


@proves("T6", "T1", "D5")
@pytest.mark.parametrize("operation", ["rename", "sync_folder"])
def test_a_new_segment_that_could_not_be_named_ends_compaction_until_the_next_start(
    tmp_path: Path, operation: str
) -> None:
    disk = SimulatedDisk(tmp_path)
    table = Table(tmp_path / "p", disk)
    table.fill(60)
    before = table.records()
    name = ".cleaned" if operation == "rename" else str(table.folder)
    table.turn(max_bytes=1)
    disk.fail(operation, OSError(EIO, "no"), name=name)
    table.compact()
    assert any("given up" in line for line in table.trouble)
    assert table.records() == before
    assert table.turn() == Turn(more=False)
    again = table.again()
    again.compact()
    assert again.records() == last_of_each(before, again.active)


@proves("T6", "T1", "D5")
def test_a_full_disk_is_left_alone_before_it_is_full(tmp_path: Path) -> None:
    disk = SimulatedDisk(tmp_path)
    table = Table(tmp_path / "p", disk)
    table.fill(60)
    disk.capacity = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) + 9500
    table.compact()
    assert any("no room" in line for line in table.trouble)
    assert table.write((b"k", b"still taken" * 300)) == 60
    table.commit()
    assert table.log.high_watermark == 61


@proves("T6", "T1", "D5")
def test_a_segment_with_a_hole_is_left_as_it_is_and_so_are_tombstones(tmp_path: Path) -> None:
    disk = SimulatedDisk(tmp_path)
    table = Table(tmp_path / "p", disk)
    table.fill(30)
    table.write((b"key-1", None))
    table.fill(30, keys=1)
    bad = table.log._reading.segments[1]
    flip_bit(Path(bad.log_path), 4096 + 300)
    assert not any(turn.over for turn in table.compact())  # finds it
    assert [hole.segment for hole in table.log.holes] == [bad.base_offset]
    turns = table.compact(NOW)
    (over,) = [turn.over for turn in turns if turn.over is not None]
    assert not over.whole
    assert bad in table.log._reading.segments
    table.fill(30, keys=1)
    table.compact(NOW + 3 * DAY_MS)
    rest = table.records(bad.base_offset + 3)
    assert [row.value for row in rest if row.key == b"key-1"] == [None]
    with pytest.raises(HoleError):
        table.records()
    table.log.repair(skip=True)
    behind = table.log.read(bad.base_offset, 1)
    assert behind is not None
    assert behind.base_offset == bad.base_offset + 1


# After a crash --------------------------------------------------------------------------------------------------------


@proves("T6", "T1", "D5")
def test_the_power_may_go_at_every_operation_of_a_pass() -> None:
    with quick_folder() as folder:
        steps = 0
        for cut in range(1, STEPS_MAX):
            disk = SimulatedDisk(folder / f"cut{cut}" / "disk")
            table = Table(disk.folder / "p", disk)
            table.fill(26, keys=3)
            before = table.records()
            disk.cut_power_at(cut)
            try:
                table.compact(max_bytes=5000)
            except (PowerCut, AssertionError):
                assert disk.is_off
            if not disk.is_off:
                break
            table.committer.settle()
            steps += 1
            for seed in range(IMAGES):
                image = SimulatedDisk(disk.crash(folder / f"cut{cut}" / f"image{seed}", seed))
                _check_image(image, before)
        assert 60 < steps < STEPS_MAX - 1


def _check_image(disk: SimulatedDisk, before: list) -> None:  # type: ignore[type-arg]
    table = Table(disk.folder / "p", disk)
    assert table.log.holes == ()
    assert table.log.high_watermark == 26
    found = table.records()
    last = {row.key: row for row in before}
    assert set(found) <= set(before)
    assert {row.key: row for row in found} == last
    table.compact()
    assert table.records() == last_of_each(before, table.active)
    assert table.trouble == []
    names = [path.name for path in (disk.folder / "p").iterdir()]
    assert not [name for name in names if name.endswith((".cleaned", ".tmp", ".deleted"))]
    kept = [name for name in map(Name.parse, names) if name is not None]
    assert sorted(kept) == newest(kept)


# Names ----------------------------------------------------------------------------------------------------------------


@proves("T6", "D5")
def test_names_of_segments_say_what_is_in_them() -> None:
    first, second = Name(0), Name(120, 300, 2)
    assert (str(first), str(second)) == ("0" * 20, f"{120:020d}-{300:020d}-2")
    for name in (first, second):
        assert Name.parse(f"{name}.log") == name
    for other in ("0.log", f"{0:020d}.index", f"{0:020d}-1.log", f"{0:020d}-{5:020d}-01.log", "x.log", ".log", "-.log"):
        assert Name.parse(other) is None


@proves("T6", "D5")
def test_of_two_segments_with_the_same_records_the_newer_one_counts() -> None:
    plain = [Name(0), Name(10), Name(20), Name(30)]
    assert newest(plain) == plain
    both = Name(0, 20, 1)
    assert newest([*plain, both]) == [both, Name(20), Name(30)]
    assert newest([*plain, both, Name(20, 30, 2)]) == [both, Name(20, 30, 2), Name(30)]
    assert newest([*plain, both, Name(0, 30, 3)]) == [Name(0, 30, 3), Name(30)]
    assert newest([*plain, both, Name(0, 10, 4)]) == [Name(0, 10, 4), Name(10), Name(20), Name(30)]
