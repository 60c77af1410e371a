"""Compiles and runs the load generator in C, against the librdkafka inside the confluent-kafka wheel."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import confluent_kafka
from bench.repository import REPOSITORY

HERE = Path(__file__).parent
PROGRAM = REPOSITORY / ".make" / "bench" / "load"
RUN_SECONDS = 900


def librdkafka() -> Path:
    found = sorted(Path(confluent_kafka.__file__).parents[1].glob("confluent_kafka.libs/librdkafka-*.so*"))
    if not found:
        raise SystemExit("no librdkafka in the confluent-kafka wheel; was it built from source?")
    return found[0]


def compile_load() -> None:
    newest = max(path.stat().st_mtime for path in HERE.glob("*.[ch]"))
    if PROGRAM.exists() and PROGRAM.stat().st_mtime > newest:
        return
    PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    library = librdkafka()
    link = [str(library), f"-Wl,-rpath,{library.parent}", "-lpthread"]
    subprocess.run(["cc", "-O2", "-Wall", "-o", str(PROGRAM), str(HERE / "load.c"), *link], check=True)


def run_load(*arguments: str | float) -> dict[str, Any]:
    command = [str(PROGRAM), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    figures: dict[str, Any] = json.loads(done.stdout)
    if figures.get("failed"):
        raise RuntimeError(
            f"{' '.join(command)}: {figures['failed']} messages were not delivered: {done.stderr.strip()}"
        )
    return figures


def start_load(*arguments: str | float) -> subprocess.Popen[str]:
    """The same in the background; `communicate` gives its figures."""
    command = [str(PROGRAM), *map(str, arguments)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
