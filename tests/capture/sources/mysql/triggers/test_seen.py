"""What has been seen, by numbers with gaps: against a set, which says the same in more memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.capture.sources.mysql.triggers.seen import (
    SeenNumbers,
    after,
    is_in,
    seen_in,
    unseen,
    without_gaps_up_to,
)


@proves("D2", "cdc.23")
@given(st.lists(st.sets(st.integers(1, 30)), max_size=6), st.integers(0, 30))
def test_numbers_with_gaps_are_the_set_of_those_that_were_found(looks: list[set[int]], last: int) -> None:
    seen, found = SeenNumbers(), set[int]()
    for look in looks:
        seen = after(seen, sorted(look - found))
        found |= look
    assert {number for number in range(1, 40) if is_in(seen, number)} == found
    assert seen.last == max(found, default=0)
    assert all(low <= high < seen.last for low, high in seen.gaps)
    assert seen_in(seen.to_fields()) == seen
    given_up = without_gaps_up_to(seen, last)
    assert {number for number in range(1, 40) if is_in(given_up, number)} == found | set(
        range(1, min(last, seen.last) + 1)
    )


@proves("D2")
def test_what_was_not_seen_is_a_condition_of_numbers() -> None:
    assert unseen(SeenNumbers(9, ((4, 4), (6, 7)))) == "(id = 4 OR id BETWEEN 6 AND 7 OR id > 9)"
