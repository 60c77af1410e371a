"""Which names topics may have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.broker.names import LEGAL, NAME_LENGTH_MAX, collision_key, fault_of, is_internal, is_own


@proves("T1")
@pytest.mark.parametrize("name", ["a", "orders", "A-b_c.9", "...", "__mine", "x" * NAME_LENGTH_MAX])
def test_a_legal_name_has_no_fault(name: str) -> None:
    assert fault_of(name) is None


@proves("T1")
@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("", "a topic's name is empty; give it one"),
        (".", "a topic cannot be called '.'; choose another name"),
        ("..", "a topic cannot be called '..'; choose another name"),
        ("x" * 250, "a topic's name has 250 characters; at most 249 are allowed"),
        ("a b", "'a b' is not a topic's name; use letters, digits, '.', '_' and '-' only"),
        ("ordérs", "'ordérs' is not a topic's name; use letters, digits, '.', '_' and '-' only"),
        ("a/b", "'a/b' is not a topic's name; use letters, digits, '.', '_' and '-' only"),
        ("a\0b", "'a\\x00b' is not a topic's name; use letters, digits, '.', '_' and '-' only"),
    ],
)
def test_an_illegal_name_is_refused_with_the_reason(name: str, fault: str) -> None:
    assert fault_of(name) == fault


@proves("T1")
@given(st.text(alphabet=sorted(LEGAL), min_size=1, max_size=NAME_LENGTH_MAX))
def test_a_name_without_a_fault_is_safe_as_a_file_name(name: str) -> None:
    if fault_of(name) is None:
        assert "/" not in name and "\0" not in name and name not in (".", "..")
        assert len(name.encode()) <= 255


@proves("T1")
def test_names_collide_where_dots_and_underscores_make_the_only_difference() -> None:
    assert collision_key("a.b_c") == collision_key("a_b.c") == collision_key("a_b_c")
    assert collision_key("a-b") != collision_key("a_b")


@proves("T1")
def test_the_brokers_own_names_have_its_prefix() -> None:
    assert is_internal("__tidelog.topics")
    assert not is_internal("__consumer_offsets") and not is_internal("tidelog.x") and not is_internal("x__tidelog.")


@proves("eo.2")
def test_marks_and_what_is_staged_are_internal_and_clients() -> None:
    theirs = [
        "__tidelog.marks.orders",
        "__tidelog.staging.orders",
        "__tidelog.views",
        "__tidelog.captures",
        "__tidelog.commands",
    ]
    theirs += ["__tidelog.questions.shop.revenue", "__tidelog.replies.shop.revenue", "__tidelog.seed.a.b"]
    assert all(is_internal(name) and not is_own(name) for name in theirs)
    ours = ["__tidelog.topics", "__tidelog.marks", "__tidelog.stagings.x", "__tidelog.anything"]
    assert all(is_own(name) for name in ours)
    assert not is_own("marks.orders")
