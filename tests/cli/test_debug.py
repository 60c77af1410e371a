"""`tidelog debug` before it starts Spark: what is written wrongly is told in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.command import Command
from proving import proves

SHOP = str(Path(__file__).parent.parent.parent / "examples" / "shop_app.py")


@proves("P1", "command_line")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["revenue", "--app", SHOP], "the following arguments are required: --batch"),
        (["revenue", "--app", SHOP, "--batch", "1", "--export", "batch.py"], "pytest looks for files called test_"),
        (["revenue", "--app", SHOP, "--batch", "1", "--export", "test_batch"], "does not end in .py"),
        (["revenue", "--app", SHOP, "--batch", "1", "--break", "--json"], "leave --json out"),
        (["revenues", "--app", SHOP, "--batch", "1"], "did you mean 'revenue'?"),
        (["big-orders", "--app", SHOP, "--batch", "1", "--checkpoints", "no-such"], "is --checkpoints right?"),
    ],
)
def test_what_is_written_wrongly_is_told_in_one_line(nowhere: Command, words: list[str], message: str) -> None:
    ran = nowhere("debug", *words)
    assert (ran.code, len(ran.err.splitlines())) == (2, 1)
    assert message in ran.err
