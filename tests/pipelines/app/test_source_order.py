"""Sources of a checkpoint are known by their places in the plan: what reads others there does not go on."""

from __future__ import annotations

import pytest

from proving import proves
from tidelog.pipelines.source_order import Misplaced, misplaced

A, B = '{"a":{"0":3,"1":4}}', '{"b":{"0":1}}'
SEEDED = '{"__tidelog.seed.s":{"0":9},"b":{"0":1}}'
TICKED = '{"a":{"0":3},"tick:1763236800000":{}}'


@proves("dt.10")
@pytest.mark.parametrize(
    ("lines", "subscribed", "found"),
    [
        ([A, B], ["a", "b"], None),
        ([A, B], ["b", "a"], Misplaced("a", "b")),
        ([A, A], ["a", "b"], Misplaced("a", "b")),
        ([A, "-"], ["a", "b"], None),
        (["-", A], ["b", "b"], Misplaced("a", "b")),
        ([TICKED], ["a"], None),
        ([SEEDED], ["b,__tidelog.seed.s"], None),
        ([SEEDED], ["b"], Misplaced("__tidelog.seed.s, b", "b")),
        ([A], [None], None),
        ([A, B], ["a"], None),
        ([A, B], ["a", "a", "b"], None),
        ([A, A, B], ["a", "a", "b"], None),
        (["17", '"elsewhere"'], ["a", "b"], None),
    ],
)
def test_a_source_reads_what_its_place_has_read(
    lines: list[str], subscribed: list[str | None], found: Misplaced | None
) -> None:
    assert misplaced("\n".join(["v1", "{}", *lines]), subscribed) == found
    named = [f"{'xyz'[place]}:{line}" for place, line in enumerate(lines)]
    assert misplaced("\n".join(["v2", "{}", *named]), subscribed) is None, "what has a name is known by it"
