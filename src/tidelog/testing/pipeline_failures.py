"""Why a query under test has failed, in the words and with the line of the user's own code.

Spark tells of an error in Python code by the traceback of its worker, wrapped in Java's exceptions. What a test wants
to see is the error and where it was raised.
"""

from __future__ import annotations

import re
from typing import Any

from tidelog.errors import PipelineFailed

FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)', re.MULTILINE)
SPARKS_OWN = ("/pyspark/", "/pyspark.zip/", "/py4j/")


def failure_of(query: Any) -> Exception:
    """Of Spark's StreamingQuery that has ended; the error that ended it."""
    found = query.exception()
    if found.isEmpty():
        return PipelineFailed("the query was stopped by someone else")
    error = found.get()
    return PipelineFailed(summary(str(error.getMessage()), _causes(error)))


def _causes(error: Any) -> str:
    texts = []
    while error is not None:
        texts.append(str(error.getMessage()))
        error = error.getCause()
    return "\n".join(texts)


def summary(message: str, causes: str) -> str:
    """The last line of the worker's traceback and the user's own line, or what Spark says where there is none."""
    _, began, traceback = causes.rpartition("Traceback (most recent call last):\n")
    if not began:
        return message.strip()
    frames = list(FRAME.finditer(traceback))
    own = [frame for frame in frames if not any(part in frame["file"] for part in SPARKS_OWN)]
    where = [f'  File "{frame["file"]}", line {frame["line"]}, in {frame["function"]}' for frame in own]
    return "\n".join([_raised(traceback), *where])


def _raised(traceback: str) -> str:
    """The line after the frames: `ValueError: no such user`."""
    lines = [line for line in traceback.splitlines() if line and not line.startswith((" ", "\t"))]
    return lines[0] if lines else traceback.strip()
