"""What an error of a query is, as Spark tells it: in which line of the user's file, and whether trying again may help.

A user's error is final; so is what Spark says while it looks at a plan. All else may pass, a machine too that was too
busy for Spark to start a worker, wherever in a plan it needed one.
"""

from __future__ import annotations

import re

from tidelog.errors import Disconnected, UsageError
from tidelog.parts.part import Fault

# In the text of an error that went through Spark: ours, Spark's about a plan, and rows that are refused.
FINAL = re.compile(
    r"tidelog\.errors\.(UsageError|ConfigError|InvalidSchema|LostCheckpoint|StateMismatch|ViewChanged|DataLoss)\b"
    r"|\bAnalysisException\b|USER_RAISED_EXCEPTION|STATE_STORE_\w*SCHEMA\w*|INCOMPATIBLE"
)
# Spark's, of a worker that did not connect within 10 s: on a cluster, where nothing of ours lets it connect first.
BUSY = "Python worker failed to connect back"
_ENDS = re.compile(r"[\w.]+(Error|Exception|Checkpoint|Value|Loss|Mismatch): ")
_OF_THE_JVM = ("org.", "java.", "py4j", "pyspark.errors", "scala.")
_LINE = re.compile(r'File "([^"]+)", line (\d+)')


def fault_of(error: BaseException | None, text: str, file: str) -> Fault:
    """From an error as it was raised, or as Spark tells it. `file` is the user's: its innermost line is named."""
    said = text if error is None else f"{text}\n{type(error).__name__}: {error}"
    lines = [int(line) for name, line in _LINE.findall(said) if name == file]
    final = isinstance(error, UsageError) if error is not None else False
    final = (final or FINAL.search(said) is not None) and not isinstance(error, Disconnected) and BUSY not in said
    full = text if error is None else f"{text}\n{error}"  # Spark may have been handed less of it
    return Fault(_message(error, full), final, file if lines else None, lines[-1] if lines else None)


def _message(error: BaseException | None, text: str) -> str:
    if error is not None and not type(error).__module__.startswith(("py4j", "pyspark")):
        return f"{type(error).__name__}: {error}".split("\n")[0]
    lines = [line.strip().removeprefix(": ") for line in text.split("\n") if line.strip()]
    # A Python error that came through Spark ends its traceback; what the JVM says of it stands around that.
    ends = [line for line in lines if _ENDS.match(line)]
    python = [line for line in ends if not line.startswith(_OF_THE_JVM)]
    chosen = (python or ends or lines or ["it ended"])[-1 if python else 0]
    return chosen.removeprefix("tidelog.errors.")
