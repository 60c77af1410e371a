"""Every flipped bit is noticed, and good batches are found again behind bad ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from log.partition import batch
from proving import proves
from tidelog.log.checking import CHECK_WINDOW, check_batches, find_next
from tidelog.log.epochs import Epoch
from tidelog.log.files import RealFiles
from tidelog.log.index import BatchStart
from tidelog.record import codec

FILES = RealFiles()
EPOCHS = (Epoch(0, 0), Epoch(2, 5))
OFFSETS = (0, 2, 5, 6)
END = 9
BEGIN = BatchStart(0, 0)


def batches() -> list[bytes]:
    """Offsets 0-1, 2-4, 5 and 6-8; the last two in another epoch."""
    made = []
    for offset, count in zip(OFFSETS, (2, 3, 1, 3), strict=True):
        data = batch(*(b"value %d" % number for number in range(count)))
        codec.patch(data, offset, 0 if offset < 5 else 2)
        made.append(bytes(data))
    return made


class Written:
    def __init__(self, path: Path, data: bytes) -> None:
        path.write_bytes(data)
        self.fd = FILES.open(str(path))
        self.size = len(data)

    def __enter__(self) -> Written:
        return self

    def __exit__(self, *_: object) -> None:
        FILES.close(self.fd)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checking") / "file"


@proves("T1")
def test_good_batches_are_good_to_the_end(path: Path) -> None:
    with Written(path, b"".join(batches())) as file:
        checked = check_batches(FILES, file.fd, BEGIN, file.size, EPOCHS, keep_headers=True)
    assert (checked.end, checked.fault) == ((file.size, END), None)
    assert tuple(header.base_offset for _, header in checked.headers) == OFFSETS


@proves("T1")
@given(st.data())
def test_one_flipped_bit_anywhere_ends_the_good_batches_before_it(path: Path, data: st.DataObject) -> None:
    made = batches()
    content = bytearray(b"".join(made))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= 1 << data.draw(st.integers(0, 7))
    starts = [sum(len(each) for each in made[:number]) for number in range(len(made))]
    hit = max(number for number, start in enumerate(starts) if start <= at)
    with Written(path, bytes(content)) as file:
        checked = check_batches(FILES, file.fd, BEGIN, file.size, EPOCHS)
        assert checked.fault is not None
        assert checked.end == (starts[hit], OFFSETS[hit])
        again = find_next(FILES, file.fd, checked.end, BatchStart(file.size, END), EPOCHS)
    following = (starts[hit + 1], OFFSETS[hit + 1]) if hit + 1 < len(made) else (file.size, END)
    assert again == following


@proves("T1")
def test_a_batch_inside_a_value_is_not_taken_for_one(path: Path) -> None:
    inner = batch(b"inner")
    codec.patch(inner, 1, 0)
    outer = batch(b"before", bytes(inner), b"after")
    last = batch(b"last")
    codec.patch(outer, 0, 0)
    codec.patch(last, 3, 0)
    content = bytearray(outer + last)
    content[17] ^= 1
    with Written(path, bytes(content)) as file:
        found = find_next(FILES, file.fd, BEGIN, BatchStart(file.size, 4), EPOCHS)
    assert found == (len(outer), 3)


@proves("T1")
def test_a_batch_larger_than_the_window_is_read_whole(path: Path) -> None:
    large, small = batch(b"x" * (2 * CHECK_WINDOW)), batch(b"y")
    codec.patch(large, 0, 0)
    codec.patch(small, 1, 0)
    with Written(path, bytes(large + small)) as file:
        assert check_batches(FILES, file.fd, BEGIN, file.size, EPOCHS).fault is None
        cut = check_batches(FILES, file.fd, BEGIN, len(large) - 1, EPOCHS)
    assert cut.fault is not None
    assert cut.end == BEGIN


@proves("T1")
def test_zeros_are_bad_from_the_first_byte(path: Path) -> None:
    with Written(path, bytes(1000)) as file:
        checked = check_batches(FILES, file.fd, BatchStart(0, 7), 1000, EPOCHS)
    assert checked.fault is not None
    assert checked.end == (0, 7)
