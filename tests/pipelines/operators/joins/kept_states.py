"""State that earlier versions wrote: the bytes of every bucket, as their own code left them (`tests/data/states`)."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path

from pipelines.operators.state.test_bucket import Kept

FOLDER = Path(__file__).parents[3] / "data" / "states"


def kept_state(name: str, file: str = "before_places.json") -> list[Kept]:
    """Of `as_changelog by ...`: a 1, b 4, and c, which is deleted; the orders of a and b are 10 and 14, or as many
    seconds. Of `enrich by ...`: versions a 1 and b 2 of 10 ms, and rows that wait, a 100 at 10 ms and b 101 at 11 ms;
    `enrich with the latest`: a 1, b 2, and c, which is deleted.
    """
    buckets = json.loads((FOLDER / file).read_text())["buckets"][name]
    return [Kept() if one is None else _bucket(one) for one in buckets]


def _bucket(one: dict) -> Kept:
    pages = {int(number): b64decode(page) for number, page in one["pages"].items()}
    return Kept((one["header"], b64decode(one["directory"])), pages, one["timer"])
