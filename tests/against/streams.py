"""A Kafka Streams program, `java/WordCount.java`, in a process of its own, what it is fed with, and what it must make
of it.

Lines are fed all the time, and whoever is killed dies in the middle of a transaction (`in_the_middle`). Every line must
be copied once, in the order of its partition, and every word of it counted once: the counts of a word that a
`read_committed` reader sees are 1, 2, 3, ... up to how often it was fed. What is read while it runs and what is read
from the beginning at the end must be the same.
"""

from __future__ import annotations

import random
import signal
import subprocess
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from against.apache_kafka import die_with_parent
from against.brokers import HEARTBEAT_MS, Broker
from against.confluent import consumer_of, producer_of
from against.java_machine import JavaMachine
from against.patience import PATIENCE_SECONDS, eventually
from against.rebalancing import create

PARTITIONS = 2
WORDS = ("the", "tide", "comes", "in", "and", "goes", "out", "again")
WORDS_A_LINE = 3
PAUSE_SECONDS = 0.02
SESSION_MS = 6_000  # short: to take a program that is alive for dead costs it a rebalance, and must cost no record
# A program that was killed is missed soon, and its transaction, if no heir takes its id, ends soon. Transactions are
# longer than by default, so that whoever finds one open is in time to kill.
QUICK = (
    f"session.timeout.ms={SESSION_MS}",
    f"heartbeat.interval.ms={HEARTBEAT_MS}",
    "producer.transaction.timeout.ms=5000",
    "commit.interval.ms=300",
)


class Topics(NamedTuple):
    lines: str
    copies: str
    counts: str


def make_topics(broker: Broker, name: str) -> Topics:
    topics = Topics(f"{name}-lines", f"{name}-copies", f"{name}-counts")
    for topic in topics:
        create(broker.bootstrap, topic, PARTITIONS)
    return topics


class Program:
    """One run of it; what it complains of is in `said`."""

    def __init__(self, java: JavaMachine, broker: Broker, name: str, topics: Topics, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.log = folder / "program.log"
        with self.log.open("ab") as said:
            self.process = subprocess.Popen(
                [*java.command, "WordCount", broker.bootstrap, name, str(folder / "state"), *topics, *QUICK],
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=said,
                preexec_fn=die_with_parent,
            )

    def kill(self) -> None:
        assert self.process.poll() is None, self.said()
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """As its users do: it commits what it has, and leaves."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(PATIENCE_SECONDS) == 0, self.said()

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]


class Feeder:
    """Writes lines until it is told to stop; `lines` has what it wrote, by partition."""

    def __init__(self, broker: Broker, topics: Topics, seed: int) -> None:
        self.lines: dict[str, list[str]] = defaultdict(list)
        self._topic = topics.lines
        self._random = random.Random(seed)
        self._producer = producer_of(broker, enable_idempotence=True, message_timeout_ms=int(PATIENCE_SECONDS * 1000))
        self._stopped = threading.Event()
        self._failed: list[KafkaError] = []
        self._thread = threading.Thread(target=self._feed, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        assert self._producer.flush(PATIENCE_SECONDS) == 0
        assert not self._failed

    def _feed(self) -> None:
        number = 0
        while not self._stopped.wait(PAUSE_SECONDS):
            partition = number % PARTITIONS
            line = " ".join([f"line-{number}", *self._random.choices(WORDS, k=WORDS_A_LINE)])
            self.lines[str(partition)].append(line)
            self._producer.produce(self._topic, line, key=str(partition), partition=partition, on_delivery=self._told)
            self._producer.poll(0)
            number += 1

    def _told(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failed.append(error)


class Output(NamedTuple):
    """By key, in the order of the partition that the key is in."""

    copies: dict[str, list[str]]
    counts: dict[str, list[int]]

    @property
    def copied(self) -> int:
        return sum(map(len, self.copies.values()))

    @property
    def counted(self) -> int:
        return sum(map(len, self.counts.values()))

    def is_complete(self, expected: Output) -> bool:
        """Nothing is missing; something may be there twice."""
        return self.copied >= expected.copied and self.counted >= expected.counted


def expected_of(feeder: Feeder) -> Output:
    words = Counter(word for lines in feeder.lines.values() for line in lines for word in line.split())
    return Output(dict(feeder.lines), {word: list(range(1, count + 1)) for word, count in words.items()})


class Reader:
    """Reads both output topics from their beginning; committed records only, unless told otherwise."""

    def __init__(self, broker: Broker, topics: Topics, isolation_level: str = "read_committed") -> None:
        self._topics = topics
        self._consumer: Consumer = consumer_of(broker, isolation_level=isolation_level, enable_partition_eof=True)
        self._ended: set[tuple[str, int]] = set()
        self.output = Output(defaultdict(list), defaultdict(list))
        places = [(topic, index) for topic in (topics.copies, topics.counts) for index in range(PARTITIONS)]
        self._consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in places])

    def poll(self) -> Output:
        for message in self._consumer.consume(500, 0.1):
            self._take(message)
        return self.output

    def read_on(self, lines: int) -> None:
        """Until so many more lines are copied."""
        wanted = self.output.copied + lines
        eventually(lambda: self.poll().copied, lambda copied: copied >= wanted)

    def read_to_the_end(self) -> Output:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(self._ended) < 2 * PARTITIONS:
            assert time.monotonic() < deadline, f"the end was reached in {self._ended} only"
            self.poll()
        self._consumer.close()
        return self.output

    def _take(self, message: Message) -> None:
        error, place = message.error(), (str(message.topic()), message.partition() or 0)
        if error is None:
            self._ended.discard(place)
            key, value = (message.key() or b"").decode(), (message.value() or b"").decode()
            if message.topic() == self._topics.copies:
                self.output.copies[key].append(value)
            else:
                self.output.counts[key].append(int(value))
        elif error.code() == KafkaError._PARTITION_EOF:
            self._ended.add(place)
        elif not error.retriable() and error.code() != KafkaError._ALL_BROKERS_DOWN:
            raise KafkaException(error)


def in_the_middle(broker: Broker, topics: Topics) -> None:
    """Waits until a transaction of the program is open, with a copy in it."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def ends(isolation_level: IsolationLevel) -> list[int]:
        places = {TopicPartition(topics.copies, index): OffsetSpec.latest() for index in range(PARTITIONS)}
        found = admin.list_offsets(places, isolation_level=isolation_level)
        return [end.result(PATIENCE_SECONDS).offset for end in found.values()]

    def is_open() -> bool:
        stable = ends(IsolationLevel.READ_COMMITTED)
        return any(end > below for below, end in zip(stable, ends(IsolationLevel.READ_UNCOMMITTED), strict=True))

    eventually(is_open)


def settle(program: Program, feeder: Feeder, reader: Reader, broker: Broker, topics: Topics) -> Output:
    """Feeding ends, the program goes through to the end, and what it made is judged."""
    feeder.stop()
    expected = expected_of(feeder)
    eventually(reader.poll, lambda output: output.is_complete(expected))
    program.close()
    judge(reader.read_to_the_end(), expected)
    judge(Reader(broker, topics).read_to_the_end(), expected)
    return expected


def judge(output: Output, expected: Output) -> None:
    for kind, made, wanted in zip(Output._fields, output, expected, strict=True):
        assert made.keys() == wanted.keys(), f"{kind} of {sorted(made.keys() ^ wanted.keys())}"
        for key in wanted:
            assert list(made[key]) == list(wanted[key]), f"{kind} of {key}: {made[key]} and not {wanted[key]}"
