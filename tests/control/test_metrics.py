"""Numbers of parts: written and read again, and read from reports of older versions and of appliers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.control.metrics import Metrics, metrics_of

NUMBERS = st.none() | st.integers(0, 2**53)


@proves("metrics", "F1")
@given(st.builds(Metrics, **dict.fromkeys(Metrics._fields, NUMBERS)))
def test_what_is_told_is_what_is_read(told: Metrics) -> None:
    assert metrics_of(told.fields) == told
    assert None not in told.fields.values()


@proves("metrics", "F1")
@pytest.mark.parametrize(
    ("figures", "found"),
    [
        ({"kept": {"rows": 7, "bytes": 100}}, Metrics(state_rows=7, state_bytes=100)),  # an older version's query
        ({"rows": 5, "generations": [{"shown": False, "behind": 9}, {"shown": True, "behind": 3}]}, (None, 5, None, 3)),
        ({"lag": None, "watermark_ms": None, "rows_in": 0}, Metrics(rows_in=0)),
        ({"rows_in": "many", "lag": 7, "kept": [], "generations": "none"}, Metrics()),
    ],
)
def test_numbers_that_stand_elsewhere_are_found_and_what_is_not_a_number_is_left_out(
    figures: dict[str, Any], found: tuple[Any, ...]
) -> None:
    assert metrics_of(figures) == Metrics(*found)
