"""A checkpoint survives a power cut at any moment: the disk is told from the system calls of a real run."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from proving import proves
from spark.test_session_crash import FAR, kill, kill_after, start
from spark.traced_disk import STRACE, TracedDisk

pytestmark = pytest.mark.full

MICRO_BATCHES = 6
CUTS = 3
MORE = 3  # micro-batches after a cut
QUERIES = ("files", "heap", "rocksdb")
# What counts only once another file names it: Spark's temporary files, rows that no log has yet, tables of RocksDB.
UNNAMED = re.compile(r"(^|/)\.[^/]*\.tmp$|^table/part-|/SSTs/")


NAMES_AND_BYTES = """
import os, sys
os.chdir(sys.argv[1])
def write(name, sync):
    with open(os.path.abspath(name), "wb") as file:
        file.write(name.encode())
        file.flush()
        if sync:
            os.fsync(file.fileno())
def sync(folder):
    handle = os.open(folder, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)
at = os.path.abspath
os.mkdir(at("made"))
write("made/deep", True)
sync(at("made"))
write("no bytes", False)
write("old name", True)
write("replaced", True)
write("deleted", True)
sync(at("."))
os.unlink(at("deleted"))
write("no name", True)
os.mkdir(at("no folder"))
write("no folder/deep", True)
sync(at("no folder"))
os.rename(at("old name"), at("replaced"))
"""


@pytest.mark.external
@proves("P1")
def test_the_disk_keeps_what_was_synced_and_nothing_else(tmp_path: Path) -> None:
    trace, folder = tmp_path / "trace", tmp_path / "disk"
    folder.mkdir()
    subprocess.run([*STRACE, trace, sys.executable, "-c", NAMES_AND_BYTES, folder], check=True)
    moments = followed(tmp_path, trace)
    assert moments[-1] == {
        "made/deep": b"made/deep",
        "no bytes": None,
        "old name": b"old name",
        "replaced": b"replaced",
        "deleted": b"deleted",
    }
    assert moments[0] == {}


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folder of a program that was killed, and what strace saw of it."""
    folder = tmp_path_factory.mktemp("traced")
    trace = folder / "trace"
    kill_after(start(folder, FAR, before=(*STRACE, str(trace))), folder, MICRO_BATCHES)
    return folder, trace


def followed(folder: Path, trace: Path) -> list[dict[str, bytes | None]]:
    disk = TracedDisk(folder / "disk")
    with trace.open(errors="replace") as lines:
        return [disk.surviving() for _ in disk.follow(lines)]


@pytest.mark.external
@proves("P1", "F1")
def test_at_every_moment_what_is_on_disk_is_whole_and_rests_on_what_is_on_disk(traced: tuple[Path, Path]) -> None:
    moments = followed(*traced)
    for files in moments:
        assert [name for name, data in files.items() if not data and not UNNAMED.search(name)] == []
        for query in QUERIES:
            assert_in_order(files, query)
    assert min(len(numbered(moments[-1], f"{query}/commits/")) for query in QUERIES) >= MICRO_BATCHES


def assert_in_order(files: dict[str, bytes | None], query: str) -> None:
    offsets, commits = numbered(files, f"{query}/offsets/"), numbered(files, f"{query}/commits/")
    assert offsets == list(range(len(offsets)))
    assert commits == offsets[: len(commits)]
    assert len(offsets) - len(commits) in (0, 1)
    assert f"{query}/metadata" in files or not offsets
    for done in commits:
        if query == "files":
            log = f"table/_spark_metadata/{done}"
            written = (files.get(log) or files[f"{log}.compact"] or b"").decode().splitlines()[1:]
            assert all(files.get(f"table/{json.loads(line)['path'].rpartition('/')[2]}") for line in written)
        else:
            suffix = "delta" if query == "heap" else "changelog"
            assert {f"{query}/state/0/{part}/{done + 1}.{suffix}" for part in (0, 1)} <= files.keys()


def numbered(files: dict[str, bytes | None], start: str) -> list[int]:
    names = (name.removeprefix(start) for name in files if name.startswith(start))
    return sorted(int(name) for name in names if name.isdigit())


@pytest.mark.external
@proves("P1", "F1")
def test_queries_go_on_from_what_a_power_cut_leaves(traced: tuple[Path, Path], seed: int) -> None:
    folder, trace = traced
    moments = followed(folder, trace)
    program = start(folder, MORE, "--rounds", str(CUTS))
    assert program.stdin is not None
    assert program.stdout is not None
    try:
        assert "Java" in program.stdout.readline()
        for cut in sorted(random.Random(seed).sample(range(len(moments)), CUTS)):
            restore(folder, trace, cut)
            program.stdin.write("go\n")
            program.stdin.flush()
            assert program.stdout.readline() == "whole\n", (folder / "log").read_text()
    finally:
        kill(program)
        program.communicate()


def restore(folder: Path, trace: Path, moment: int) -> None:
    shutil.rmtree(folder / "disk")
    (folder / "disk").mkdir()
    disk = TracedDisk(folder / "disk")
    with trace.open(errors="replace") as lines:
        next(islice(disk.follow(lines), moment, None))
    disk.restore(folder / "disk")
