"""Keys as bytes: in the order of the keys, equal where they are, and never the beginning of one another."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.errors import UsageError
from tidelog.schema.column_types import OF_A_KEY
from tidelog.schema.declaration import Key, declare
from tidelog.views.stores.key_order import encoder

ANY = {
    "boolean": st.booleans(),
    "long": st.integers(-(2**63), 2**63 - 1),
    "string": st.text(st.characters(exclude_categories=["Cs"])),
    "date": st.dates(),
    "timestamp": st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30), timezones=st.just(UTC)),
    "decimal": st.decimals(allow_nan=False) | st.decimals(-20, 20, places=2),
    "binary": st.binary() | st.sampled_from([b"\x00", b"\x00\x00", b"\x00\x01", b"\x00\xff", b"\xff"]),
}
KINDS = st.lists(st.sampled_from(OF_A_KEY), min_size=1, max_size=3)
TWO_KEYS = KINDS.flatmap(
    lambda kinds: st.tuples(st.just(kinds), *[st.tuples(*(ANY[kind] for kind in kinds)) for _ in range(2)])
)


@proves("P3")
@given(TWO_KEYS)
def test_bytes_are_ordered_as_keys_are(found: tuple[list[str], Key, Key]) -> None:
    kinds, left, right = found
    names = [f"column{number}" for number in range(len(kinds))]
    encode = encoder(declare(dict(zip(names, kinds, strict=True)), tuple(names)))
    one, other = encode(left), encode(right)
    assert (one < other, one == other) == (left < right, left == right)
    assert left == right or not other.startswith(one)


@proves("P3")
def test_a_number_is_one_key_however_it_is_written_and_nan_is_none() -> None:
    encode = encoder(declare({"price": "decimal"}, ("price",)))
    assert len({encode((Decimal(text),)) for text in ("12.5", "12.50", "1.25E+1")}) == 1
    assert encode((Decimal("0"),)) == encode((Decimal("-0.00"),))
    with pytest.raises(UsageError, match="NaN"):
        encode((Decimal("NaN"),))
