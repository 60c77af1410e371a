"""Why a peer is ahead in a row, where one is: by the row's first word and the peer. The page prints what is known."""

from __future__ import annotations

SAME = (
    "Spark's own plan on both sides; q0, q3, q18 and q20 are the very same program on both, and runs of those"
    " differ by as much"
)
JOIN = (
    "a join of two streams in Spark writes every row of both sides into versioned state, with the time by which it is"
    " cleaned; {} keeps rows in a map of its process"
)
IN_PYTHON = (
    "500,000 rows take us about 4 s, but 2 s go before the first of them, since Spark starts a Python process of its"
    " own on the driver for each fold, and 2 s into a last micro-batch without rows: a fifth of the run at this size"
)

REASONS: dict[tuple[str, str], str] = {
    ("state", "native, heap"): (
        "the JVM aggregates without leaving for Python, and its state is objects on the heap, none of it in RocksDB;"
        " where a native aggregate exists, Tidelog's operators use it"
    ),
    ("state", "native, RocksDB"): (
        "the JVM aggregates without leaving for Python; where a native aggregate exists, Tidelog's operators use it"
    ),
    **{(f"q{number}", "PySpark by hand"): SAME for number in (0, 3, 7, 8, 18, 20)},
    ("q4", "Bytewax"): IN_PYTHON,
    ("q4", "PyFlink"): IN_PYTHON,
    ("q8", "Bytewax"): JOIN.format("Bytewax"),
    ("q8", "PyFlink"): JOIN.format("Flink"),
    ("q9", "PySpark by hand"): IN_PYTHON,
    ("q9", "Bytewax"): IN_PYTHON,
    ("q9", "PyFlink"): IN_PYTHON,
    ("q20", "Bytewax"): JOIN.format("Bytewax"),
    ("q20", "PyFlink"): JOIN.format("Flink"),
}
