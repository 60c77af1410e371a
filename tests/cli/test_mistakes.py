"""What a newcomer gets wrong is said, with what was perhaps meant: topics, offsets, options."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from cli.command import Command
from proving import proves
from tidelog.cli.main import COMMANDS
from tidelog.cli.options import action_names
from tidelog.cli.telling import find
from tidelog.client import Cluster
from tidelog.client.share import ShareReader
from tidelog.control.status import Report
from tidelog.errors import UsageError


@proves("T10")
def test_a_topic_that_is_not_there_is_not_read_and_the_near_one_is_named(
    tidelog: Command, topic: str, group: str
) -> None:
    tidelog.ok("topics", "create", topic)
    slip = topic[:-1]
    looking = (("tail", slip), ("reset", group, slip, "--to", "earliest"), ("topics", "describe", slip))
    changing = (("delete", slip, "--yes"), ("alter", slip, "--partitions", "3"), ("truncate", slip, "--before", "1"))
    configs = ("configs", "describe", "topic", slip)
    for words in (*looking, *(("topics", *one) for one in changing), configs):
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


@proves("T10", "command_line")
@pytest.mark.parametrize("command", ["configs", "events", "store"])
def test_a_command_that_needs_an_action_lists_its_actions(command: str) -> None:
    module = import_module(f"tidelog.cli.{command}")
    with pytest.raises(UsageError, match=f"^{command}: say which: {', '.join(action_names(module.parser()))}; see "):
        module.run([])


@proves("T10", "command_line")
def test_what_may_be_left_out_is_not_called_required() -> None:
    dead = import_module("tidelog.cli.dead")
    with pytest.raises(UsageError, match=r"required: TOPIC; see `tidelog dead replay --help`"):
        dead.run(["replay"])


@proves("T10", "T4")
def test_a_group_of_another_kind_is_told_by_its_kind_and_a_new_one_is_called_new(
    tidelog: Command, topic: str, group: str
) -> None:
    tidelog.ok("topics", "create", topic)
    moved = ("reset", group, topic, "--to", "earliest", "--yes")
    assert tidelog.ok(*moved).lines[-1] == f"{group} is moved; it is a new group"
    assert tidelog.ok(*moved).lines[-1] == f"{group} is moved"
    near = tidelog("groups", "describe", group[:-1])
    assert near.code == 1 and f"group '{group[:-1]}' does not exist; did you mean {group}?" in near.err
    queue = f"{topic}-queue"
    tidelog.ok("configs", "alter", "group", queue, "--set", "share.auto.offset.reset=earliest")
    with Cluster(tidelog.environment["TIDELOG_BOOTSTRAP"]) as cluster:
        reader = ShareReader(cluster, queue, [topic])
        reader.beat(at_once=True)
        shown = tidelog("groups", "describe", queue)
        reader.close()
    assert shown.code == 1 and f"is a share group; `tidelog queues describe {queue}` shows it" in shown.err


@proves("T10", "P3")
def test_a_part_without_its_apps_name_is_near() -> None:
    reports = [Report("query", "shop.revenue", {}), Report("app", "shop", {})]
    with pytest.raises(UsageError, match=r"no part is called 'revenue'; did you mean shop\.revenue\?"):
        find(iter(reports), "revenue", None)
    with pytest.raises(UsageError, match=r"'shop.revenu'; did you mean shop\.revenue\?"):
        find(iter(reports), "shop.revenu", None)
    with pytest.raises(UsageError, match=r"'zebra'; `tidelog status` lists them"):
        find(iter(reports), "zebra", None)
    assert find(iter(reports), "shop", None).kind == "app"


@proves("T10", "P3")
def test_a_store_is_one_thing_also_where_a_report_has_its_bare_name() -> None:
    """As a program reports that supervises the store itself."""
    reports = [Report("store", "seats", {}), Report("store", "seats.web1-47", {"store": "seats"})]
    for kind in (None, "store"):
        assert find(iter(reports), "seats", kind)[:2] == ("store", "seats")
    assert find(iter(reports[1:]), "seats", None)[:2] == ("store", "seats")
