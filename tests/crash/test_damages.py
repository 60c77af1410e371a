"""Every log of a data folder, damaged in every way: nothing acked is unlinked or missing in silence (`damages.py`)."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from crash.damages import (
    AT_ONCE,
    LAST_BYTES,
    ROLLED,
    STOPS,
    Kept,
    Stop,
    check,
    in_doubt,
    keep,
    partitions,
    some,
    wounds,
)
from crash.seeds import run_seeds
from proving import proves
from tidelog.broker.folds import MAKERS
from tidelog.broker.topics import GROUPS_TOPIC, TOPICS_TOPIC, Topic

SOAK_DAMAGES = 400
EVERY = 16  # byte of many segments has a bit that flips
LOGS = [
    *(f"{topic}-{partition}" for topic, partition in partitions()),
    *(f"{one}-0" for one in (TOPICS_TOPIC.name, *MAKERS)),
]

KeptBy = Callable[[Stop], Kept]


@pytest.fixture(scope="module")
def kept_by(tmp_path_factory: pytest.TempPathFactory) -> KeptBy:
    folder, kept = tmp_path_factory.mktemp("damages"), dict[Stop, Kept]()

    def get(stop: Stop) -> Kept:
        if stop not in kept:
            kept[stop] = keep(folder / str(len(kept)), stop)
        return kept[stop]

    return get


def try_one(kept_by: KeptBy, folder: Path, seed: int) -> None:
    rng = random.Random(seed)
    kept = kept_by(rng.choice([*STOPS, *ROLLED]))
    name, wound = some(rng, kept.data)
    data = Path(shutil.copytree(kept.data, folder / "data"))
    try:
        check(kept, data, name, wound)
    except BaseException as error:
        error.add_note(f"{kept.stop}; {wound.told}")
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@proves("T6")
def test_no_damage_of_any_log_takes_what_was_acked_in_silence(kept_by: KeptBy, tmp_path: Path) -> None:
    run_seeds(tmp_path, 40, lambda folder, seed: try_one(kept_by, folder, seed))


@proves("T6")
@pytest.mark.parametrize("topic", [TOPICS_TOPIC, GROUPS_TOPIC], ids=lambda topic: topic.name)
def test_a_log_of_the_broker_goes_on_whichever_other_one_has_its_file(
    kept_by: KeptBy, tmp_path: Path, topic: Topic
) -> None:
    """The record at the end that stands for what is missing gets a file of the same name."""
    kept = kept_by(ROLLED[-1])
    name = kept.names[f"{topic.name}-0"]
    swaps = [wound for wound in wounds(kept.data, name, LAST_BYTES) if wound.told.startswith("file swapped")]
    assert len(swaps) == len(LOGS) - 1
    for wound in swaps:
        data = Path(shutil.copytree(kept.data, tmp_path / "data"))
        check(kept, data, name, wound)
        shutil.rmtree(data)


@pytest.mark.soak
@proves("T6")
def test_no_damage_of_any_log_takes_what_was_acked_however_many(kept_by: KeptBy, tmp_path: Path, seed: int) -> None:
    run_seeds(tmp_path, SOAK_DAMAGES, lambda folder, one: try_one(kept_by, folder, one), seed * SOAK_DAMAGES)


@pytest.mark.full
@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("stop", [*STOPS, *ROLLED, AT_ONCE], ids=str)
@proves("T6")
def test_every_damage_of_every_log_is_told_and_can_be_mended(
    kept_by: KeptBy, tmp_path: Path, stop: Stop, log: str
) -> None:
    kept, failed = kept_by(stop), []
    assert sorted(kept.names) == sorted(LOGS), "of each there is a log with records"
    name = kept.names[log]
    some = in_doubt(kept.data, name) if stop == AT_ONCE else wounds(kept.data, name, EVERY if stop.rolled else 1)
    for wound in some:
        data = Path(shutil.copytree(kept.data, tmp_path / "data"))
        try:
            check(kept, data, name, wound)
        except Exception as error:
            failed.append(f"{wound.told}: {error!r:.300}")
        shutil.rmtree(data)
    assert not failed, "\n".join([f"{len(failed)} of {len(some)}", *failed[:20]])
