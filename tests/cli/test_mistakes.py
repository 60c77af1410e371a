"""What a newcomer gets wrong is said, with what was perhaps meant: topics, offsets, options."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from cli.command import Command
from proving import proves
from tidelog.cli.main import COMMANDS
from tidelog.cli.options import action_names
from tidelog.errors import UsageError


@proves("T10")
def test_a_topic_that_is_not_there_is_not_read_and_the_near_one_is_named(
    tidelog: Command, topic: str, group: str
) -> None:
    tidelog.ok("topics", "create", topic)
    slip = topic[:-1]
    for words in (("tail", slip), ("reset", group, slip, "--to", "earliest")):
        ran = tidelog(*words)
        assert ran.code == 1 and f"topic '{slip}' does not exist; did you mean {topic}?" in ran.err
    far = tidelog("tail", "nothing.like.it.anywhere.in.the.world")
    assert far.code == 1 and "did you mean" not in far.err and "`tidelog topics` lists what there is" in far.err


@proves("T10")
def test_an_offset_past_the_end_is_refused_and_the_end_itself_is_not(tidelog: Command, topic: str) -> None:
    tidelog.ok("topics", "create", topic, "--partitions", "2")
    tidelog.ok("produce", topic, "--partition", "0", stdin="a\nb\nc\n")
    past = tidelog("tail", topic, "--from", "100")
    assert (past.code, past.out) == (2, "")
    assert f"offset 100 is not in {topic}[0], which ends at 3\n" in past.err
    assert tidelog.ok("tail", topic, "--partition", "0", "--from", "3").out == ""
    some = tidelog.ok("tail", topic, "--from", "2", "--values")
    assert some.out == "c\n"
    assert f"{topic}[1] ends at offset 0, before 2: nothing of it is shown" in some.err
    followed = tidelog("tail", topic, "--from", "2", "--follow")
    assert followed.code == 2 and f"offset 2 is not in {topic}[1], which ends at 0; --partition N" in followed.err
    time = tidelog("tail", topic, "--from", "1767225605500")
    assert time.code == 2 and "for a time write @1767225605500" in time.err


@proves("T10")
def test_a_topic_that_producing_made_is_named_once_and_quiet_is_quiet(tidelog: Command, topic: str) -> None:
    made = tidelog.ok("produce", topic, stdin="x")
    assert made.out == "1 record acked\n"
    assert f"topic {topic} did not exist: created with 1 partition" in made.err
    assert tidelog.ok("produce", topic, stdin="x").err == ""
    slip = tidelog.ok("produce", f"{topic}s", stdin="x").err
    assert f"did you mean {topic}? `tidelog topics delete {topic}s` removes it" in slip
    assert tidelog.ok("produce", f"{topic}-quiet", "--quiet", stdin="x").err == ""


@proves("start_up")
def test_a_port_is_part_of_listen(nowhere: Command) -> None:
    for words in (("--port", "9093"), ("--port=9093",), ("-p", "9093"), ("--host", "127.0.0.1")):
        ran = nowhere("up", *words)
        assert ran.code == 2 and "write --listen HOST:PORT" in ran.err


@proves("T10", "command_line")
@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "up"])
def test_a_name_in_the_place_of_an_action_is_told_an_action_that_there_is(command: str) -> None:
    module = import_module(f"tidelog.cli.{command}")
    names = action_names(module.parser()) if hasattr(module, "parser") else {}
    if not names:
        return
    with pytest.raises(UsageError, match="'revenue' is not one of") as refused:
        module.run(["revenue"])
    for action in re.findall(r"if that is a name: `tidelog \w+ (\S+) revenue`", str(refused.value)):
        assert action in names
    if command in ("views", "topics", "groups"):
        assert "if that is a name" in str(refused.value)
