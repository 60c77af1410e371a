"""Every message in every version comes back from its bytes as it was."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.wire.codec import decode, encode
from tidelog.wire.message import StructType
from tries import tries
from wire.any_message import any_message, messages_and_versions

SEEDS = st.integers(0, 1 << 32)
ALL = [pytest.param(cls, version, id=f"{cls.__name__}-{version}") for cls, version in messages_and_versions()]


@proves("T1")
@pytest.mark.parametrize(("cls", "version"), ALL)
@tries(2)  # of each of the 500 messages and versions
@given(seed=SEEDS)
def test_any_message_comes_back_from_its_bytes(cls: StructType, version: int, seed: int) -> None:
    message = any_message(Random(seed), cls, version)
    data = b"".join(encode(message, version))
    decoded, end = decode(cls, version, b"before" + data + b"after", 6)
    assert decoded == message
    assert end == 6 + len(data)
    assert b"".join(encode(decoded, version)) == data
