"""The state of one bucket as pages: Arrow rows, each page for a range of hashes, and the directory of them. Pure.

    directory (little-endian; 36 bytes a page, by `first`; the first page begins at the lowest hash there is)
        first    int64   lowest hash of the page; it ends where the next one begins
        due      int64   the earliest DUE of its rows; NEVER where none has one
        number   int64   under which its bytes are kept
        rows     int64
        size     int32   bytes

    page
        one Arrow record batch in IPC format without its schema, which stands in the bucket's header once; by hash

Rules:
- A row's page is the one whose range its hash is in: all rows of one hash are in one page.
- A page that grows beyond CUT_AT is cut into pages of about PAGE_SIZE, between two hashes: the rows of one hash stay
  together, however large. A page without rows is dropped, and its range falls to its neighbour.
- A page whose bytes are as before is not written again. Numbers are never given twice in the life of a bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.pipelines.operators.state.fold import DUE, HASH

PAGE_SIZE = 64 * 1024  # bytes
CUT_AT = 2 * PAGE_SIZE
LOWEST = -(2**63)
NEVER = 2**63 - 1

ENTRY = np.dtype([("first", "<i8"), ("due", "<i8"), ("number", "<i8"), ("rows", "<i8"), ("size", "<i4")])

Directory = npt.NDArray[np.void]
Hashes = npt.NDArray[np.int64]


class PageRange(NamedTuple):
    """Rows that become one page: it begins at hash `first`, and is `rows[start:end]`."""

    first: int
    start: int
    end: int


def touched(directory: Directory, hashes: Hashes, watermark: int | None) -> npt.NDArray[np.intp]:
    """The places of the pages that a step needs: those of its rows, and those that have a row that is due."""
    needed = np.zeros(len(directory), bool)
    if len(directory):
        needed[np.searchsorted(directory["first"], hashes, side="right") - 1] = True
        if watermark is not None:
            needed |= directory["due"] <= watermark
    return np.flatnonzero(needed)


def concerned(held: pa.Table, hashes: Hashes, watermark: int | None) -> npt.NDArray[np.bool_]:
    """Which of the rows in touched pages a step is given: all of every hash that has a new row, or one that is due."""
    found = held[HASH].to_numpy()
    wanted = hashes
    if watermark is not None:
        wanted = np.concatenate([hashes, found[dues(held) <= watermark]])
    return np.asarray(pc.is_in(pa.array(found), value_set=pa.array(wanted)))


def dues(rows: pa.Table) -> npt.NDArray[np.int64]:
    filled: npt.NDArray[np.int64] = pc.fill_null(rows[DUE], NEVER).to_numpy()
    return filled


def by_hash(rows: pa.Table) -> pa.Table:
    hashes = rows[HASH].to_numpy()
    if np.all(hashes[1:] >= hashes[:-1]):
        return rows
    return rows.take(pa.array(np.argsort(hashes, kind="stable")))


def cuts(firsts: Iterable[int], ends: Iterable[int], hashes: Hashes, row_size: float) -> Iterator[PageRange]:
    """Where the rows of touched pages, sorted by hash, are cut into pages. A page that became empty yields none.

    `firsts` are the lowest hashes of the touched pages, `ends` the lowest above each of them.
    """
    for first, end in zip(firsts, ends, strict=True):
        low = int(np.searchsorted(hashes, first, side="left"))
        high = len(hashes) if end == NEVER else int(np.searchsorted(hashes, end, side="left"))
        yield from _cut_page(first, low, high, hashes, row_size)


def _cut_page(first: int, low: int, high: int, hashes: Hashes, row_size: float) -> Iterator[PageRange]:
    if low == high:
        return
    pieces = max(int((high - low) * row_size) // PAGE_SIZE, 1) if (high - low) * row_size > CUT_AT else 1
    start = low
    for piece in range(1, pieces):
        middle = hashes[low + (high - low) * piece // pieces]
        end = int(np.searchsorted(hashes, middle, side="left"))
        if end > start:
            yield PageRange(first, start, end)
            first, start = int(middle), end
    yield PageRange(first, start, high)


def write_page(rows: pa.Table, cut: PageRange) -> pa.Buffer:
    piece = rows.slice(cut.start, cut.end - cut.start)
    return piece.combine_chunks().to_batches()[0].serialize()


def read_page(data: bytes, schema: pa.Schema) -> pa.RecordBatch:
    return pa.ipc.read_record_batch(pa.py_buffer(data), schema)
