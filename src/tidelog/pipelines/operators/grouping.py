"""Rows put into groups, and a column made into one value a group: numpy and Arrow, no loop over rows.

    rows    a b a c        ids    0 1 0 2      the group of each row, numbered in the order in which groups appear
                           size   3            how many groups there are; a group may have no row

Rules:
- A null key is a key like any other; a null value is left out of what it is reduced to, as in SQL.
- A group without a value is null.
- Keys are told apart by their hash first. Two keys with one hash are seen, and then told apart by their columns.
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.errors import UsageError
from tidelog.pipelines.operators.state.fold import HASH

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

INT64_BOUND = 2.0**63  # beyond it, a sum of 64-bit integers has wrapped
INT128_BOUND = 2.0**127


class Groups(NamedTuple):
    ids: Integers
    size: int


class Keys(NamedTuple):
    """`codes` numbers the keys of all rows; `first` is the row in which each appears first."""

    codes: Integers
    first: Integers


def encode(values: pa.Array | pa.ChunkedArray) -> Keys:
    """Values as numbers from 0 in the order of appearance."""
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    encoded = whole.dictionary_encode(null_encoding="encode")
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    first = np.empty(len(encoded.dictionary), np.int64)
    first[codes[::-1]] = np.arange(len(codes), dtype=np.int64)[::-1]
    return Keys(codes, first)


def encode_keys(table: pa.Table, names: Sequence[str]) -> Keys:
    found = encode(table[HASH])
    if all(_told_apart(table[name], found) for name in names):
        return found
    for name in names:
        column = encode(table[name])
        found = encode(pa.array(found.codes * len(column.first) + column.codes))
    return found


def _told_apart(column: pa.ChunkedArray, keys: Keys) -> bool:
    """Is the column the same in all rows of a code?"""
    whole = column.combine_chunks()
    expected = whole.take(pa.array(keys.first[keys.codes]))
    same = pc.all(pc.equal(whole, expected)).as_py() is not False
    return same and (not whole.null_count or bool(pc.all(pc.equal(pc.is_null(whole), pc.is_null(expected))).as_py()))


def pairs(codes: Integers, times: Integers) -> Keys:
    """Pairs of a code and a time as numbers from 0, in the order of appearance."""
    if not len(codes):
        return Keys(codes, codes)
    low, high = int(times.min()), int(times.max())
    span = high - low + 1
    if span * (int(codes.max()) + 1) < 2**62:
        return encode(pa.array(codes * span + (times - low)))
    ranks = encode(pa.array(times))
    return encode(pa.array(codes * len(ranks.first) + ranks.codes))


class Moments(NamedTuple):
    """Times, and whose they are."""

    codes: Integers
    times: Integers


def in_order(*moments: Moments) -> list[Integers]:
    """Each moment as one number: the numbers have the order of keys, and within a key that of times."""
    codes, times = (np.concatenate(side) for side in zip(*moments, strict=True))
    low, high = (int(times.min()), int(times.max())) if len(times) else (0, 0)
    span = high - low + 1
    if span * (int(codes.max(initial=0)) + 1) < 2**62:
        placed = codes * span + (times - low)
    else:
        distinct, ranks = np.unique(times, return_inverse=True)
        placed = codes * len(distinct) + ranks
    return np.split(placed, np.cumsum([len(each.times) for each in moments])[:-1])


def expand(starts: Integers, counts: Integers) -> tuple[Integers, Integers]:
    """Ranges written out: for each element the number of its range, and its value (start, start + 1, ...)."""
    owners = np.repeat(np.arange(len(starts), dtype=np.int64), counts)
    before = np.cumsum(counts) - counts
    return owners, np.arange(len(owners), dtype=np.int64) - before[owners] + starts[owners]


# One value a group ---------------------------------------------------------------------------------------------------


def valid_of(values: pa.Array, groups: Groups) -> tuple[pa.Array, Integers, Booleans]:
    """The values that are not null, their groups, and which groups have any."""
    ids = groups.ids
    if values.null_count:
        mask = values.is_valid()
        values, ids = values.filter(mask), ids[mask.to_numpy(zero_copy_only=False)]
    return values, ids, np.bincount(ids, minlength=groups.size) > 0


def sum_integers(values: pa.Array, groups: Groups, what: str) -> pa.Array:
    kept, ids, seen = valid_of(values, groups)
    numbers = kept.to_numpy(zero_copy_only=False)
    totals = np.zeros(groups.size, np.int64)
    np.add.at(totals, ids, numbers)
    if len(numbers) and max(abs(int(numbers.min())), abs(int(numbers.max()))) * len(numbers) >= 2**63:
        about = np.bincount(ids, weights=numbers, minlength=groups.size)
        if (np.abs(about - totals) > INT64_BOUND).any():
            raise _overflow(what, "64-bit integer")
    return pa.array(totals, mask=~seen)


def sum_floats(values: pa.Array, groups: Groups) -> pa.Array:
    kept, ids, seen = valid_of(values, groups)
    numbers = kept.to_numpy(zero_copy_only=False)
    return pa.array(np.bincount(ids, weights=numbers, minlength=groups.size).astype(np.float64), mask=~seen)


def sum_decimals(values: pa.Array, groups: Groups, what: str) -> pa.Array:
    """Arrow's sum wraps at 128 bits: seen by the sum of floats beside it, which is off by far less than that."""
    kind, totals = values.type, by_arrow(values, groups, "sum")
    about = sum_floats(values.cast(pa.float64()), groups)
    apart = pc.max(pc.abs(pc.subtract(about, totals.cast(pa.float64())))).as_py() or 0.0
    most = pa.scalar(decimal.Decimal((0, (9,) * kind.precision, -kind.scale)), totals.type)
    beyond = pc.any(pc.or_(pc.greater(totals, most), pc.less(totals, pc.negate(most)))).as_py()
    if beyond or apart > INT128_BOUND * 10.0**-kind.scale:
        raise _overflow(what, str(kind))
    return totals.cast(kind)


def by_arrow(values: pa.Array, groups: Groups, function: str) -> pa.Array:
    """Arrow's own reduction, for what numpy has no type for."""
    table = pa.table({"group": groups.ids, "value": values})
    done = table.group_by("group", use_threads=False).aggregate([("value", function)])
    places = np.full(groups.size, -1, np.int64)
    places[done["group"].to_numpy()] = np.arange(len(done))
    return done[f"value_{function}"].combine_chunks().take(pa.array(places, mask=places < 0))


def earliest(times: pa.Array, groups: Groups) -> pa.Array:
    """For each group the place of its earliest time, of equal ones the first; null where it has none."""
    kept, ids, seen = valid_of(times, groups)
    numbers, places = kept.to_numpy(zero_copy_only=False), _places(times)
    best = np.full(groups.size, np.iinfo(np.int64).max)
    np.minimum.at(best, ids, numbers)
    at_best = numbers == best[ids]
    found = np.zeros(groups.size, np.int64)
    found[ids[at_best][::-1]] = places[at_best][::-1]
    return pa.array(found, mask=~seen)


def latest(times: pa.Array, groups: Groups) -> pa.Array:
    """For each group the place of its latest time, of equal ones the last; null where it has none."""
    kept, ids, seen = valid_of(times, groups)
    numbers, places = kept.to_numpy(zero_copy_only=False), _places(times)
    best = np.full(groups.size, np.iinfo(np.int64).min)
    np.maximum.at(best, ids, numbers)
    at_best = numbers == best[ids]
    found = np.zeros(groups.size, np.int64)
    found[ids[at_best]] = places[at_best]
    return pa.array(found, mask=~seen)


def _places(values: pa.Array) -> Integers:
    if not values.null_count:
        return np.arange(len(values), dtype=np.int64)
    return np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))


def _overflow(what: str, held: str) -> UsageError:
    return UsageError(f"{what} has left the range of a {held}, as Spark's would; cast its column to a wider type")
