"""Ctrl-C, wherever DuckDB finds it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import duckdb
import pytest

from proving import proves
from tidelog.sql.interrupting import as_keyboard_interrupt, interruptible

ENDLESS = "select count(*) from range(10000000) a, range(10000000) b where a.range + b.range > 1"


@pytest.fixture
def interrupted() -> Iterator[None]:
    """This process, when DuckDB has begun. In the background a process may have been told to ignore Ctrl-C."""
    main = threading.main_thread().ident
    assert main is not None
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.5, signal.pthread_kill, (main, signal.SIGINT)).start()
    yield
    signal.signal(signal.SIGINT, before)


@proves("sql")
def test_what_duckdb_says_of_it_in_a_short_call_is_ctrl_c_and_no_fault_of_ours() -> None:
    """Whether DuckDB looks at signals there goes by which of its threads has the work."""
    with pytest.raises(KeyboardInterrupt), as_keyboard_interrupt():
        raise RuntimeError("Query interrupted")


@proves("sql")
@pytest.mark.usefixtures("interrupted")
def test_a_long_call_ends_at_once() -> None:
    with duckdb.connect() as engine:
        with pytest.raises(KeyboardInterrupt):
            interruptible(engine, lambda: engine.execute(ENDLESS))
        assert engine.execute("select 1").fetchall() == [(1,)]


@proves("sql")
def test_other_faults_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="another"), as_keyboard_interrupt():
        raise RuntimeError("another")
