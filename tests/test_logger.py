"""Log lines: one an event, readable by people or by programs, never a flood."""

from __future__ import annotations

import io
import json
import logging

import pytest

from proving import proves
from tidelog import logger as module
from tidelog.logger import LINES_PER_SECOND_OF_A_KIND, SELDOM_S, Logger, hear


@pytest.fixture
def clock(monkeypatch):
    now = [1_700_000_000.123]
    monkeypatch.setattr(module.time, "time", lambda: now[0])
    return now


@proves("T6")
def test_a_line_has_the_time_the_level_the_event_and_its_values(clock):
    stream = io.StringIO()
    Logger(stream).info("ready", address="127.0.0.1:9092", why="it has spaces")
    assert stream.getvalue() == "2023-11-14T22:13:20.123Z INFO ready address=127.0.0.1:9092 why='it has spaces'\n"


@proves("T6")
def test_json_lines_have_the_same(clock):
    stream = io.StringIO()
    Logger(stream, json=True).warning("slow", ms=12, path=b"x")
    assert json.loads(stream.getvalue()) == {
        "time": "2023-11-14T22:13:20.123Z",
        "level": "WARNING",
        "event": "slow",
        "ms": 12,
        "path": "b'x'",
    }


@proves("T6")
def test_a_value_cannot_forge_a_line():
    stream = io.StringIO()
    Logger(stream).info("connection ended", why="x\n2026-01-01 ERROR forged")
    assert stream.getvalue().count("\n") == 1


@proves("T6")
@pytest.mark.parametrize("as_json", [False, True])
def test_what_rooms_and_libraries_warn_of_is_a_line_of_the_same_log(clock, monkeypatch, as_json: bool):
    stream = io.StringIO()
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    hear(Logger(stream, json=as_json))
    logging.getLogger("tidelog.x").warning("%d row was late\nERROR forged", 1)
    (line,) = stream.getvalue().splitlines()
    if as_json:
        told = json.loads(line)
        assert (told["level"], told["event"], told["more"]) == ("WARNING", "1 row was late", "ERROR forged")
    else:
        assert line == "2023-11-14T22:13:20.123Z WARNING 1 row was late more='ERROR forged'"


@proves("T6")
def test_below_its_level_a_logger_says_nothing():
    stream = io.StringIO()
    logger = Logger(stream, level="WARNING")
    logger.info("quiet")
    logger.error("loud")
    assert "quiet" not in stream.getvalue()
    assert "loud" in stream.getvalue()


@proves("T6")
def test_a_flood_of_one_kind_is_counted_and_other_kinds_get_through(clock):
    stream = io.StringIO()
    logger = Logger(stream)
    for _ in range(1000):
        logger.info("flood")
    logger.info("other")
    assert stream.getvalue().count("flood") == LINES_PER_SECOND_OF_A_KIND
    assert "other" in stream.getvalue()
    clock[0] += 1
    logger.info("flood")
    assert stream.getvalue().endswith(f"flood left_out={1000 - LINES_PER_SECOND_OF_A_KIND}\n")


@proves("T6")
def test_what_clients_try_again_and_again_is_one_line_a_minute(clock):
    stream = io.StringIO()
    logger = Logger(stream)
    for _ in range(SELDOM_S):
        logger.seldom("refused")
        clock[0] += 0.9
    assert stream.getvalue().count("refused") == 1
    clock[0] += SELDOM_S
    logger.seldom("refused")
    assert stream.getvalue().endswith(f"WARNING refused left_out={SELDOM_S - 1}\n")
