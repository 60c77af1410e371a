"""What an error of a query is, as Spark tells it: in which line of the user's file, and whether trying again may help.

A user's error is final; so is what Spark says while it looks at a plan, a record that cannot be decoded, and an error
in the user's own function that the same rows give again (`OF_CODE`). All else may pass, a machine too that was too busy
for Spark to start a worker, wherever in a plan it needed one, and a registry that does not have a schema yet.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tidelog.errors import Disconnected, UndecodableValue, UnknownSchema, UsageError
from tidelog.parts.part import Fault
from tidelog.pipelines.app import Input
from tidelog.pipelines.operators.state.steps import ROW
from tidelog.spark.typed_values import REMEDY

if TYPE_CHECKING:
    from tidelog.pipelines.placing import Target

# In the text of an error that went through Spark: ours, Spark's about a plan, and rows that are refused.
FINAL = re.compile(
    r"tidelog\.errors\.(UsageError|ConfigError|InvalidSchema|LostCheckpoint|StateMismatch|ViewChanged|DataLoss"
    r"|UndecodableValue)\b"
    r"|\bAnalysisException\b|USER_RAISED_EXCEPTION|STATE_STORE_\w*SCHEMA\w*|INCOMPATIBLE"
)
# Spark's, of a worker that did not connect within 10 s: on a cluster, where nothing of ours lets it connect first.
BUSY = "Python worker failed to connect back"
# Errors that a function raises again for the same rows. What a service that is away raises (OSError and its kinds) is
# not among them, nor what nobody here knows.
OF_CODE = re.compile(
    r"(?:[\w.]+\.)?(ArithmeticError|OverflowError|ZeroDivisionError|AssertionError|AttributeError|LookupError|IndexError"
    r"|KeyError|NameError|UnboundLocalError|NotImplementedError|RecursionError|TypeError|ValueError|UnicodeDecodeError"
    r"|UnicodeEncodeError|JSONDecodeError|InvalidOperation|ArrowInvalid|ArrowTypeError|ArrowKeyError)(: |$)"
)
_ENDS = re.compile(
    r"tidelog\.errors\.\w+: |[\w.]+(Error|Exception|Checkpoint|Value|Loss|Mismatch|Operation|Invalid|Schema): "
)
# Spark tells the plan of the query with its error, up to an empty line: any word that is looked for may be in it.
_PLAN = re.compile(r"\nLogical Plan:\n.*?(?=\n[ \t]*\n|\Z)", re.DOTALL)
_RECORD = re.compile(
    r"column (?P<column>\S+) of topic (?P<topic>\S+), partition (?P<partition>\d+), offset (?P<offset>\d+)"
    r" cannot be decoded: (?P<reason>.*)"
)
_OF_THE_JVM = ("org.", "java.", "py4j", "pyspark.errors", "scala.")
_LINE = re.compile(r'File "([^"]+)", line (\d+)')


def without_plan(text: str) -> str:
    return _PLAN.sub("", text)


def fault_of(error: BaseException | None, told: str, file: str) -> Fault:
    """From an error as it was raised, or as Spark tells it. `file` is the user's: its innermost line is named."""
    text = without_plan(told)
    said = text if error is None else f"{text}\n{type(error).__name__}: {error}"
    lines = [int(line) for name, line in _LINE.findall(said) if name == file]
    final = isinstance(error, UsageError | UndecodableValue) and not isinstance(error, UnknownSchema)
    final = (final or FINAL.search(said) is not None) and not isinstance(error, Disconnected) and BUSY not in said
    full = text if error is None else f"{text}\n{error}"  # Spark may have been handed less of it
    message = _message(error, full)
    if lines and OF_CODE.match(message) is not None:
        final = True
        rows = [line.strip() for line in full.split("\n") if line.strip().startswith(ROW)]
        message = f"{message} ({rows[-1]})" if rows else message
    return Fault(message, final, file if lines else None, lines[-1] if lines else None)


def is_told_in_a_line(fault: Fault) -> bool:
    """Whether its message says all that there is to be said: of a record, or of a line of the user's."""
    return fault.final and (_RECORD.search(fault.message) is not None or OF_CODE.match(fault.message) is not None)


def with_remedies(message: str, target: Target) -> str:
    """Of a record that cannot be decoded: where it stands, why, and what can be done. An app has commands for it."""
    found = _RECORD.search(message)
    if found is None:
        return message
    topic, name = found["topic"], target.node.name
    place, reason = f"{topic}:{found['partition']}:{found['offset']}", found["reason"].removesuffix(f"; {REMEDY}")
    said = (
        f"topic {topic}, partition {found['partition']}, offset {found['offset']}: {found['column']} cannot be decoded"
    )
    read = next((one for one in target.node.reads if isinstance(one, Input) and one.topic == topic), None)
    declare = "; or declare on_error='dead_letter' or 'null' for {} {!r} ({}), and start the run again"
    or_else = "" if read is None else declare.format(read.kind, read.name, read.place)
    way = f"`tidelog pass {name} {place}` and `tidelog resume {target.part}` go on without it"
    return f"{said}: {reason}; {way}{or_else}"


def _message(error: BaseException | None, text: str) -> str:
    if error is not None and not type(error).__module__.startswith(("py4j", "pyspark")):
        return f"{type(error).__name__}: {error}".split("\n")[0]
    lines = [line.strip().removeprefix(": ") for line in text.split("\n") if line.strip()]
    # A Python error that came through Spark ends its traceback; what the JVM says of it stands around that.
    ends = [line for line in lines if _ENDS.match(line)]
    python = [line for line in ends if not line.startswith(_OF_THE_JVM)]
    chosen = (python or ends or lines or ["it ended"])[-1 if python else 0]
    return chosen.removeprefix("tidelog.errors.")
