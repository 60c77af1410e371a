"""Hypothesis tries few and fixed examples in `make test`, others elsewhere, and tells how to try those again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from proving import proves
from test_proving import OURS, SET_BY_OTHERS, TESTS
from tries import TIMES, USUAL, profile_of, seed_of, tries

DRAWN = """
from hypothesis import given, strategies as st
from proving import proves

@proves("T1")
@given(st.integers(0, 10**12))
def test_it(number):
    with open("drawn", "a") as file:
        print(number, file=file)
"""


@proves("tidy")
@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({}, "house"),
        ({"TIDELOG_EXAMPLES": ""}, "house"),
        ({"TIDELOG_EXAMPLES": "slice"}, "slice"),
        ({"TIDELOG_EXAMPLES": "soak"}, "soak"),
        ({"TIDELOG_SEED": "7"}, "soak"),
        ({"TIDELOG_SEED": "7", "TIDELOG_EXAMPLES": "house"}, "soak"),
    ],
)
def test_the_environment_says_which_examples_are_tried(environment: dict[str, str], name: str) -> None:
    assert profile_of(environment) == name


@proves("tidy")
def test_a_profile_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="TIDELOG_EXAMPLES=many is not a profile; it is one of house, slice, soak"):
        profile_of({"TIDELOG_EXAMPLES": "many"})


@proves("tidy")
def test_every_profile_has_its_number_and_only_the_house_is_always_the_same() -> None:
    profiles = {name: settings.get_profile(name) for name in TIMES}
    assert {name: one.max_examples for name, one in profiles.items()} == {"house": 25, "slice": 100, "soak": 1000}
    assert {name: one.derandomize for name, one in profiles.items()} == {"house": True, "slice": False, "soak": False}
    assert {name: one.print_blob for name, one in profiles.items() if name != "house"} == {"slice": True, "soak": True}
    before = settings.get_current_profile_name()
    try:
        for name, times in TIMES.items():
            settings.load_profile(name)
            assert (tries(6).max_examples, tries(USUAL).max_examples) == (6 * times, profiles[name].max_examples)
            assert tries(6).derandomize is (name == "house")
    finally:
        settings.load_profile(before)


@proves("tidy")
def test_a_seed_is_made_where_none_is_given_and_refused_where_it_has_no_effect() -> None:
    assert seed_of("house", None) is None
    assert seed_of("slice", "5") == "5"
    assert len({seed_of("slice", None) for _ in range(20)}) > 1
    with pytest.raises(ValueError, match="a seed has no effect on TIDELOG_EXAMPLES=house"):
        seed_of("house", "5")


def drawn(folder: Path, *words: str) -> tuple[str, list[str]]:
    """What is printed, and what was drawn."""
    (folder / "test_small.py").write_text(DRAWN)
    (folder / "drawn").unlink(missing_ok=True)
    inherited = {name: value for name, value in os.environ.items() if name not in SET_BY_OTHERS}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", str(folder), *OURS, *words],
        env={**inherited, "PYTHONPATH": str(TESTS), "TIDELOG_EXAMPLES": "slice"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, (folder / "drawn").read_text().split()


@pytest.mark.slow
@proves("tidy")
def test_the_seed_that_is_printed_gives_the_same_examples_again(tmp_path: Path) -> None:
    told, first = drawn(tmp_path, "-n", "1")
    (seed,) = re.findall(
        r"^examples of seed (\d+); again by TIDELOG_EXAMPLES=slice and --hypothesis-seed=\1$", told, re.M
    )
    again = drawn(tmp_path, f"--hypothesis-seed={seed}")[1]
    assert len(first) >= 100
    assert again == first


@proves("tidy")
def test_no_property_has_a_number_of_examples_that_is_the_same_in_every_profile() -> None:
    ours = {"tries.py", "test_tries.py"}
    found = {
        path.relative_to(TESTS).as_posix()
        for path in TESTS.rglob("*.py")
        if path.name not in ours and "max_examples" in path.read_text()
    }
    assert found == {f"broker/groups/test_{kind}_at_random.py" for kind in ("classic", "consumer")}, (
        "which soak alone runs"
    )
