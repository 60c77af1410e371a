"""What `make run` sets up, as make itself says it would."""

from __future__ import annotations

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
