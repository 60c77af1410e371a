"""Two tables that change, made of the keyed rows without state: what the row `operator join_tables` joins. Pure.

A row of a table is made of its number in its partition alone, so that a later row of the input can take it away:

    offset 0 to FILLED - 1    adds row 0, 1, 2, ...: the table is filled
    from then on, in turns    takes away the oldest row that is there; adds the next one

Both tables have a row a key on average, and their keys have nothing to do with each other. A row is taken away behind
the one that added it, in the same partition: so this is a changelog however it is cut into micro-batches. What is
computed of offsets is written such that SQLite computes the same.
"""

from __future__ import annotations

from bench.pipelines.keyed import PARTITIONS

FILLED = 50_000  # rows in a partition, an even number: as many keys as it has
BEYOND = f"offset - {FILLED}"
DELETES = f"(offset >= {FILLED} and (offset & 1) = 0)"
NUMBER = f"case when offset < {FILLED} then offset else (({BEYOND}) >> 1) + (offset & 1) * {FILLED} end"


def changes_sql(table: int) -> list[str]:
    """Columns `op`, `key` and `value` of what each row of the input does to a table."""
    key = f"pmod(xxhash64({NUMBER}, {table}), {FILLED}L) * {PARTITIONS} + pmod(key, {PARTITIONS}) as key"
    return [f"if({DELETES}, '-D', '+I') as op", key, f"{NUMBER} as value"]
