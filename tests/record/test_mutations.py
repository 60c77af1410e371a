"""Bytes that went bad: whatever they are, a typed error or a valid result, and from both twins the same.

Good batches of every kind are changed at random: bits flipped, bytes overwritten with numbers that hurt, pieces cut,
doubled, moved. Half of them get their length and checksum mended, so that the damage reaches the records. A failure
prints the seed and the bytes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from types import ModuleType

import pytest

from proving import proves
from record.java_batches import BATCHES
from record.twins import COMPRESSIONS
from tidelog.errors import MalformedBatch
from tidelog.record import _codec, _pure
from tidelog.record.columns import Columns, Row, encode
from tidelog.record.compression import decompress
from tidelog.record.header import HEADER_SIZE, EncodableRow

COMPILED_RUNS = 50_000
TWIN_RUNS = 10_000
SOAK_RUNS = 60_000
LIMIT = 1 << 18

HURTING = [b"\xff", b"\x80", b"\x7f", b"\0", b"\1", b"\xff\xff\xff\xff\x0f", b"\xfe\xff\xff\xff\x0f", b"\xff" * 10]
HURTING += [b"\x80\x00", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x80" * 9 + b"\1"]


def good_batches() -> list[bytes]:
    rows: list[list[EncodableRow]] = [
        [(b"key", b"value", None, 1_000)],
        [(None, None, [("h", b"x"), ("", None), ("name", b"")], -5), (b"", b"", None, 1 << 40)],
        [(b"k%d" % i, b"v" * i, [("n", b"%d" % i)] * (i % 3), i) for i in range(40)],
        [(None, bytes(500), None, 0), (None, b"ab" * 500, None, 1)],
    ]
    made = [bytes(encode(each, compression=name)) for each in rows for name in COMPRESSIONS]
    java = [bytes.fromhex(each) for each in BATCHES.values()]
    return [*made, *java, made[0] + made[5] + java[0], made[10] * 3]


def mutate(source: random.Random, batch: bytes) -> bytearray:
    bad = bytearray(batch)
    for _ in range(source.choice((1, 1, 2, 4))):
        at = source.randrange(len(bad) + 1) if source.random() < 0.5 else source.randrange(min(len(bad), 90) + 1)
        kind = source.randrange(6)
        if kind == 0 and at < len(bad):
            bad[at] ^= 1 << source.randrange(8)
        elif kind == 1:
            hurting = source.choice(HURTING)
            bad[at : at + len(hurting)] = hurting
        elif kind == 2:
            del bad[at : at + source.choice((1, 2, 8, 100))]
        elif kind == 3:
            bad[at:at] = bad[at : at + source.choice((1, 7, 61))] or b"\0"
        elif kind == 4:
            bad[at : at + 1] = source.randbytes(source.randrange(4))
        else:
            del bad[at:]
    if source.random() < 0.5 and len(bad) >= HEADER_SIZE:
        _codec.seal(bad)
    return bad


def outcome(action: Callable[[], object]) -> object:
    """What an action gives, or the kind and text of its typed error; any other error fails the test."""
    try:
        return action()
    except MalformedBatch as error:
        return type(error).__name__, str(error)


def stamped(codec: ModuleType, bad: bytearray) -> list[object]:
    """What each function that writes makes of the bytes: `patch`, `stamp_append_time`, `restamp`, `seal`."""
    writers: list[Callable[[bytearray], None]] = [
        lambda copy: codec.patch(copy, 77, 5),
        lambda copy: codec.stamp_append_time(copy, 99),
        lambda copy: codec.restamp(copy, 1, 2, 3, True),
        lambda copy: codec.seal(copy),
    ]
    made: list[object] = []
    for write in writers:
        copy = bytearray(bad)
        made += [outcome(lambda write=write, copy=copy: write(copy)), bytes(copy)]  # type: ignore[misc]
    return made


def decoded(codec: ModuleType, bad: bytearray, crc: bool, partial: bool) -> object:
    batches, parts = codec.decode(bad, crc, LIMIT, partial, decompress)
    columns = Columns(batches, parts)
    return batches, parts, codec.rows(Row, parts, columns.count, 0, columns.count)


def everything(codec: ModuleType, bad: bytearray) -> list[object]:
    return [
        outcome(lambda: codec.peek(bad)),
        outcome(lambda: codec.check(bad)),
        codec.scan(bad),
        codec.scan(bad, crc=False),
        outcome(lambda: decoded(codec, bad, True, True)),
        outcome(lambda: decoded(codec, bad, False, False)),
        codec.crc32c(bad),
        *stamped(codec, bad),
    ]


@pytest.fixture
def tried(seed: int) -> Callable[[int], object]:
    """Bad bytes, as many as asked for, always the same ones for a seed."""
    source, good = random.Random(seed), good_batches()
    return lambda runs: (mutate(source, source.choice(good)) for _ in range(runs))


@proves("T1")
def test_the_batches_are_good_before_they_are_changed() -> None:
    for batch in good_batches():
        assert _codec.scan(batch).error is None
        decoded(_codec, bytearray(batch), True, False)


@proves("T1")
@pytest.mark.slow
def test_the_compiled_codec_gives_a_typed_error_or_a_result(tried: Callable[[int], list[bytearray]], seed: int) -> None:
    refused = 0
    for run, bad in enumerate(tried(COMPILED_RUNS)):
        try:
            results = everything(_codec, bad)
        except BaseException:
            print(f"seed {seed}, run {run}: {bytes(bad).hex()}")
            raise
        refused += isinstance(results[4], tuple) and isinstance(results[4][0], str)
    assert COMPILED_RUNS // 4 < refused < COMPILED_RUNS, "the changes are too gentle, or too rough, to prove anything"


@proves("T1")
@pytest.mark.slow
def test_the_twins_find_the_same_fault_first(tried: Callable[[int], list[bytearray]], seed: int) -> None:
    for run, bad in enumerate(tried(TWIN_RUNS)):
        compiled, pure = everything(_codec, bad), everything(_pure, bad)
        assert compiled == pure, f"seed {seed}, run {run}: {bytes(bad).hex()}"


@proves("T1")
@pytest.mark.soak
def test_the_twins_find_the_same_fault_first_for_long(tried: Callable[[int], list[bytearray]], seed: int) -> None:
    for run, bad in enumerate(tried(SOAK_RUNS)):
        compiled, pure = everything(_codec, bad), everything(_pure, bad)
        assert compiled == pure, f"seed {seed}, run {run}: {bytes(bad).hex()}"
