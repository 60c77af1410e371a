"""Values of keys with one form each: what is equal in Spark's SQL is equal here, bit by bit. Pure.

Spark groups and joins 0.0 with -0.0, and all that is not a number with all other such, whatever their bits. Its hash
has one value for each; Arrow, by which folds compare, goes by bits. So the key's columns are made plain before a step
sees them: of rows, and of state too, which may be from before this was done.

Texts that only a collation has as equal are not told by their bytes: keys of such types are refused (`checking.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def with_plain_keys(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The table itself, where no key has a floating-point number in it."""
    for name in keys:
        place = table.schema.get_field_index(name)
        if place >= 0 and _has_numbers(table.schema.field(place).type):
            column = table.column(place)
            made = pa.chunked_array([_plain(chunk) for chunk in column.chunks], column.type)
            table = table.set_column(place, table.schema.field(place), made)
    return table


def _has_numbers(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind) or pa.types.is_list(kind):
        return any(_has_numbers(kind.field(number).type) for number in range(kind.num_fields))
    return bool(pa.types.is_floating(kind))


def _plain(values: pa.Array) -> pa.Array:
    kind = values.type
    if not _has_numbers(kind):
        return values
    if pa.types.is_floating(kind):
        return _plain_numbers(values)
    whole = values.take(pa.array(np.arange(len(values))))  # without what a slice leaves out
    if pa.types.is_struct(kind):
        parts = [_plain(whole.field(number)) for number in range(kind.num_fields)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=whole.is_null())
    return pa.ListArray.from_arrays(whole.offsets, _plain(whole.values), type=kind, mask=whole.is_null())


def _plain_numbers(values: pa.Array) -> pa.Array:
    numbers = pc.fill_null(values, 0.0).to_numpy(zero_copy_only=False)
    numbers = np.where(numbers == 0, numbers.dtype.type(0), numbers)
    numbers[np.isnan(numbers)] = np.nan
    return pa.array(numbers, values.type, mask=values.is_null().to_numpy(zero_copy_only=False))
