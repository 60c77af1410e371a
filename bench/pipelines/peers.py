"""The peers' own environments.

`peers.sh` makes them, each a virtual environment with the pins of a file beside it, in the folder that
BENCH_PEERS names, else in `tidelog-bench-peers` in the temporary folder.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
SECONDS = 900.0


def folder() -> Path:
    return Path(os.environ.get("BENCH_PEERS") or Path(tempfile.gettempdir()) / "tidelog-bench-peers")


@cache
def python_of(name: str) -> tuple[str, str | None]:
    """The interpreter of a peer's environment, made if there is none; or why it could not be had."""
    made = folder() / name / "bin" / "python"
    if not (folder() / name / "done").exists():
        command = ["bash", str(HERE / "peers.sh"), name, str(folder())]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()
            return "", f"could not be had: {said[-1] if said else 'its installation failed'}"
    return str(made), None
