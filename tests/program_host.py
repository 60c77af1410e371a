"""A process that runs one program after the other: for short programs on Spark, of which a JVM takes most of the time.

A line each, of JSON, on standard input and output:

    -> {"words": [...], "folder": "...", "environment": {...}, "output": "...", "errors": "..."}
    <- {"code": 0}

`words` are those behind `python`: a file or `-m` and a module, and arguments. A program runs as `__main__`, with its
folder and environment, and prints into the two files that are named; of all that nothing is left for the next one. It
makes its Spark session itself and has to stop it, or has failed. What programs share is the JVM, which PySpark keeps
for as long as its process lives. It is launched by a session that asks for nothing, since settings of the launch stay
in a JVM and would count for all. So what a program asks of the launch itself, its memory, does not count here.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkContext

import tidelog

MEMORY = "1g"


def main() -> None:
    asked = os.fdopen(os.dup(0), "r")
    answers = os.fdopen(os.dup(1), "w")
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)  # what the JVM says goes to the log, whoever runs
    tidelog.spark_session("programs", memory=MEMORY).stop()
    for line in asked:
        one = json.loads(line)
        with _place(Path(one["folder"]), one["environment"]), _voice(one["output"], one["errors"]):
            code = run(one["words"])
        print(json.dumps({"code": code}), file=answers, flush=True)


def run(words: Sequence[str]) -> int:
    """As `python WORDS`; what it would have ended with."""
    code = _run(words)
    left: SparkContext | None = SparkContext._active_spark_context
    if left is not None:
        print("the program has ended and has not stopped its Spark session", file=sys.stderr)
        left.stop()
        code = code or 1
    return code


def _run(words: Sequence[str]) -> int:
    try:
        if words[0] == "-m":
            sys.argv = list(words[1:])
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = list(words)
            sys.path.insert(0, str(Path(words[0]).parent))
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


@contextmanager
def _place(folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
    before = Path.cwd(), dict(os.environ), list(sys.path), list(sys.argv), set(sys.modules)
    os.chdir(folder)
    _set_environment(environment)
    try:
        yield
    finally:
        os.chdir(before[0])
        _set_environment(before[1])
        sys.path[:], sys.argv[:] = before[2], before[3]
        for name in set(sys.modules) - before[4]:
            if str(getattr(sys.modules[name], "__file__", None) or "").startswith(f"{folder}{os.sep}"):
                del sys.modules[name]  # another one's may have the same name


def _set_environment(environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)


@contextmanager
def _voice(output: str, errors: str) -> Iterator[None]:
    """What is printed here and by processes that are started here; the JVM is there already."""
    before = os.dup(1), os.dup(2)
    with Path(output).open("wb") as printed, Path(errors).open("wb") as complained:
        os.dup2(printed.fileno(), 1)
        os.dup2(complained.fileno(), 2)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, kept in enumerate(before, 1):
            os.dup2(kept, number)
            os.close(kept)


if __name__ == "__main__":
    main()
