"""Stepping through a micro-batch in this process: the declared function, and what its operators did, under pdb.

What runs where, and what is stopped in:

    a declared function      in this process, when the query is planned: stopped at its first line, with DataFrames
    an operator's fold       in Spark's Python workers, a bucket at a time. Each call of its step, which is pure, is
                             written down where it runs (state, rows, clock), and called again here, under pdb
    Python UDFs, mapInArrow  in workers, and not stopped in: call them by hand from the function's breakpoint

A call is written down before it is made: so the one that fails is there too, and fails here again, in the debugger.
"""

from __future__ import annotations

import pickle
import uuid
from bdb import BdbQuit
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from pathlib import Path
from pdb import Pdb
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.errors import UsageError
from tidelog.pipelines.operators.state.fold import Clock, Fold, Step
from tidelog.pipelines.operators.state.steps import called_by

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIX = ".step"


class Call(NamedTuple):
    """One step of a fold, over the rows of one bucket and the state of their keys."""

    fold: Fold
    state: pa.Table
    rows: pa.Table
    clock: Clock


class Noted:
    """Writes each call of a fold's step down, in a folder that all workers must see."""

    def __init__(self, fold: Fold, folder: str) -> None:
        self._fold = fold
        self._folder = folder

    def __call__(self, state: pa.Table, rows: pa.Table, clock: Clock) -> Step:
        path = Path(self._folder) / f"{uuid.uuid4().hex}{SUFFIX}"
        path.write_bytes(pickle.dumps(Call(self._fold, state, rows, clock)))
        return self._fold.step(state, rows, clock)


def noting(folder: Path) -> AbstractContextManager[None]:
    """For operators that are declared inside of this."""
    return called_by(lambda fold, context: Noted(fold, str(folder)))


def calls_in(folder: Path) -> list[Call]:
    """In the order in which they were made."""
    paths = sorted(folder.glob(f"*{SUFFIX}"), key=lambda path: path.stat().st_mtime_ns)
    return [pickle.loads(path.read_bytes()) for path in paths]


def stopping(function: Callable[..., Any], debugger: Pdb) -> Callable[..., Any]:
    """The function, stopped at its first line whenever it is called."""

    @wraps(function)
    def stopped(*given: Any) -> Any:
        return under(debugger, function, *given)

    return stopped


def under(debugger: Pdb, function: Callable[..., Any], *given: Any) -> Any:
    try:
        return debugger.runcall(function, *given)
    except BdbQuit:
        raise UsageError("the debugger was left") from None
