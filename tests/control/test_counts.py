"""Counts that ride in marks: sums, reasons that many records share, and a size that has an end."""

from __future__ import annotations

from proving import proves
from tidelog.control.counts import NAMES_MAX, NOTHING, OTHER, added, from_fields, lost_in, reason_of, to_fields


@proves("P1")
def test_counts_add_up_by_kind_name_and_what_and_zeros_are_left_out() -> None:
    before = {"records": {"orders": {"passed": 1}}}
    more = {"records": {"orders": {"passed": 2, "it is not JSON": 1}}, "operators": {"tumbling": {"in": 4, "late": 0}}}
    both = {"records": {"orders": {"it is not JSON": 1, "passed": 3}}, "operators": {"tumbling": {"in": 4}}}
    assert added(before, more) == both
    assert added(NOTHING, {"operators": {"tumbling": {"late": 0}}}) == {}
    assert from_fields(to_fields(both)) == both


@proves("P1")
def test_reasons_are_shared_by_records_and_more_of_them_than_a_mark_can_have_are_others() -> None:
    assert reason_of("price: a number is out of range, at byte 17") == "price: a number is out of range"
    assert reason_of("the union has no branch 12, at byte 3") == reason_of("the union has no branch 9, at byte 4")
    many = {f"reason {number}": 1 for number in range(NAMES_MAX + 7)}
    kept = added(NOTHING, {"records": {"orders": many}})["records"]["orders"]
    assert len(kept) == NAMES_MAX + 1 and kept[OTHER] == 7


@proves("P1")
def test_what_is_not_a_count_is_left_out_and_what_was_lost_is_told_by_reason() -> None:
    assert from_fields("nonsense") == {} and from_fields({"records": {"orders": {"passed": "x"}, "b": 1}}) == {
        "records": {"orders": {}}
    }
    assert lost_in({"in": 9, "late": 2, "without_time": 0, "without_key": 1}) == {"late": 2, "without_key": 1}
