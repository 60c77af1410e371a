"""A wall clock that jumps while programs run: for all that a test starts, and not for the test itself.

A shim in C (`jumping_clock.c`) adds to the time of day what a file says; the monotonic clock stays. Files are stamped
by the kernel, which has not jumped.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_suffix(".c")


class JumpingClock:
    def __init__(self, folder: Path) -> None:
        self.library = folder / "jumping_clock.so"
        self.file = folder / "clock_ahead"
        self.file.write_bytes(bytes(8))
        words = ["gcc", "-O2", "-Wall", "-shared", "-fPIC", "-o", str(self.library), str(SOURCE), "-ldl", "-pthread"]
        subprocess.run(words, check=True)

    def jump_to(self, ahead_s: float) -> None:
        """So far ahead of the real time; less than 0 is behind."""
        with self.file.open("r+b", buffering=0) as file:  # in one write, into the page that all have mapped
            file.write(struct.pack("=q", int(ahead_s * 1e9)))


@pytest.fixture
def jumping_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JumpingClock:
    """Counts for what is started from here on."""
    if sys.platform != "linux":
        pytest.skip("a clock jumps by LD_PRELOAD and by the calls of glibc: Linux alone has them")
    if shutil.which("gcc") is None:
        pytest.skip("a clock jumps by a library that is compiled here, and there is no gcc")
    made = JumpingClock(tmp_path)
    monkeypatch.setenv("LD_PRELOAD", str(made.library))
    monkeypatch.setenv("JUMPING_CLOCK", str(made.file))
    return made
