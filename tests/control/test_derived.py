"""Generations of derived topics in the catalog: begun, switched to, put in place, forgotten; records of before."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from proving import proves
from tidelog.client.metadata import TopicPartition
from tidelog.control import derived
from tidelog.control.catalog import decode, encode
from tidelog.control.derived import CodeChange, Derived, TopicGeneration
from tidelog.errors import UsageError

AT = TopicPartition("big", 0)
KEY = b'{"v":1,"kind":"topic","name":"big"}'


def big() -> Derived:
    made = TopicGeneration(1, "big", "shop.big", "f1", {"function big": "a1"}, {"orders": 1})
    return derived.new_topic("big", "shop", ("orders",), made)


@proves("dt.1", "eo.14")
def test_a_generation_has_a_topic_and_a_sink_of_its_number_and_no_number_comes_twice() -> None:
    two = derived.begin(big(), replace(big().current, fingerprint="f2"))
    built = two.generations[-1]
    assert (built.topic, built.sink, built.live) == ("big.v2", "shop.big.v2", None)
    assert (two.live, two.topic, two.building) == (1, "big", built), "the old one is the topic until the switch"
    given_up = derived.forget(two, 2)
    assert derived.begin(given_up, built).generations[-1].topic == "big.v3"
    switched = derived.switch(two, 2, {TopicPartition("big.v2", 0): 7}, 1000)
    assert (switched.live, switched.topic, switched.sink) == (2, "big.v2", "shop.big.v2")
    with pytest.raises(UsageError, match="generation 2 of topic big is live"):
        derived.forget(switched, 2)
    with pytest.raises(UsageError, match="generation 3 of topic big is not being built"):
        derived.switch(switched, 3, {}, 0)


@proves("dt.1")
def test_a_record_is_read_as_it_was_written_and_one_of_before_is_the_first_generation() -> None:
    change = CodeChange({AT: 12}, "f0", {"function big": "a0"}, 900)
    entry = derived.go_on(big(), replace(big().current, fingerprint="f2", keyed=True), change)
    entry = derived.begin(entry, replace(entry.current, in_place=derived.ROWS))
    for one in (entry, derived.switch(entry, 2, {AT: 12}, 1000)):
        assert decode(*encode(one)) == one
    old = {"app": "shop", "inputs": ["orders"], "at_ms": 5, "topic": "big", "sink": "shop.big"}
    before = decode(KEY, json.dumps(old).encode())
    assert before == Derived("big", "shop", "big", "shop.big", ("orders",), 5)
    assert isinstance(before, Derived) and (before.current.number, before.current.fingerprint) == (1, "")
    assert decode(*encode(before)) == before, "and it is written as it was until its code is entered"
    now = derived.go_on(before, big().current)
    assert (now.live, now.current.fingerprint, now.current.topic) == (1, "f1", "big")
    assert json.loads(encode(now)[1])["sink"] == "shop.big", "where versions of before look for it"


@proves("dt.5", "dt.8")
def test_in_place_the_topic_stays_and_is_not_whole_until_all_is_put_there() -> None:
    begun = derived.begin(big(), replace(big().current, in_place=derived.ROWS))
    assert begun.generations[-1].topic == "big.v2", "it is built aside"
    switched = derived.switch(begun, 2, {AT: 12}, 1000)
    assert (switched.topic, switched.sink, switched.current.aside) == ("big", "shop.big.v2", "big.v2")
    placed = derived.placed(switched)
    assert (placed.current.aside, placed.current.topic, placed.live) == ("", "big", 2)
    assert derived.is_begun_anew(placed, 1) and not derived.is_begun_anew(placed, 2)


@proves("dt.4")
def test_an_old_generation_goes_when_the_next_has_been_live_for_seven_days() -> None:
    switched = derived.switch(derived.begin(big(), big().current), 2, {}, since := 1_000_000)
    week = 7 * 24 * 3600 * 1000
    assert derived.outlived(switched, week, since + week) == []
    assert [one.number for one in derived.outlived(switched, week, since + week + 1)] == [1]
    building = derived.begin(switched, big().current)
    assert [one.number for one in derived.old_ones(building)] == [1]
