"""The data folder: one broker at a time, a format that is known, and a mark that is true or not there."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest

from proving import proves
from tidelog.errors import DataFolderError
from tidelog.log.clean_mark import CleanMark
from tidelog.log.files import RealFiles
from tidelog.log.folder import DataFolder
from tidelog.log.names import partition_name
from tidelog.testing.disk import SimulatedDisk, flip_bit

MARK = CleanMark(0, 10, 0, 5000, 4200)


@pytest.fixture
def folder(tmp_path):
    made = DataFolder(str(tmp_path / "data"), RealFiles())
    made.open()
    yield made
    made.close()


@proves("T6")
def test_a_second_broker_is_refused_with_the_pid_of_the_first(folder):
    with pytest.raises(DataFolderError, match=f"process {os.getpid()}"):
        DataFolder(folder.path, RealFiles()).open()


@proves("T6")
def test_a_folder_is_free_again_when_its_broker_has_gone(folder):
    folder.close()
    again = DataFolder(folder.path, RealFiles())
    again.open()
    again.close()


@proves("T1")
def test_the_cluster_id_is_given_once(folder):
    folder.close()
    again = DataFolder(folder.path, RealFiles())
    again.open()
    assert again.cluster_id == folder.cluster_id
    assert len(folder.cluster_id) == 22
    again.close()


@proves("T6")
def test_marks_are_given_once_and_only_after_a_clean_stop(folder):
    assert folder.take_marks() == {}
    folder.leave({"a-0": MARK})
    assert folder.take_marks() == {"a-0": MARK}
    assert folder.take_marks() == {}


@proves("T6")
@pytest.mark.parametrize("bit", range(0, 500, 7))
def test_marks_that_are_damaged_are_as_good_as_none(folder, tmp_path, bit):
    folder.leave({"a-0": MARK})
    clean = tmp_path / "data" / "clean"
    flip_bit(clean, bit // 8, bit % 8)
    assert folder.take_marks() == {}


@proves("T6")
def test_a_newer_format_is_refused_by_number(folder, tmp_path):
    (tmp_path / "data" / "format").write_text('{"v": 2, "cluster_id": "x"}\n')
    folder.close()
    with pytest.raises(DataFolderError, match="format version 2 and this Tidelog knows up to 1"):
        DataFolder(folder.path, RealFiles()).open()


@proves("T6")
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xff", b'{"cluster_id": "x"}', b'{"v": 1}'])
def test_a_damaged_format_file_is_said_to_be_damaged(folder, tmp_path, content):
    (tmp_path / "data" / "format").write_bytes(content)
    folder.close()
    with pytest.raises(DataFolderError, match="format"):
        DataFolder(folder.path, RealFiles()).open()


@proves("T6")
def test_a_folder_of_somebody_else_is_not_taken_over(tmp_path):
    (tmp_path / "thesis.tex").write_text("important")
    with pytest.raises(DataFolderError, match=r"thesis\.tex"):
        DataFolder(str(tmp_path), RealFiles()).open()


@proves("T1")
def test_partitions_are_found_by_their_names_and_other_files_are_not(folder, tmp_path):
    topic_id = bytes(range(16))
    (tmp_path / "data" / partition_name(topic_id, 12)).mkdir()
    (tmp_path / "data" / "notes-1").mkdir()
    assert folder.partitions() == [(topic_id, 12)]


@proves("T6")
def test_a_power_cut_at_any_step_leaves_a_folder_that_opens_and_no_mark_that_is_taken(tmp_path):
    for step in range(1, 40):
        disk = SimulatedDisk(tmp_path / f"disk{step}")
        path = f"{tmp_path}/disk{step}/data"
        disk.cut_power_at(step)
        taken = False
        try:
            folder = DataFolder(path, disk)
            folder.open()
            folder.leave({"a-0": MARK})
            folder.take_marks()
            taken = True
        except OSError:
            pass
        finally:
            folder.close()
        image = disk.crash(tmp_path / f"image{step}", seed=step)
        after = DataFolder(f"{image}/data", RealFiles())
        after.open()
        marks = after.take_marks()
        after.close()
        assert marks in ({}, {"a-0": MARK})
        assert not (taken and marks)


@proves("T6")
def test_a_mark_that_a_power_cut_leaves_stands_behind_everything_that_was_written_before_it(tmp_path):
    marked = 0
    for step in range(1, 20):
        disk = SimulatedDisk(tmp_path / f"disk{step}")
        folder = DataFolder(f"{tmp_path}/disk{step}/data", disk)
        folder.open()
        fd = disk.open(f"{folder.path}/not synced", create=True)
        disk.write(fd, [b"x" * 100], 0)
        disk.cut_power_at(step)
        with suppress(OSError):
            folder.leave({"a-0": MARK})
        disk.close(fd)
        folder.close()
        for seed in range(4):
            image = disk.crash(tmp_path / f"image{step}-{seed}", seed)
            if (image / "data" / "clean").exists():
                marked += 1
                assert (image / "data" / "not synced").read_bytes() == b"x" * 100
    assert marked
