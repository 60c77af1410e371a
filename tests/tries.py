"""How many examples hypothesis tries, and from which seed: the profile that the variable TIDELOG_EXAMPLES names.

- house: 25, always the same ones. `make test` and the fixed part of .ci/run, so that a change fails by what it changed.
- slice: 100 others each time. The seed is printed; with `--hypothesis-seed` it gives the same ones again.
- soak: 1,000 others each time. Also wherever TIDELOG_SEED is set.

25 are enough for what most examples show. What only one in hundreds would show stands as an `@example` or in a test of
its own; a property that takes more or fewer says so by `tries`, and why beside it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from hypothesis import HealthCheck, settings

VARIABLE = "TIDELOG_EXAMPLES"
USUAL = 25
TIMES = {"house": 1, "slice": 4, "soak": 40}
SEED_LIMIT = 1_000_000_000

# How long an example takes says something of the machine alone.
ANY_PACE: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}


def profile_of(environment: Mapping[str, str]) -> str:
    name = environment.get(VARIABLE) or ("soak" if "TIDELOG_SEED" in environment else "house")
    if name not in TIMES:
        raise ValueError(f"{VARIABLE}={name} is not a profile; it is one of {', '.join(TIMES)}")
    return "soak" if "TIDELOG_SEED" in environment else name


def load_profile(name: str) -> None:
    for each, times in TIMES.items():
        # Said of each: where CI is set, hypothesis would have them all the same.
        settings.register_profile(
            each, max_examples=USUAL * times, derandomize=each == "house", print_blob=each != "house", **ANY_PACE
        )
    settings.load_profile(name)


def tries(house: int, **more: Any) -> settings:
    """So many in the house, and as many times more elsewhere as of the usual ones."""
    return settings(max_examples=house * settings().max_examples // USUAL, **more)


def seed_of(name: str, given: str | None) -> str | None:
    """The seed of a run for which this one was given, or none. Examples that are always the same have none."""
    if name == "house" and given is not None:
        raise ValueError(f"a seed has no effect on {VARIABLE}=house, which always tries the same; give slice")
    return given if name == "house" or given is not None else str(secrets.randbelow(SEED_LIMIT))


def repeats(name: str, seed: str) -> str:
    """What to run a test by to try the same examples again."""
    return f"examples of seed {seed}; again by {VARIABLE}={name} and --hypothesis-seed={seed}"
