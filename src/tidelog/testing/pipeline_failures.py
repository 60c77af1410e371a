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


def failure_of(query: Any) -> PipelineFailed:
    """Of Spark's StreamingQuery that has ended: the error that ended it."""
    found = query.exception()
    if found.isEmpty():
        return PipelineFailed("the query was stopped by someone else; go on by restart()")
    return PipelineFailed(summary(_messages(found.get().getCause())))


def _messages(error: Any) -> list[str]:
    """Of an exception of Java's and its causes, from the outside in."""
    found = []
    while error is not None:
        found.append(str(error.getMessage()))
        error = error.getCause()
    return found


def summary(messages: list[str]) -> str:
    """The error in Python and the user's own lines, innermost last; or what Spark says where Python had no part."""
    _, began, traceback = "\n".join(messages).rpartition("Traceback (most recent call last):\n")
    if not began:
        return messages[0].strip() if messages else "the query has failed"
    own = [frame for frame in FRAME.finditer(traceback) if not any(part in frame["file"] for part in SPARKS_OWN)]
    where = [f'  File "{frame["file"]}", line {frame["line"]}, in {frame["function"]}' for frame in own]
    return "\n".join([_raised(traceback), *where])


def _raised(traceback: str) -> str:
    """The line after the frames: `ValueError: no such user`."""
    lines = [line for line in traceback.splitlines() if line and not line.startswith((" ", "\t"))]
    return lines[0] if lines else traceback.strip()
