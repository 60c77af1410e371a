"""What a run says of what is lost to it: the first, then once a minute."""

from __future__ import annotations

from proving import proves
from tidelog.pipelines.losses import AGAIN_S, Losses


@proves("P1", "F1")
def test_the_first_of_a_kind_is_told_at_once_and_more_of_it_once_a_minute() -> None:
    losses = Losses()
    bad = {"records": {"orders": {"it is not JSON": 1, "passed": 1}}}
    assert losses.news(bad, {}, 0.0) == [
        "left out since it was first run: 1 record of orders, not decoded: it is not JSON",
        "left out since it was first run: 1 record of orders, passed",
    ]
    more = {"records": {"orders": {"it is not JSON": 5, "passed": 1}}}
    assert losses.news(more, {}, AGAIN_S - 1) == []
    late = {"tumbling": {"late": 2}}
    assert losses.news(more, late, AGAIN_S - 1) == ["dropped so far by operator tumbling: 2 rows, late"]
    (again,) = losses.news(more, late, AGAIN_S)
    assert " 5 records of orders" in again, "and nothing that has not grown"
