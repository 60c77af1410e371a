"""The status topic and its twin: what parts tell, how often, and what they are told."""

from __future__ import annotations

import pytest

from proving import proves
from tidelog import clock as time_of_day
from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer
from tidelog.control.health import AGAIN_S
from tidelog.control.status import (
    EVERY_S,
    Commands,
    Reporter,
    is_due,
    read_status,
    send_command,
    take_away,
)


def told(cluster: Cluster) -> dict[tuple[str, str], dict[str, object]]:
    return {(one.kind, one.name): one.figures for one in read_status(cluster) if one.kind != "broker"}


@proves("F1")
@pytest.mark.parametrize(
    ("told_at", "now", "news", "due"),
    [
        (None, 5.0, False, True),
        (5.0, 5.0 + EVERY_S / 2, True, False),
        (5.0, 5.0 + EVERY_S, True, True),
        (5.0, 5.0 + EVERY_S, False, False),
        (5.0, 5.0 + AGAIN_S, False, True),
    ],
)
def test_a_part_tells_news_once_a_second_and_that_it_lives_more_seldom(
    told_at: float | None, now: float, news: bool, due: bool
) -> None:
    assert is_due(told_at, now, news=news) is due


@proves("F1")
@pytest.mark.story
def test_the_newest_report_of_each_part_is_read_on_any_broker(cluster: Cluster, topic: str) -> None:
    reporter = Reporter(cluster, "query", topic)
    assert reporter.tell({"rows_in": 1})
    assert not reporter.tell({"rows_in": 2})
    assert reporter.tell({"rows_in": 3}, at_once=True)
    figures = told(cluster)["query", topic]
    assert (figures["rows_in"], "at_ms" in figures) == (3, True)
    take_away(cluster, "query", topic)
    assert ("query", topic) not in told(cluster)


@proves("F1")
@pytest.mark.parametrize("jump_s", [-3600.0, 86_400.0])
def test_a_part_tells_what_it_has_told_again_when_the_clock_was_set(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    """Who looks at it would take it for silent, or a dead one for alive, by the time that it has told."""
    reporter = Reporter(cluster, "query", topic)
    assert reporter.tell({"rows_in": 1}) and not reporter.tell({"rows_in": 1})
    ahead_s = time_of_day._ahead() + jump_s
    monkeypatch.setattr(time_of_day, "_ahead", lambda: ahead_s)
    assert reporter.tell({"rows_in": 1}) and not reporter.tell({"rows_in": 1}), "once"


@proves("F1")
def test_only_how_a_part_is_to_be_counts_for_one_that_starts_later(cluster: Cluster, topic: str) -> None:
    send_command(cluster, "query", topic, "pause")
    send_command(cluster, "query", f"{topic}-b", "stop")
    commands = Commands(cluster)
    assert [(one.name, one.command) for one in commands.first() if one.name.startswith(topic)] == [(topic, "pause")]
    assert commands.next() == []
    send_command(cluster, "query", topic, "rebuild", parallelism=2)
    (rebuild,) = commands.next()
    assert (rebuild.command, rebuild.arguments) == ("rebuild", {"parallelism": 2})


@proves("F1")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"no json", b"{}"),
        (b"[]", b"{}"),
        (b'{"v":1}', b"{}"),
        (b'{"v":1,"kind":"query","name":"x"}', b"no json"),
        (b'{"v":1,"kind":"query","name":"x"}', b"[]"),
        (b'{"v":1,"kind":"query","name":"x"}', b'{"at_ms":"now"}'),
    ],
)
def test_a_record_that_is_no_command_ends_no_run(cluster: Cluster, topic: str, key: bytes, value: bytes) -> None:
    send_command(cluster, "query", topic, "pause")
    commands = Commands(cluster)
    commands.first()
    with Producer(cluster) as producer:
        producer.send("__tidelog.commands", value, key=key, partition=0)
    send_command(cluster, "query", topic, "resume")
    assert [(one.name, one.command) for one in commands.next()] == [(topic, "resume")]
    assert (topic, "resume") in [(one.name, one.command) for one in Commands(cluster).first()]
