"""Small files of a Delta table made one, by a commit that is the very next one, or not made.

    FOLDER/VIEW/.tidy-UUID/    a copy of the table at one version, by hard links to its log and its files

The library's own compaction puts its commit behind what was committed meanwhile, another compaction too: the files that
both have read are then replaced twice, and every row of them is there twice. So it works on a copy, where nobody else
commits; and its commit is brought over by a hard link, which is refused where the table has gone on.

Rules:
- Files are brought over and synced before the commit that names them. Those of a commit that was refused are deleted;
  of a process that was killed in between they stay until a vacuum.
- A copy that a killed process left is deleted by who compacts a day later, and so is what else stands aside.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

ASIDE = ".tidy-"
LEFT_S = 24 * 3600

Table = Any  # deltalake.DeltaTable


def compact(table: Table, path: Path) -> bool:
    """Whether it was done: False where there is nothing to do, or somebody has committed since `table` was opened."""
    from deltalake import DeltaTable

    delete_left(path.parent)
    aside = path.parent / f"{ASIDE}{uuid4().hex}"
    try:
        copy(table, path, aside)
        DeltaTable(str(aside)).optimize.compact()
        return bring_over(aside, path, table.version() + 1)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def copy(table: Table, path: Path, aside: Path) -> None:
    log = log_of(aside)
    log.mkdir(parents=True)
    for one in log_of(path).iterdir():
        number = one.name.partition(".")[0]
        if number.isdigit() and int(number) <= table.version():
            os.link(one, log / one.name)
    for uri in table.file_uris():
        os.link(path / Path(uri).name, aside / Path(uri).name)


def bring_over(aside: Path, path: Path, version: int) -> bool:
    commit = commit_of(aside, version)
    if not commit.exists():
        return False
    added = added_by(commit)
    sync(*(aside / name for name in added), commit)
    for name in added:
        os.link(aside / name, path / name)
    sync(path)
    try:
        os.link(commit, commit_of(path, version))
    except FileExistsError:
        for name in added:
            (path / name).unlink()
        return False
    sync(log_of(path))
    return True


def delete_left(folder: Path) -> None:
    """Also what a killed process was forgetting, and links that it had not renamed."""
    for one in folder.glob(f"{ASIDE}*"):
        with suppress(FileNotFoundError):  # another one has
            if one.lstat().st_mtime >= time.time() - LEFT_S:
                continue
            if one.is_symlink():
                one.unlink()
            else:
                shutil.rmtree(one, ignore_errors=True)


# The log of a table ---------------------------------------------------------------------------------------------------


def log_of(table: Path) -> Path:
    return table / "_delta_log"


def commit_of(table: Path, version: int) -> Path:
    return log_of(table) / f"{version:020}.json"


def added_by(commit: Path) -> list[str]:
    """The files that it adds, below the table's folder."""
    actions = [json.loads(line).get("add") for line in commit.read_bytes().splitlines()]
    return [unquote(one["path"]) for one in actions if one]


def sync(*paths: Path) -> None:
    for path in paths:
        opened = os.open(path, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
