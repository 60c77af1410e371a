"""A micro-batch as a pytest file: the records that made it what it was, and the rows that came out.

    test_batch_12.py      the test; readable, and to be changed
    test_batch_12.json    the records and rows, where there are too many to read

What is played: without state, the micro-batch alone. With state, all micro-batches from the first on, each as it was
cut; of those whose offsets the checkpoint no longer has, one that has all their records.

Rules:
- What is written passes: it is played here first, and where that gives other rows nothing is written, and the
  difference is said. So it is with rows that rest on the time of day, on ticks of an idle input, on records that their
  topic no longer has, or on a state that was not made of those records.
- A micro-batch that fails is expected to fail, with that error: take the expectation out and mend the code.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pprint import pformat
from typing import TYPE_CHECKING, Any

from tidelog.errors import PipelineFailed, UsageError
from tidelog.pipelines.debugging import TopicRecord
from tidelog.testing.pipeline_app import AppRun, PlainRow, assert_rows

if TYPE_CHECKING:
    from tidelog.testing.pipeline import PipelineDriver

INLINE_MAX = 40  # records and rows that stand in the test itself
WIDTH = 116
INDENT = "    "


@dataclass(frozen=True, slots=True)
class Exported:
    """`steps` are the records of each micro-batch, the last of them the one in question. `rows` came out of it."""

    app: Path
    variable: str  # the App's name in that file, where it has several
    app_name: str
    query: str
    number: int
    first: int  # the number of the first step
    partitions: Mapping[str, int]
    steps: Sequence[Sequence[TopicRecord]]
    rows: Sequence[PlainRow]
    error: str | None = None

    @property
    def size(self) -> int:
        return sum(map(len, self.steps)) + len(self.rows)


def check(driver: PipelineDriver, made: Exported, app: Any) -> str | None:
    """Plays it. The error that is to be expected, where there is one."""
    run = AppRun(driver, app, made.query, partitions=made.partitions)
    try:
        for records in made.steps[:-1]:
            run.add_all(map(fields_of, records))
            run.step()
        run.add_all(map(fields_of, made.steps[-1]))
        found = run.step()
    except PipelineFailed as error:
        if made.error is None:
            raise UsageError(f"{_unlike(made)} it fails: {error}") from error
        return str(error).split("\n")[0]
    if made.error is not None:
        raise UsageError(f"{_unlike(made)} it does not fail")
    try:
        assert_rows(found, made.rows)
    except AssertionError as error:
        raise UsageError(f"{_unlike(made)} other rows come out: {error}") from None
    return None


def _unlike(made: Exported) -> str:
    return f"no test is written: when micro-batch {made.number} is made from its records alone,"


def write(made: Exported, to: Path) -> list[Path]:
    """The files that were written."""
    if made.size <= INLINE_MAX:
        to.write_text(_head(made, to, data=False) + _inline(made))
        return [to]
    data = to.with_suffix(".json")
    before, last = [list(map(fields_of, one)) for one in made.steps[:-1]], list(map(fields_of, made.steps[-1]))
    data.write_text(json.dumps({"before": before, "records": last, "rows": list(made.rows)}, indent=1) + "\n")
    to.write_text(_head(made, to, data=True) + _from_file(made))
    return [to, data]


def fields_of(record: TopicRecord) -> dict[str, Any]:
    """As `AppRun.add_all` takes them."""
    texts = {**_field("key", record.key), **_field("value", record.value)}
    place = {"partition": record.partition, "offset": record.offset, "timestamp_ms": record.timestamp_ms}
    return {"topic": record.topic, **texts, **place}


def _field(name: str, data: bytes | None) -> dict[str, str | None]:
    text = _text(data)
    return {f"{name}_base64": base64.b64encode(text).decode()} if isinstance(text, bytes) else {name: text}


def _text(data: bytes | None) -> str | bytes | None:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return data


# The text -------------------------------------------------------------------------------------------------------------


def _head(made: Exported, to: Path, *, data: bool) -> str:
    folder = Path(os.path.relpath(made.app.parent, to.resolve().parent)).as_posix()
    app = f'HERE / "{made.app.name}"' if folder == "." else f'HERE / "{folder}" / "{made.app.name}"'
    names = ["AppRun"] if made.error else ["AppRun", "assert_rows"]
    lines = [
        f'"""Micro-batch {made.number} of {made.query} of app {made.app_name}: what it read, and what came of it.',
        "",
        "Written by `tidelog debug`; each step is a micro-batch. Change it as you like.",
        '"""',
        "",
        *(["import json"] if data else []),
        "from pathlib import Path",
        "",
        *(["import pytest", "", "from tidelog.errors import PipelineFailed"] if made.error else []),
        f"from tidelog.testing import {', '.join(names)}",
        "",
        "HERE = Path(__file__).parent",
        f"APP = {app}",
        *([f'DATA = json.loads((HERE / "{to.with_suffix(".json").name}").read_text())'] if data else []),
        "",
        "",
        f"def test_micro_batch_{made.number}_of_{re.sub(r'[^A-Za-z0-9_]', '_', made.query)}(tidelog_pipeline):",
        f"{INDENT}run = AppRun({', '.join(_of_app(made))})",
        "",
    ]
    return "\n".join(lines)


def _of_app(made: Exported) -> list[str]:
    app = f'f"{{APP}}:{made.variable}"' if made.variable else "APP"
    shares = [f"partitions={dict(made.partitions)!r}"] if made.partitions else []
    return ["tidelog_pipeline", app, repr(made.query), *shares]


def _inline(made: Exported) -> str:
    lines: list[str] = []
    for number, records in enumerate(made.steps, made.first):
        is_last = number == made.first + len(made.steps) - 1
        until = f"micro-batches up to {made.first}" if number == made.first > 0 and not is_last else None
        lines += [f"\n{INDENT}# {until or f'micro-batch {made.number if is_last else number}'}"]
        lines += [f"{INDENT}run.add({_arguments(one)})" for one in records]
        lines += [] if is_last else [f"{INDENT}run.step()"]
    return "\n".join([*lines, _expectation(made, pformat(list(made.rows), width=WIDTH, sort_dicts=False))]) + "\n"


def _from_file(made: Exported) -> str:
    lines = [
        "",
        f'{INDENT}for records in DATA["before"]:  # one micro-batch each',
        f"{INDENT}{INDENT}run.add_all(records)",
        f"{INDENT}{INDENT}run.step()",
        f'{INDENT}run.add_all(DATA["records"])',
    ]
    return "\n".join([*lines, _expectation(made, 'DATA["rows"]')]) + "\n"


def _expectation(made: Exported, rows: str) -> str:
    if made.error is not None:
        caught = f"{INDENT}with pytest.raises(PipelineFailed, match={re.escape(made.error)!r}):"
        return f"{caught}\n{INDENT}{INDENT}run.step()"
    if "\n" not in rows:
        return f"{INDENT}assert_rows(run.step(), {rows})"
    indented = rows.replace("\n", f"\n{INDENT}")
    return f"{INDENT}expected = {indented}\n{INDENT}assert_rows(run.step(), expected)"


def _arguments(record: TopicRecord) -> str:
    named = {"key": _text(record.key), "partition": record.partition or None}
    named |= {"offset": record.offset, "timestamp_ms": record.timestamp_ms}
    said = [f"{name}={value!r}" for name, value in named.items() if value is not None]
    return ", ".join([repr(record.topic), repr(_text(record.value)), *said])
