"""How sides of the benchmarks are watched: by their marks, from outside."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from proving import proves

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.pipelines.watch import REPOSITORY, Cannot, watched

SIDE = f"""
import subprocess, sys, time
sys.path.insert(0, {str(REPOSITORY)!r})
from bench.pipelines.sides.marks import ended, say
"""
BUSY = "t = time.process_time()\nwhile time.process_time() < t + {}: pass\n"


def side(code: str) -> list[str]:
    return [sys.executable, "-c", SIDE + code]


@proves("P2")
def test_cpu_is_that_between_the_marks_with_all_processes_below() -> None:
    below = f"subprocess.run([sys.executable, '-c', {'import time;' + chr(10) + BUSY.format(0.2)!r}])\n"
    seen = watched(side(BUSY.format(0.5) + "say('begin')\n" + BUSY.format(0.2) + below + "ended(rows=7)"), seconds=300)
    assert seen.said["rows"] == 7
    assert 0.36 < seen.cpu < 0.88, "0.2 here and 0.2 below, and not the 0.5 before"


@proves("P2")
def test_a_side_that_cannot_says_why() -> None:
    with pytest.raises(Cannot, match="no such operator"):
        watched(side("say('cannot', why='no such operator')"), seconds=300)


@proves("P2")
def test_a_side_that_breaks_is_told_with_its_error() -> None:
    with pytest.raises(Cannot, match="ZeroDivisionError"):
        watched(side("say('begin'); 1 / 0"), seconds=300)


@proves("P2")
def test_a_side_that_takes_too_long_is_ended_with_all_below_it() -> None:
    with pytest.raises(Cannot, match="not done after"):
        watched(side("say('begin'); subprocess.run(['sleep', '300'])"), seconds=3)
