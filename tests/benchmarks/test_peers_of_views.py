"""The row of peers of views: what a reader has seen of a side, and what it is compared with."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from proving import proves

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.views import __main__ as command
from bench.views.freshness import KEYS
from bench.views.peers import Shown


def row(key: int, records: int, newest: int) -> bytes:
    return json.dumps({"key": key, "records": records, "newest": newest}).encode()


@proves("benchmarks")
def test_a_record_is_as_old_as_the_time_until_a_row_has_it_or_a_later_one() -> None:
    shown = Shown([0.0] * KEYS + [1.0] * KEYS + [2.0] * KEYS)
    shown.first = KEYS
    for key in range(KEYS):
        shown.take(row(key, 1, key), 0.5)
    assert shown.delays == [] and shown.seen == KEYS, "it is not yet measured"
    envelope = json.dumps({"before": None, "after": json.loads(row(7, 3, 2 * KEYS + 7)), "op": "u"}).encode()
    shown.take(envelope, 2.5)
    assert shown.delays == [1500.0, 500.0]
    shown.take(envelope, 9.0)
    assert shown.seen == KEYS + 2, "a row that comes again shows nothing new"


@proves("benchmarks")
def test_a_side_with_another_answer_has_no_figure() -> None:
    shown = Shown([0.0] * (KEYS + 1))
    for key in range(KEYS):
        shown.take(row(key, 1, key), 0.0)
    assert shown.fault() == f"of key 0 it has (1, 0), and right is (2, {KEYS})"
    shown.take(row(0, 3, KEYS), 0.0)
    assert shown.fault() == f"of key 0 it has (3, {KEYS}), and right is (2, {KEYS})", "a record was counted twice"
    shown.take(row(0, 2, KEYS), 0.0)
    assert shown.fault() is None
    shown.take(row(0, 1, 0), 0.0)
    assert shown.fault() == f"of key 0 newest was {KEYS}, and then 0"


@proves("benchmarks")
def test_a_checkout_that_is_not_built_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.parsed(["--before", str(tmp_path)])
    assert "has no Tidelog that is built" in capsys.readouterr().err
    (tmp_path / "src" / "tidelog" / "record").mkdir(parents=True)
    (tmp_path / "src" / "tidelog" / "record" / "_codec.abi.so").touch()
    assert command.parsed(["--only", "freshness", "--before", str(tmp_path)]).before == tmp_path.resolve()
