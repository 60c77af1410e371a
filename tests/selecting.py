"""Which tests a run takes, by options of pytest:

    --tiers test,change   those of these tiers (`tiers.py`)
    --shard 2/4           those of one of the named shards that all tests together are (`SHARDS`)
    --turn 1234           not in the order of their names, but from the file on whose turn it is
    --begin-until T       none begins after this time (seconds since 1970), and what has not begun is not counted

The last two make the slice of the long tests that each change is tried on: which files come first goes round with the
number of the commit, and how many come depends on the time that is left.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from outcome import folder_of
from tiers import TIERS, tier_of

# Rooms that change together are proved together, and each shard takes about as long as the others.
SHARDS = {
    "broker": (
        *("against", "benchmarks", "broker", "cli", "client", "control", "crash", "log", "record", "schema", "wire"),
        *("capture", "gateway", "demo", "parts", "sourcing", "work"),
    ),
    "views": (".", "sql", "views", "views/stores"),
    "spark": ("spark",),
    "pipelines": ("pipelines/app", "pipelines/backup", "pipelines/driver", "pipelines/operators"),
}
STEP = 7  # files from one turn to the next: a slice is about as many


class Selecting:
    def __init__(self, config: pytest.Config) -> None:
        self._tiers = tiers_named(config.getoption("tiers"))
        self._shard = shard_name(config.getoption("shard")) if config.getoption("shard") else None
        self._turn: int | None = config.getoption("turn")
        self._until: float | None = config.getoption("begin_until")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        taken = [item for item in items if self._takes(item)]
        if len(taken) < len(items):
            config.hook.pytest_deselected(items=[item for item in items if not self._takes(item)])
        if self._turn is not None:
            files = in_turn(sorted({item.nodeid.partition("::")[0] for item in taken}), self._turn)
            place = {file: at for at, file in enumerate(files)}
            taken.sort(key=lambda item: place[item.nodeid.partition("::")[0]])
        items[:] = taken

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> bool | None:
        return True if self._until is not None and time.time() > self._until else None

    def _takes(self, item: pytest.Item) -> bool:
        if tier_of({mark.name for mark in item.iter_markers()}) not in self._tiers:
            return False
        return self._shard is None or folder_of(item.nodeid) in SHARDS[self._shard]


def add_options(parser: pytest.Parser) -> None:
    parser.addoption("--tiers", default=",".join(TIERS), help=f"the tiers to run, of {', '.join(TIERS)} (default all)")
    parser.addoption("--shard", help=f"one shard of all tests: 1/{len(SHARDS)} and so on, or {', '.join(SHARDS)}")
    parser.addoption("--turn", type=int, help="the number by which the first file is chosen")
    parser.addoption("--begin-until", type=float, help="begin no test after this time, in seconds since 1970")


def tiers_named(words: str) -> list[str]:
    """Of `test,change`."""
    tiers = words.split(",")
    unknown = [tier for tier in tiers if tier not in TIERS]
    if unknown:
        raise pytest.UsageError(f"{unknown[0]!r} is not a tier; the tiers are {', '.join(TIERS)}")
    return tiers


def shard_name(word: str) -> str:
    """Of `views` or `2/4`."""
    number, _, count = word.partition("/")
    if word in SHARDS:
        return word
    if count == str(len(SHARDS)) and number.isdigit() and 1 <= int(number) <= len(SHARDS):
        return list(SHARDS)[int(number) - 1]
    numbers = ", ".join(f"{at}/{len(SHARDS)}" for at in range(1, len(SHARDS) + 1))
    raise pytest.UsageError(f"{word!r} is not a shard; the shards are {', '.join(SHARDS)}, or {numbers}")


def in_turn(files: Sequence[str], turn: int) -> list[str]:
    """The files as a ring, from the one on whose turn it is."""
    start = turn * STEP % len(files) if files else 0
    return [*files[start:], *files[:start]]
