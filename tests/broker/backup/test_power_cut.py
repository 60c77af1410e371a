"""The power goes while a backup is taken or restored: there is a whole one, or none that could be taken for one."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from errno import EPERM
from pathlib import Path

import pytest

from broker.backup.test_failures import filled, quiet
from proving import proves
from tidelog.broker.backup import manifest as manifest_file
from tidelog.broker.backup.manifest import Manifest
from tidelog.broker.backup.restoring import restore
from tidelog.broker.backup.taking import take
from tidelog.broker.backup.verifying import verify
from tidelog.errors import BackupError, TidelogError
from tidelog.log.files import RealFiles
from tidelog.log.folder import DataFolder
from tidelog.record.codec import crc32c
from tidelog.testing.broker import TestBroker
from tidelog.testing.disk import PowerCut, SimulatedDisk

SEEDS = 3


@pytest.fixture
def data(tidelog_broker: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A stopped broker's folder on a disk where nothing can be linked: the simulated one knows of no links."""

    def refuse(*_: object) -> None:
        raise OSError(EPERM, "no links here")

    filled(tidelog_broker).stop()
    (tmp_path / "disk").mkdir()
    shutil.copytree(tidelog_broker.data, tmp_path / "disk" / "data")
    monkeypatch.setattr(os, "link", refuse)
    yield tmp_path / "disk" / "data"


def cuts(disk: Path) -> Iterator[tuple[int, SimulatedDisk, Path]]:
    """A fresh copy of the disk for each step at which its power may go, until one run is not cut any more."""
    step = 1
    while True:
        copy = disk.with_name("cut")
        shutil.copytree(disk, copy)
        simulated = SimulatedDisk(copy)
        simulated.cut_power_at(step)
        yield step, simulated, copy
        shutil.rmtree(copy)
        if not simulated.is_off:
            return
        step += 1 + step // 8


@proves("T6")
def test_a_backup_is_the_one_before_or_the_new_one(data: Path) -> None:
    first = take(str(data), str(data.with_name("saved")), RealFiles(), quiet).manifest
    found: set[str] = set()
    for step, disk, folder in cuts(data.parent):
        with suppress(PowerCut, TidelogError):
            take(str(folder / "data"), str(folder / "saved"), disk, quiet)
        for seed in range(SEEDS):
            image = disk.crash(folder.with_name("image"), seed)
            verified = verify(str(image / "saved"), RealFiles(), quiet)
            assert verified.faults == (), f"step {step}, seed {seed}"
            assert verified.manifest == first or verified.manifest.tree != first.tree
            found.add(verified.manifest.tree)
            shutil.rmtree(image)
    assert found == {"tree-1", "tree-2"}


@proves("T6")
def test_what_was_restored_is_whole_or_refused(data: Path) -> None:
    saved = data.parent.parent / "saved"
    taken = take(str(data), str(saved), RealFiles(), quiet).manifest
    whole = 0
    for step, disk, folder in cuts(data.parent):
        with suppress(PowerCut, TidelogError):
            restore(str(saved), str(folder / "new"), disk, quiet)
        for seed in range(SEEDS):
            image = disk.crash(folder.with_name("image"), seed)
            if (image / "new" / "format").exists():
                whole += 1
                assert is_whole(image / "new", taken), f"step {step}, seed {seed}"
            shutil.rmtree(image)
    assert whole > 0


def is_whole(data: Path, manifest: Manifest) -> bool:
    folder = DataFolder(str(data), RealFiles())
    listed = [(f"{one.folder}/{kept.name}", kept) for one in manifest.partitions for kept in one.files]
    listed += [(kept.name, kept) for kept in manifest.folds]
    return (
        folder.read_format()
        and folder.cluster_id == manifest.cluster_id
        and folder.read_marks() == {one.folder: one.mark for one in manifest.partitions}
        and all(crc32c((data / name).read_bytes()) == kept.crc for name, kept in listed)
    )


@proves("T6")
def test_a_first_backup_that_was_cut_is_none(data: Path) -> None:
    rng = random.Random(1)
    seen = set()
    for _, disk, folder in cuts(data.parent):
        with suppress(PowerCut, TidelogError):
            take(str(folder / "data"), str(folder / "saved"), disk, quiet)
        image = disk.crash(folder.with_name("image"), rng.randrange(1000))
        try:
            manifest_file.read(str(image / "saved"))
            seen.add("whole")
            assert verify(str(image / "saved"), RealFiles(), quiet).faults == ()
        except BackupError as error:
            seen.add("none")
            assert any(
                what in str(error)
                for what in ("does not exist; name that of a backup", "never finished", "has no file 'manifest'")
            )
        shutil.rmtree(image)
    assert seen == {"whole", "none"}
