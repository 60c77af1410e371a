"""The operating system's files, where they do what the simulated disk cannot show."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proving import proves
from tidelog.log.files import RealFiles


@proves("T6")
def test_a_file_that_goes_while_its_folder_is_listed_is_not_in_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("stays", "goes.tmp"):
        (tmp_path / name).write_bytes(b"12")
    scandir = os.scandir

    @contextmanager
    def slowly(path: str) -> Iterator[list[os.DirEntry[str]]]:
        with scandir(path) as entries:
            found = list(entries)
        (tmp_path / "goes.tmp").unlink()
        yield found

    monkeypatch.setattr(os, "scandir", slowly)
    assert [(one.name, one.size) for one in RealFiles().list(str(tmp_path))] == [("stays", 2)]
