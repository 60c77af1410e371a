"""Every message in every version has the bytes that Kafka gives it, and comes back from them as it was."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.wire.codec import decode, encode
from tidelog.wire.message import StructType
from tries import tries
from wire.any_message import (
    SEEDS_KNOWN,
    any_message,
    digest_of,
    known_digests,
    message_classes,
    messages_and_versions,
)

SEEDS = st.integers(0, 1 << 32)
ALL = [pytest.param(cls, version, id=f"{cls.__name__}-{version}") for cls, version in messages_and_versions()]


@proves("T1")
def test_every_message_is_known_to_kafka_in_all_its_versions() -> None:
    assert set(known_digests()) == {(cls.__name__, version) for cls, version in messages_and_versions()}


@proves("T1")
@pytest.mark.parametrize("cls", [pytest.param(cls, id=cls.__name__) for cls in message_classes()])
def test_a_message_has_the_bytes_that_kafka_gives_it(cls: StructType) -> None:
    """Both ways of our codec go by one table, and agree where it is wrong. `test_against_java.py` asks Kafka itself."""
    known = known_digests()
    for version in cls.SCHEMA.versions:
        some = [any_message(Random(seed), cls, version, unknown_tags=False) for seed in range(SEEDS_KNOWN)]
        assert digest_of(part for one in some for part in encode(one, version)) == known[cls.__name__, version], version


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
