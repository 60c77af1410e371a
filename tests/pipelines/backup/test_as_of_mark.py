"""Which files of a checkpoint belong to a mark, and whether a query could go on with them; without Spark."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from proving import proves
from tidelog.control.marks import Mark, Sources
from tidelog.pipelines.backup.as_of_mark import LastNumbers, chosen, query_id

STATE = '{"operatorInfo":{"operatorId":0},"stateStoreInfo":[{"storeName":"default","numPartitions":%d}]}'


def mark_of(batch: int) -> Mark:
    return Mark("sums.v1", "q", batch, Sources(), {}, 0)


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def query(folder: Path, offsets: range, commits: range) -> Path:
    write(folder / "metadata", '{"id":"q"}')
    write(folder / "tidelog-operators.json", "{}")
    for number in offsets:
        write(folder / "offsets" / str(number))
    for number in commits:
        write(folder / "commits" / str(number))
    return folder


def heap(folder: Path, changes: range, *snapshots: int, partitions: int = 2) -> Path:
    write(folder / "state/0/_metadata/metadata", "v1\n" + STATE % partitions)
    for partition in range(partitions):
        for version in changes:
            write(folder / f"state/0/{partition}/{version}.delta")
        for version in snapshots:
            write(folder / f"state/0/{partition}/{version}.snapshot")
        write(folder / f"state/0/{partition}/_metadata/schema")
    return folder


def rocksdb(folder: Path, changes: range, **snapshots: list[str]) -> Path:
    """`v7=["a"]`: snapshot 7 names a file `a` of four bytes, which is there unless another test takes it away."""
    write(folder / "state/0/_metadata/v2/0", "v2\n" + STATE % 1)
    for version in changes:
        write(folder / f"state/0/0/{version}.changelog")
    for name, files in snapshots.items():
        said = {"sstFiles": [{"localFileName": one, "dfsSstFileName": f"{one}.sst", "sizeBytes": 4} for one in files]}
        with zipfile.ZipFile(folder / f"state/0/0/{name[1:]}.zip", "w") as packed:
            packed.writestr("metadata", f"v1\n{json.dumps(said)}")
        for one in files:
            write(folder / f"state/0/0/SSTs/{one}.sst", "four")
    return folder


def names_of(folder: Path, bounds: LastNumbers) -> set[str]:
    found = chosen(folder, bounds)
    assert found.missing == ""
    return set(found.names)


@proves("P3", "F2")
@pytest.mark.parametrize(
    ("is_decided", "committed", "bounds"),
    [
        (True, 6, LastNumbers(7, 7, 8)),
        (False, 6, LastNumbers(7, 6, 7)),  # run again, and the sink finds its mark, or does not
        (False, 7, LastNumbers(7, 7, 8)),  # whose commit was in the checkpoint before the cut: it was answered
        (True, 9, LastNumbers(9, 9, 10)),  # 8 and 9 had nothing to say
        (False, -1, LastNumbers(7, 6, 7)),
    ],
)
def test_a_mark_says_how_far_a_checkpoint_goes(is_decided: bool, committed: int, bounds: LastNumbers) -> None:
    assert LastNumbers.of(mark_of(7), is_decided=is_decided, committed=committed) == bounds


@proves("P3")
def test_what_belongs_ends_with_the_micro_batch_of_the_mark(tmp_path: Path) -> None:
    folder = heap(query(tmp_path, range(3, 12), range(3, 11)), range(3, 12), 4, 9)
    found = names_of(folder, LastNumbers(6, 6, 7))
    assert {name for name in found if name.startswith(("offsets", "commits"))} == {
        f"{kind}/{number}" for kind in ("offsets", "commits") for number in range(3, 7)
    }
    assert {name for name in found if name.startswith("state/0/1/")} == {
        "state/0/1/_metadata/schema",
        "state/0/1/4.snapshot",
        *(f"state/0/1/{version}.delta" for version in range(3, 8)),
    }
    assert {"metadata", "tidelog-operators.json", "state/0/_metadata/metadata"} <= found
    assert query_id(folder) == "q"


@proves("P3")
def test_a_micro_batch_that_is_run_again_leaves_its_own_state_out(tmp_path: Path) -> None:
    found = names_of(heap(query(tmp_path, range(8), range(8)), range(1, 9)), LastNumbers(6, 5, 6))
    assert {"offsets/6", "commits/5", "state/0/0/6.delta"} <= found
    assert not {"commits/6", "state/0/0/7.delta"} & found


@proves("P3")
def test_what_spark_has_removed_is_missed(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    heap(query(whole, range(5, 9), range(5, 8)), range(5, 9), 6)
    assert chosen(whole, LastNumbers(7, 7, 8)).missing == ""
    assert "offsets of micro-batch 5" in chosen(whole, LastNumbers(5, 5, 6)).missing, "it needs those of 4, too"
    assert "offsets of micro-batch 9" in chosen(whole, LastNumbers(9, 9, 10)).missing, "it is not there yet"
    (whole / "state/0/1/7.delta").unlink()
    assert chosen(whole, LastNumbers(7, 7, 8)).missing == "version 8 of the state in state/0/1"
    assert chosen(whole, LastNumbers(6, 6, 7)).missing == "version 7 of the state in state/0/1"
    (whole / "commits/6").unlink()
    assert chosen(whole, LastNumbers(7, 6, 7)).missing == "the commit of micro-batch 6"


@proves("P3")
def test_a_whole_partition_of_state_that_is_not_there_is_missed(tmp_path: Path) -> None:
    heap(query(tmp_path, range(4), range(4)), range(1, 5))
    for path in (tmp_path / "state/0/1").glob("*.delta"):
        path.unlink()
    assert chosen(tmp_path, LastNumbers(3, 3, 4)).missing == "version 4 of the state in state/0/1"


@proves("P3")
def test_the_first_micro_batch_needs_no_state_and_nothing_before_it(tmp_path: Path) -> None:
    write(tmp_path / "state/0/_metadata/metadata", "v1\n" + STATE % 2)
    assert names_of(query(tmp_path, range(1), range(0)), LastNumbers(0, -1, 0)) >= {"metadata", "offsets/0"}


@proves("P3")
def test_a_commit_that_the_query_was_killed_before_is_not_missed(tmp_path: Path) -> None:
    folder = heap(query(tmp_path, range(8), range(7)), range(1, 9))
    found = names_of(folder, LastNumbers(7, 7, 8))
    assert chosen(folder, LastNumbers(7, 7, 8)).bounds == LastNumbers(7, 6, 7), "it is run again"
    assert {"offsets/7", "commits/6", "state/0/0/7.delta"} <= found and "state/0/0/8.delta" not in found


@proves("P3")
def test_a_snapshot_of_rocksdb_counts_with_all_files_that_it_names(tmp_path: Path) -> None:
    folder = rocksdb(query(tmp_path, range(3, 9), range(3, 9)), range(5, 10), v4=["a"], v7=["a", "b"], v9=["c"])
    found = names_of(folder, LastNumbers(7, 7, 8))
    assert {"state/0/0/7.zip", "state/0/0/SSTs/a.sst", "state/0/0/SSTs/b.sst"} <= found
    assert not {"state/0/0/9.zip", "state/0/0/SSTs/c.sst"} & found, "what it does not need is left out"
    (folder / "state/0/0/SSTs/b.sst").write_text("hal")
    found = names_of(folder, LastNumbers(7, 7, 8))
    assert "state/0/0/7.zip" not in found and "state/0/0/4.zip" in found, "an older one, and the changes since"
    (folder / "state/0/0/SSTs/a.sst").unlink()
    assert chosen(folder, LastNumbers(7, 7, 8)).missing == "version 8 of the state in state/0/0"


@proves("P3")
def test_what_a_later_start_wrote_about_operators_is_left_out(tmp_path: Path) -> None:
    folder = rocksdb(query(tmp_path, range(9), range(9)), range(1, 10))
    write(folder / "state/0/_metadata/v2/8", "v2\n" + STATE % 1)
    assert "state/0/_metadata/v2/8" not in names_of(folder, LastNumbers(7, 7, 8))
    assert "state/0/_metadata/v2/0" in names_of(folder, LastNumbers(7, 7, 8))
