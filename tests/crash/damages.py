"""Every log of a data folder, damaged in every way, and what must hold then. In process: `ByHand` is the broker.

    logs       those of users' topics, one of them in several segments, and of all topics that the broker folds; in
               `ROLLED` those are in several segments too
    stops      clean, or killed; the last write two seconds or two minutes before, by a clock that the test moves; and
               killed at once, where the last batch may be one that was never synced
    damages    a byte of the last 300 flipped; cut at a batch boundary, or by one byte; emptied; file gone; folder gone;
               swapped with another's. Of a log in several segments, also the first one and one in the middle

What holds after each:
- No batch of a log that was not damaged is gone: its bytes are in the folder, under its name or set aside. A reader
  gets all of it, at once and later.
- No acked record is missing in silence: the start is refused, or reading it is, or the log of the broker says that
  something was cut. The last may only be where it was written within the last second before a kill.
- So it is with what the broker has decided: a fold is what it was, or a start was refused that named its topic.
- No offset is given out twice.
- What the broker says to do brings it to a start, and `tidelog repair` lets readers go on.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from broker.by_hand import ByHand
from tidelog.broker import topic_configs
from tidelog.broker.access import state as access
from tidelog.broker.access.entities import Entity
from tidelog.broker.decision import Decision, NewRecord
from tidelog.broker.excision import state as excisions
from tidelog.broker.excision.state import DONE, Excision
from tidelog.broker.folds import Folded
from tidelog.broker.groups import state as groups
from tidelog.broker.queues import records as queue_records
from tidelog.broker.queues import state as queues
from tidelog.broker.topics import GROUPS_TOPIC, INTERNAL_TOPICS, Topic
from tidelog.broker.transactions import state as transactions
from tidelog.broker.transactions.state import Transaction
from tidelog.broker.transactions.states import State
from tidelog.cli.main import main
from tidelog.errors import StorageError
from tidelog.log import identity
from tidelog.log.files import RealFiles
from tidelog.log.folder import ORPHANED_SUFFIX
from tidelog.log.header_block import HEADER_BLOCK
from tidelog.log.names import partition_name
from tidelog.record import codec
from tidelog.testing.disk import flip_bit

TOPICS = {"orders": 2, "clicks": 1, "rolled": 1}
CONFIGS = {"retention.ms": "-1"}
ROLLS = {"segment.ms": "1"}  # a batch is a segment
BATCHES, RECORDS = 3, 2
END = BATCHES * RECORDS
GROUP = "readers"
LAST_BYTES = 300
BETWEEN_S = 0.002
TRIES = 8

Damage = Callable[[Path], None]  # of a partition's folder


class Stop(NamedTuple):
    clean: bool
    after_s: int  # the last write
    rolled: bool = False  # of the broker's own logs each decision is a segment

    def __str__(self) -> str:
        told = f"{'stopped' if self.clean else 'killed'} {self.after_s} s after the last write"
        return f"{told}, own logs rolled" if self.rolled else told


STOPS = [Stop(clean, after_s) for clean in (True, False) for after_s in (2, 120)]
ROLLED = [Stop(True, 2, True), Stop(False, 2, True)]
AT_ONCE = Stop(False, 0)


def values(topic: str, partition: int) -> list[bytes]:
    return [b"%s-%d-%d" % (topic.encode(), partition, number) for number in range(END)]


def partitions() -> Iterator[tuple[str, int]]:
    return ((topic, partition) for topic, count in TOPICS.items() for partition in range(count))


def configs_of(topic: str) -> dict[str, str]:
    return {**CONFIGS, **(ROLLS if topic == "rolled" else {})}


def write(data: Path, stop: Stop) -> None:
    with pytest.MonkeyPatch.context() as patched:
        if stop.rolled:
            own = topic_configs.INTERNAL_CONFIG
            patched.setattr(topic_configs, "INTERNAL_CONFIG", own._replace(log=replace(own.log, segment_ms=1)))
        _write(data, stop)


def _write(data: Path, stop: Stop) -> None:
    broker = ByHand(data).start()
    for topic, count in TOPICS.items():
        broker.clock += BETWEEN_S
        broker.create(topic, count, configs_of(topic))
    for number in range(BATCHES):
        broker.clock += BETWEEN_S
        for topic, partition in partitions():
            broker.produce(topic, *values(topic, partition)[number * RECORDS :][:RECORDS], partition=partition)
        broker.commit_offset(GROUP, "orders", number)
        for fold, record in decisions(broker, number):
            fold.internal.commit(Decision([record], []), broker.now().wall_ms)
        broker.committer.settle()
    broker.rest(stop.after_s)
    if stop.clean:
        broker.stop()
    else:
        broker.kill()


def decisions(by_hand: ByHand, number: int) -> Iterator[tuple[Folded[Any], NewRecord]]:
    """One more of each fold beside those of topics and of groups."""
    broker = by_hand.broker
    orders = broker.topics.by_name["orders"].topic_id
    owned = Transaction(f"id {number}", State.EMPTY, number, 0, 60_000, 1)
    taken_out = Excision("orders", orders, 0, ((number, number),), "a test", "User:x", 1, DONE, 2, 1)
    quota = Entity((("user", f"user {number}"),))
    yield broker.transactions, transactions.record(owned)
    yield broker.access, access.quota_record(quota, {"producer_byte_rate": 1e9})
    yield broker.queues, queue_records.group_record(f"workers {number}", number)
    yield broker.excisions, excisions.record(number, taken_out)


def decided(by_hand: ByHand) -> dict[str, list[NewRecord]]:
    """What each fold has, by its topic, as the records that would make it anew."""
    broker = by_hand.broker
    found = {GROUPS_TOPIC.name: list(groups.to_records(broker.groups))}
    for module, fold in (
        (transactions, broker.transactions),
        (access, broker.access),
        (queues, broker.queues),
        (excisions, broker.excisions),
    ):
        found[fold.internal.name] = list(module.to_records(fold.state))
    return {name: sorted(records) for name, records in found.items()}


# The damages ----------------------------------------------------------------------------------------------------------


def logs(data: Path) -> list[str]:
    """The folders of partitions that have records."""
    return sorted({log.parent.name for log in data.glob("*/*.log") if log.stat().st_size > HEADER_BLOCK})


def names(data: Path) -> dict[str, str]:
    """The folder of each log, by its topic and partition."""
    own = {partition_name(topic.topic_id, 0): f"{topic.name}-0" for topic in INTERNAL_TOPICS}
    return {own.get(folder) or _named(data / folder): folder for folder in logs(data)}


def _named(folder: Path) -> str:
    said = identity.load(RealFiles(), str(folder))
    assert said is not None
    return f"{said.topic}-{folder.name.rpartition('-')[2]}"


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def flip(back: int, which: int = -1) -> Damage:
    def damage(folder: Path) -> None:
        log = segments(folder)[which]
        flip_bit(log, log.stat().st_size - back, back % 8)

    return damage


def cut(size: int, which: int = -1) -> Damage:
    def damage(folder: Path) -> None:
        log = segments(folder)[which]
        log.write_bytes(log.read_bytes()[:size])

    return damage


def gone(which: int) -> Damage:
    return lambda folder: segments(folder)[which].unlink()


def swap_files(other: str, which: int = -1) -> Damage:
    return lambda folder: swap(segments(folder)[which], segments(folder.parent / other)[-1])


def swap_folders(other: str) -> Damage:
    return lambda folder: swap(folder, folder.parent / other)


def swap(first: Path, second: Path) -> None:
    aside = first.with_name("aside")
    first.rename(aside)
    second.rename(first)
    aside.rename(second)


class Wound(NamedTuple):
    """`of` has the folders whose records it touches."""

    told: str
    damage: Damage
    of: tuple[str, ...]


def wounds(data: Path, name: str, every: int = 1) -> list[Wound]:
    """All of them, for one log of this folder; a bit of `every` byte."""
    folder, kept = data / name, names(data)
    found = [Wound("folder gone", shutil.rmtree, (name,))]
    for which, log in enumerate(segments(folder)):
        found += [Wound(f"segment {which} {told}", damage, (name,)) for told, damage in _of_a_file(log, which, every)]
    for label, other in kept.items():
        if other != name:
            found.append(Wound(f"file swapped with that of {label}", swap_files(other), (name, other)))
            found.append(Wound(f"folder swapped with that of {label}", swap_folders(other), (name, other)))
    return found


def _of_a_file(log: Path, which: int, every: int) -> Iterator[tuple[str, Damage]]:
    content = log.read_bytes()
    end = HEADER_BLOCK
    while end < len(content):
        yield f"cut to {end} bytes, at a batch", cut(end, which)
        end += codec.peek(content, end).size
    for back in range(1, min(LAST_BYTES, len(content) - HEADER_BLOCK) + 1, every):
        yield f"bit {back % 8} of byte {back} from the end", flip(back, which)
    yield "cut by a byte", cut(len(content) - 1, which)
    yield "emptied", cut(0, which)
    yield "gone", gone(which)


def in_doubt(data: Path, name: str) -> list[Wound]:
    """Those that a write which was cut short could have left: at the end of the last segment."""
    last = f"segment {len(segments(data / name)) - 1} "
    return [one for one in wounds(data, name) if one.told.startswith((last + "bit", last + "cut by"))]


def some(rng: random.Random, data: Path) -> tuple[str, Wound]:
    """One log, and one damage; a bit that flips is not more likely than the other kinds together."""
    log, name = rng.choice(sorted(names(data).items()))
    kinds: dict[bool, list[Wound]] = {True: [], False: []}
    for wound in sorted(wounds(data, name), key=lambda one: one.told):
        kinds[" bit " in wound.told].append(wound)
    wound = rng.choice(kinds[rng.choice([True, False, False])])
    return name, wound._replace(told=f"{log}: {wound.told}")


# What must hold -------------------------------------------------------------------------------------------------------


class Kept(NamedTuple):
    """A data folder, and what was in it before anything was damaged."""

    data: Path
    stop: Stop
    names: dict[str, str]
    topics: dict[str, Topic]
    decided: dict[str, list[NewRecord]]


def keep(data: Path, stop: Stop) -> Kept:
    """Writes it; a copy says what a broker makes of it when nothing is wrong."""
    write(data, stop)
    copy = shutil.copytree(data, data.with_name(f"{data.name} whole"))
    broker = ByHand(copy).start()
    kept = Kept(data, stop, names(data), dict(broker.broker.topics.by_name), decided(broker))
    assert all(kept.decided.values())
    assert [broker.values(topic, partition) for topic, partition in partitions()] == [
        values(*at) for at in partitions()
    ]
    broker.kill()
    shutil.rmtree(copy)
    return kept


def check(kept: Kept, data: Path, name: str, wound: Wound) -> None:
    """Damages this copy and follows what the broker says, to a broker that runs and readers that go on."""
    wound.damage(data / name)
    touched = {label for label, folder in kept.names.items() if folder in wound.of}
    before = batches(data)
    broker, told = started(data)
    check_decisions(kept, broker, told, touched)
    lost = {at: fault_of(broker, *at, kept.stop) for at in partitions()}
    whole = {at for at in lost if f"{at[0]}-{at[1]}" not in touched}
    assert {at for at in whole if lost[at] is not None} == set(), f"{lost}"
    assert batches(data) >= before, "bytes that were there are gone"
    broker.kill()
    for (topic, partition), fault in lost.items():
        if fault is not None and repair("--data", str(data), topic, str(partition)) != 0:
            assert repair("--data", str(data), topic, str(partition), "--skip", "--yes") == 0
    broker, _ = started(data)
    for at in lost:
        found, expected = broker.values(*at), values(*at)
        assert found == expected if at in whole else in_order(found, expected), f"{at} has {found}"
        offset = broker.produce(at[0], b"after", partition=at[1])
        least = len(found) if kept.stop == AT_ONCE and at not in whole else END
        assert offset >= least, f"{at} gives out {offset} again"
        assert broker.values(*at) == [*found, b"after"]
    broker.kill()


def check_decisions(kept: Kept, broker: ByHand, told: list[str], touched: set[str]) -> None:
    """They are what they were, or a start was refused because of them; what was cut just now is told."""
    topics = broker.broker.topics.by_name
    assert topics == kept.topics, f"topics are not what they were: {topics}"
    for topic, records in decided(broker).items():
        if records != kept.decided[topic]:
            assert f"{topic}-0" in touched, f"{topic} was not damaged and has {records}"
            refused = any(topic in one or kept.names[f"{topic}-0"] in one for one in told)
            in_doubt = kept.stop == AT_ONCE and f" WARNING recovered topic={topic} " in broker.said()
            assert refused or in_doubt, f"{topic} has {records} in silence"


def repair(*words: str) -> int:
    """What it says is for people; thousands of such runs would hide what failed."""
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        return main(["repair", *words])


def batches(data: Path) -> set[bytes]:
    """What lies behind the header block of every log and of what was cut from one, wherever it is now."""
    found = set()
    for path in [path for path in data.glob("*/*") if path.suffix in (".log", ".cut", ".foreign")]:
        content = path.read_bytes()[0 if path.suffix == ".cut" else HEADER_BLOCK :]
        position = 0
        while position < len(content):
            try:
                header = codec.peek(content, position)
            except Exception:
                break
            if position + header.size > len(content):
                break
            found.add(content[position : position + header.size])
            position += header.size
    return found


def started(data: Path) -> tuple[ByHand, list[str]]:
    """Does what the broker says, as who runs it would, until it runs with nothing set aside; and why it did not."""
    told: list[str] = []
    for _ in range(TRIES):
        broker = ByHand(data)
        try:
            broker.start()
        except StorageError as error:
            broker.kill()
            told.append(str(error))
            command = re.search(r"tidelog repair ((?:adopt )?--data \S+?(?: \S+ \d+ --skip)?)(?:,|$)", str(error))
            assert command is not None, f"no advice: {error}"
            assert repair(*command[1].split(), *(["--yes"] if "--skip" in command[1] else [])) == 0
            continue
        if not list(data.glob(f"*{ORPHANED_SUFFIX}")):
            return broker, told
        assert " ERROR folder set aside" in broker.said() or "set aside" in broker.said(), broker.said()
        broker.kill()
        assert repair("adopt", "--data", str(data)) == 0
    raise AssertionError(f"it does not start after {TRIES} tries: {told}")


def fault_of(broker: ByHand, topic: str, partition: int, stop: Stop) -> StorageError | None:
    """Why a reader does not get everything; None when it does, or was told that the last batch was in doubt."""
    expected = values(topic, partition)
    try:
        found = broker.values(topic, partition)
    except StorageError as error:
        return error
    if found != expected:
        told = f" WARNING recovered topic={topic} " in broker.said()
        assert stop == AT_ONCE and told and expected[: len(found)] == found, (
            f"{topic}-{partition} has {found} in silence"
        )
    return None


def in_order(found: list[bytes | None], expected: list[bytes]) -> bool:
    """Whether what is left is what was written, with something left out."""
    rest = iter(expected)
    return all(any(one == other for other in rest) for one in found)
