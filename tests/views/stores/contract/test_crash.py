"""Appliers that are killed anywhere, stopped and overtaken, and readers who look while they work."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proving import proves
from tidelog.views.stores.store import Ask, Store
from views.stores.applied import assert_same_rows
from views.stores.conftest import Open
from views.stores.endless_applier import AT, NUMBERS, rows_at, stretch_of

pytestmark = pytest.mark.full

PROGRAM = Path(__file__).parent.parent / "endless_applier.py"
KILLS = 6
LOOKS = 150
MORE = 3


@contextmanager
def applier(url: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    child = subprocess.Popen(
        [sys.executable, str(PROGRAM), url, "numbers", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def told_by(child: subprocess.Popen[str], times: int) -> int:
    """The last of so many ends that it tells."""
    assert child.stdout is not None
    end = 0
    for _ in range(times):
        line = child.stdout.readline()
        assert line, child.stderr.read() if child.stderr else ""
        end = int(line)
    return end


def end_of(store: Store) -> int:
    place = store.place(1)
    return 0 if place is None else place.ends.get(AT, 0)


def is_whole(store: Store) -> int:
    """Whether the rows are those of the place that is stored; its number."""
    page = store.read(Ask(limit=1000))
    end = page.place.ends[AT]
    assert page.place.mark == stretch_of(end).mark
    assert_same_rows(list(page.rows), rows_at(end))
    return end


@proves("P3", "F2", "eo.16")
def test_a_killed_applier_leaves_all_of_a_stretch_or_nothing(transactional_url: str, opened: Open, seed: int) -> None:
    chance = random.Random(seed)
    reader = opened(transactional_url, "numbers")
    for _ in range(KILLS):
        with applier(transactional_url) as child:
            told = told_by(child, chance.randint(1, 6))
            time.sleep(chance.random() * 0.03)
            child.send_signal(signal.SIGKILL)
            child.wait()
        assert is_whole(reader) >= told


@proves("P3", "F2", "eo.16")
def test_after_any_kill_applying_again_gives_the_rows(url: str, opened: Open, seed: int) -> None:
    """Also where a store has no transactions: what was applied in part is applied again, whole."""
    chance = random.Random(seed + 1)
    with applier(url) as child:
        told = told_by(child, chance.randint(1, 3))
        time.sleep(chance.random() * 0.03)
        child.send_signal(signal.SIGKILL)
        child.wait()
    store = opened(url, "numbers")
    assert end_of(store) >= told
    for _ in range(MORE):
        end = end_of(store)
        store.apply(1, stretch_of(end + 1), before={AT: end}, show=True)
    assert is_whole(store) >= told + MORE


@proves("P3", "eo.21")
def test_a_reader_never_sees_part_of_a_stretch(transactional_url: str, opened: Open) -> None:
    with applier(transactional_url) as child:
        first = told_by(child, 1)
        reader = opened(transactional_url, "numbers")
        ends = [is_whole(reader) for _ in range(LOOKS)]
        assert sorted(ends) == ends
        told_by(child, 1)
        assert child.poll() is None
        while is_whole(reader) == first:
            pass


@proves("P3", "eo.17", "F2")
def test_an_applier_that_was_stopped_and_overtaken_changes_nothing_when_it_wakes(url: str, opened: Open) -> None:
    with applier(url, "asked") as child:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
        told_by(child, 1)
        child.send_signal(signal.SIGSTOP)
        child.stdin.write("\n")
        child.stdin.flush()
        store = opened(url, "numbers")
        for end in range(1, 1 + MORE):
            store.apply(1, stretch_of(end + 1), before={AT: end}, show=True)
        child.send_signal(signal.SIGCONT)
        _, said = child.communicate()
    assert child.returncode != 0
    assert "AnotherApplier" in said
    assert is_whole(store) == 1 + MORE


@proves("P3", "eo.17")
def test_of_two_appliers_one_stops(url: str) -> None:
    with applier(url) as one, applier(url) as other:
        ended = _first_of(one, other)
        _, said = ended.communicate()
        assert ended.returncode != 0
        assert "AnotherApplier" in said
        going = other if ended is one else one
        assert going.poll() is None


def _first_of(*children: subprocess.Popen[str]) -> subprocess.Popen[str]:
    while True:
        for child in children:
            if child.poll() is not None:
                return child
        time.sleep(0.01)


@proves("P3", "F2")
def test_a_store_is_read_after_its_writer_died_without_closing(url: str, opened: Open) -> None:
    with applier(url) as child:
        told_by(child, 2)
    reader = opened(url, "numbers")
    assert reader.generations() == {1: NUMBERS}
    found, place = reader.get((0,))
    assert found == next((row for row in rows_at(place.ends[AT]) if row["id"] == 0), None)
