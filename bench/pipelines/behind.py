"""Why a peer is ahead in a row, where one is: by the row's first word and the peer. The page prints what is known."""

from __future__ import annotations

REASONS: dict[tuple[str, str], str] = {
    ("state", "native, heap"): (
        "the JVM aggregates without leaving for Python, and its state is objects on the heap, none of it in RocksDB;"
        " where a native aggregate exists, Tidelog's operators use it"
    ),
    ("state", "native, RocksDB"): (
        "the JVM aggregates without leaving for Python; where a native aggregate exists, Tidelog's operators use it"
    ),
}
