"""What make sets up, as make itself says it would, or does beside programs that are none."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from proving import proves

ROOT = Path(__file__).parent.parent


@proves("guide")
def test_make_run_starts_the_demo_with_all_that_it_needs() -> None:
    words = ["make", "--dry-run", "--always-make", "--no-print-directory", "run"]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "--editable '.[http,schemas,spark]'" in ran.stdout
    assert "tidelog demo --folder tidelog-data-demo" in ran.stdout


@proves("guide")
def test_an_archive_of_classes_that_could_not_be_written_is_tried_again_and_stops_no_test(tmp_path: Path) -> None:
    python = tmp_path / "python"
    shutil.copy(ROOT / "Makefile", tmp_path)
    for needed in (".make/dev", "scripts/archive_classes.py", "src/tidelog/spark/checkpoint/checkpoint.jar"):
        (tmp_path / needed).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / needed).touch()

    def makes(code: int) -> str:
        python.write_text(f"#!/bin/sh\nexit {code}\n")
        python.chmod(0o755)
        words = ["make", "--old-file", ".make/dev", f"BIN={tmp_path}", ".make/classes"]
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert "it failed; the tests do without" in makes(1)
    assert "archiving" in makes(0), "again"
    assert "archiving" not in makes(0)
