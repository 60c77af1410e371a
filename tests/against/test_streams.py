"""Kafka Streams 4.3 with `processing.guarantee=exactly_once_v2`: every input counts once, whoever is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from against.brokers import Broker
from against.java_machine import JavaMachine
from against.streams import Feeder, Program, Reader, in_the_middle, make_topics, settle
from against.tidelog_process import TidelogProcess
from proving import proves

pytestmark = pytest.mark.external
SOME = 100
BROKER_KILLS = 3


@proves("F2", "T10")
@pytest.mark.story
def test_streams_counts_every_word_once(
    broker: Broker, java: JavaMachine, topic: str, tmp_path: Path, seed: int
) -> None:
    topics = make_topics(broker, topic)
    feeder, reader = Feeder(broker, topics, seed), Reader(broker, topics)
    program = Program(java, broker, topic, topics, tmp_path / "program")
    reader.read_on(3 * SOME)
    settle(program, feeder, reader, broker, topics)


@proves("F2", "F3", "T10")
def test_streams_counts_every_word_once_though_it_is_killed(
    broker: Broker, java: JavaMachine, topic: str, tmp_path: Path, seed: int
) -> None:
    """With its folder, the heir has the transactional id of the dead and ends its transaction; without, time does."""
    topics = make_topics(broker, topic)
    feeder, reader = Feeder(broker, topics, seed), Reader(broker, topics)
    for folder in ("first", "first", "second"):
        program = Program(java, broker, topic, topics, tmp_path / folder)
        reader.read_on(SOME)
        in_the_middle(broker, topics)
        program.kill()
    program = Program(java, broker, topic, topics, tmp_path / "second")
    reader.read_on(SOME)
    expected = settle(program, feeder, reader, broker, topics)
    everything = Reader(broker, topics, "read_uncommitted").read_to_the_end()
    assert everything.copied > expected.copied, "no kill came in the middle of a transaction"


@proves("F2", "F3", "T10")
def test_streams_counts_every_word_once_though_one_that_was_given_up_goes_on(
    broker: Broker, java: JavaMachine, topic: str, tmp_path: Path, seed: int
) -> None:
    """It stands still in the middle of a transaction until another has its partitions, and then goes on as if nothing
    had been.
    """
    topics = make_topics(broker, topic)
    feeder, reader = Feeder(broker, topics, seed), Reader(broker, topics)
    zombie = Program(java, broker, topic, topics, tmp_path / "zombie")
    reader.read_on(SOME)
    in_the_middle(broker, topics)
    zombie.pause()
    heir = Program(java, broker, topic, topics, tmp_path / "heir")
    reader.read_on(2 * SOME)
    zombie.go_on()
    reader.read_on(2 * SOME)
    zombie.close()
    settle(heir, feeder, reader, broker, topics)


@proves("F2", "T6", "T10")
def test_streams_counts_every_word_once_though_the_broker_is_killed(
    tidelog_process: TidelogProcess, java: JavaMachine, topic: str, tmp_path: Path, seed: int
) -> None:
    broker = tidelog_process
    topics = make_topics(broker, topic)
    feeder, reader = Feeder(broker, topics, seed), Reader(broker, topics)
    program = Program(java, broker, topic, topics, tmp_path / "program")
    for _ in range(BROKER_KILLS):
        reader.read_on(SOME)
        in_the_middle(broker, topics)
        broker.kill()
        broker.start()
    reader.read_on(SOME)
    settle(program, feeder, reader, broker, topics)
