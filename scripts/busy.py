"""Runs the Spark tests of `make test` again and again beside busy loops, and looks for workers that Spark gave up.

Spark waits a fixed time for some of its Python workers, and on a busy machine one may take longer: "Python worker
failed to connect back". `tidelog.spark_session` starts them so that this cannot be (spark/worker_launch.py). Here the
machine is busy:

    python scripts/busy.py                          five times beside eight loops
    python scripts/busy.py --times 1 --loops 4 -k sink    what it does not know goes to pytest

The files are those that need a Spark session (tests/scheduling.py), in one worker, and of their tests those of the tier
`test`. The exit code is 1 when a test failed, or when the words were said, whatever came of it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from scheduling import needs_spark  # noqa: E402  it is beside the tests, since it is a plugin of theirs

SAID = "failed to connect back"
LOOP = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n    for _ in range(1_000_000): pass"


def spark_files() -> list[str]:
    files = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests").rglob("test_*.py"))]
    return [file for file in files if needs_spark(file)]


@contextmanager
def busy(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """That many loops, which end with this process, however it ends."""
    loops = [subprocess.Popen([sys.executable, "-S", "-c", LOOP, str(os.getpid())]) for _ in range(count)]
    try:
        yield loops
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def try_once(options: Sequence[str]) -> tuple[int, int, str]:
    """Pytest's exit code, how often the words were said, and its last line."""
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "1",
        "--tiers",
        "test",
        "--tb",
        "short",
        "-rA",
        "-p",
        "no:cacheprovider",
    ]
    # A test that takes seconds on a quiet machine is no hang when it takes minutes here.
    words += ["-o", "timeout=900", *(spark_files() if not _names_files(options) else []), *options]
    # Without Python's caches each process would compile all that it imports.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with subprocess.Popen(
        words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as ran:
        assert ran.stdout is not None
        said, last = 0, ""
        for line in ran.stdout:
            said += SAID in line
            last = line.strip() or last
            if line.startswith(("FAILED", "ERROR")) or SAID in line:
                print(f"    {line.rstrip()}", flush=True)
    return ran.returncode, said, last


def _names_files(options: Sequence[str]) -> bool:
    return any(option.startswith("tests/") for option in options)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--times", type=int, default=5, help="how often (default %(default)s)")
    parser.add_argument("--loops", type=int, default=8, help="busy loops beside it (default %(default)s)")
    options, for_pytest = parser.parse_known_args()
    wrong = 0
    with busy(options.loops):
        for number in range(1, options.times + 1):
            begun = time.monotonic()
            code, said, last = try_once(for_pytest)
            wrong += code != 0 or said > 0
            minutes = (time.monotonic() - begun) / 60
            print(f"{number}: {last}; {SAID!r} {said} times; {minutes:.1f} minutes", flush=True)
    print(f"{options.times - wrong} of {options.times} runs beside {options.loops} busy loops were right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
