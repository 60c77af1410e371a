"""Every log of a data folder, damaged in every way: nothing acked is unlinked or missing in silence (`damages.py`)."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from crash.damages import AT_ONCE, STOPS, Stop, check, damages, in_doubt, logs, some, write
from crash.seeds import run_seeds
from proving import proves

SOAK_DAMAGES = 400


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> dict[Stop, Path]:
    folder = tmp_path_factory.mktemp("damages")
    return {stop: write(folder / f"{number}", stop) for number, stop in enumerate([*STOPS, AT_ONCE])}


def try_one(kept: dict[Stop, Path], folder: Path, seed: int) -> None:
    rng = random.Random(seed)
    stop = rng.choice(STOPS)
    name, told, damage = some(rng, kept[stop])
    data = Path(shutil.copytree(kept[stop], folder / "data"))
    try:
        check(data, name, damage, stop)
    except BaseException as error:
        error.add_note(f"{stop}; {name}: {told}")
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@proves("T6")
def test_no_damage_of_any_log_takes_what_was_acked_in_silence(kept: dict[Stop, Path], tmp_path: Path) -> None:
    run_seeds(tmp_path, 40, lambda folder, seed: try_one(kept, folder, seed))


@pytest.mark.soak
@proves("T6")
def test_no_damage_of_any_log_takes_what_was_acked_however_many(
    kept: dict[Stop, Path], tmp_path: Path, seed: int
) -> None:
    run_seeds(tmp_path, SOAK_DAMAGES, lambda folder, one: try_one(kept, folder, one), seed * SOAK_DAMAGES)


@pytest.mark.full
@pytest.mark.parametrize("stop", [*STOPS, AT_ONCE], ids=str)
@proves("T6")
def test_every_damage_of_every_log_is_told_and_can_be_mended(
    kept: dict[Stop, Path], tmp_path: Path, stop: Stop
) -> None:
    failed = []
    for name in logs(kept[stop]):
        chosen = in_doubt if stop == AT_ONCE else damages
        for told, damage in chosen(kept[stop], name).items():
            data = Path(shutil.copytree(kept[stop], tmp_path / "data"))
            try:
                check(data, name, damage, stop)
            except Exception as error:
                failed.append(f"{name}: {told}: {error!r:.300}")
            shutil.rmtree(data)
    assert not failed, "\n".join([f"{len(failed)} of them", *failed[:20]])
