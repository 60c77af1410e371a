"""Every log of a data folder, damaged in every way, and what must hold then. In process: `ByHand` is the broker.

    stops      clean, or killed; the last write two seconds or two minutes before, by a clock that the test moves; and
               killed at once, where the last batch may be one that was never synced
    damages    a byte of the last 300 flipped; cut at a batch boundary, or by one byte; emptied; file gone; folder gone;
               swapped with another's

What holds after each:
- No batch of a log that was not damaged is gone: its bytes are in the folder, under its name or set aside.
- No acked record is missing in silence: the start is refused, or reading it is, or the log of the broker says that
  something was cut. The last may only be where it was written within the last second before a kill.
- No offset is given out twice.
- What the broker says to do brings it to a start, and `tidelog repair` lets readers go on.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from broker.by_hand import ByHand
from tidelog.broker.decision import Decision
from tidelog.broker.transactions import state as transactions
from tidelog.broker.transactions.state import Transaction
from tidelog.broker.transactions.states import State
from tidelog.cli.main import main
from tidelog.errors import StorageError
from tidelog.log.folder import ORPHANED_SUFFIX
from tidelog.log.header_block import HEADER_BLOCK
from tidelog.record import codec
from tidelog.testing.disk import flip_bit

TOPICS = {"orders": 2, "clicks": 1}
CONFIGS = {"retention.ms": "-1"}
BATCHES, RECORDS = 3, 2
END = BATCHES * RECORDS
GROUP = "readers"
LAST_BYTES = 300
TRIES = 8

Damage = Callable[[Path], None]  # of a partition's folder


class Stop(NamedTuple):
    clean: bool
    after_s: int  # the last write

    def __str__(self) -> str:
        return f"{'stopped' if self.clean else 'killed'} {self.after_s} s after the last write"


STOPS = [Stop(clean, after_s) for clean in (True, False) for after_s in (2, 120)]
AT_ONCE = Stop(False, 0)


def values(topic: str, partition: int) -> list[bytes]:
    return [b"%s-%d-%d" % (topic.encode(), partition, number) for number in range(END)]


def partitions() -> Iterator[tuple[str, int]]:
    return ((topic, partition) for topic, count in TOPICS.items() for partition in range(count))


def write(data: Path, stop: Stop) -> Path:
    broker = ByHand(data).start()
    for topic, count in TOPICS.items():
        broker.create(topic, count, CONFIGS)
    for number in range(BATCHES):
        for topic, partition in partitions():
            broker.produce(topic, *values(topic, partition)[number * RECORDS :][:RECORDS], partition=partition)
        broker.commit_offset(GROUP, "orders", number)
        owned = Transaction(f"id {number}", State.EMPTY, number, 0, 60_000, 1)
        broker.broker.transactions.internal.commit(Decision([transactions.record(owned)], []), 1)
        broker.committer.settle()
    broker.rest(stop.after_s)
    if stop.clean:
        broker.stop()
    else:
        broker.kill()
    return data


# The damages ----------------------------------------------------------------------------------------------------------


def logs(data: Path) -> list[str]:
    """The folders of partitions that have records."""
    return sorted(log.parent.name for log in data.glob("*/*.log") if log.stat().st_size > HEADER_BLOCK)


def log_of(folder: Path) -> Path:
    (log,) = folder.glob("*.log")
    return log


def flip(back: int) -> Damage:
    def damage(folder: Path) -> None:
        log = log_of(folder)
        flip_bit(log, log.stat().st_size - back, back % 8)

    return damage


def cut(size: int) -> Damage:
    return lambda folder: log_of(folder).write_bytes(log_of(folder).read_bytes()[:size])


def swap_files(other: str) -> Damage:
    return lambda folder: swap(log_of(folder), log_of(folder.parent / other))


def swap_folders(other: str) -> Damage:
    return lambda folder: swap(folder, folder.parent / other)


def swap(first: Path, second: Path) -> None:
    aside = first.with_name("aside")
    first.rename(aside)
    second.rename(first)
    aside.rename(second)


def damages(data: Path, name: str) -> dict[str, Damage]:
    """All of them, for one log of this folder."""
    content = log_of(data / name).read_bytes()
    ends = [HEADER_BLOCK]
    while ends[-1] < len(content):
        ends.append(ends[-1] + codec.peek(content, ends[-1]).size)
    last = min(LAST_BYTES, len(content) - HEADER_BLOCK)
    other = next(one for one in logs(data) if one != name)
    return {
        **{f"bit {back % 8} of byte {back} from the end": flip(back) for back in range(1, last + 1)},
        **{f"cut to {end} bytes, at a batch": cut(end) for end in ends[:-1]},
        "cut by a byte": cut(len(content) - 1),
        "emptied": cut(0),
        "file gone": lambda folder: log_of(folder).unlink(),
        "folder gone": lambda folder: shutil.rmtree(folder),
        "file swapped": swap_files(other),
        "folder swapped": swap_folders(other),
    }


def in_doubt(data: Path, name: str) -> dict[str, Damage]:
    """Those that a write which was cut short could have left."""
    return {told: damage for told, damage in damages(data, name).items() if told.startswith(("bit", "cut by"))}


def some(rng: random.Random, data: Path) -> tuple[str, str, Damage]:
    """One log, and one damage; a bit that flips is not more likely than the other kinds together."""
    name = rng.choice(logs(data))
    all_of_them = damages(data, name)
    kinds = {"bit": [one for one in all_of_them if one.startswith("bit")]}
    kinds["other"] = [one for one in all_of_them if not one.startswith("bit")]
    told = rng.choice(kinds[rng.choice(["bit", "other", "other"])])
    return name, told, all_of_them[told]


# What must hold -------------------------------------------------------------------------------------------------------


def check(data: Path, name: str, damage: Damage, stop: Stop) -> None:
    """Damages this folder and follows what the broker says, to a broker that runs and readers that go on."""
    damage(data / name)
    before = batches(data)
    broker = started(data)
    lost = {at: fault_of(broker, *at, stop) for at in partitions() if at[0] in broker.broker.topics.by_name}
    assert batches(data) >= before, "bytes that were there are gone"
    broker.kill()
    for (topic, partition), fault in lost.items():
        if fault is not None and repair("--data", str(data), topic, str(partition)) != 0:
            assert repair("--data", str(data), topic, str(partition), "--skip", "--yes") == 0
    broker = started(data)
    for topic, partition in lost:
        found = broker.values(topic, partition)
        assert in_order(found, values(topic, partition)), f"{topic}-{partition} has {found}"
        broker.produce(topic, b"after", partition=partition)
        assert broker.broker.partition(topic, partition).log.end_offset >= len(found) + 1
    broker.kill()


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


def started(data: Path) -> ByHand:
    """Does what the broker says, as who runs it would, until it runs with nothing set aside."""
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
            return broker
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
