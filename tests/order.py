"""Which tests come first: a worker that begins a test of minutes at the end keeps the others waiting."""

from __future__ import annotations

from typing import Any

# Those whose single tests take a minute and more.
LONGEST = (
    "pipelines/app/test_rebuild_process.py",
    "pipelines/app/test_view_exactly_once.py",
    "spark/test_killed_at_random.py",
    "demo/test_run.py",
    "spark/test_session_crash.py",
    "spark/test_speculation.py",
    "pipelines/operators/test_crashes.py",
)


def is_short(item: Any) -> bool:
    """A key to sort by: of a pytest.Item, or of anything that has a `nodeid`."""
    return not item.nodeid.partition("::")[0].endswith(LONGEST)
