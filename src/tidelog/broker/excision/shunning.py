"""A folder that was restored loses again what had been taken out, before any broker opens it.

Which records those are is said by the backup's own audit, and by what the operator names: a newer backup, a data folder
(also a running broker's), or the output of `tidelog excise --list --json`. While it is done the file `shunning` is in
the folder, and a broker refuses to start there: a restore that was killed half-way shows nothing to anybody.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from json import JSONDecodeError, loads
from pathlib import Path

from tidelog.broker.backup import manifest as manifest_file
from tidelog.broker.decision import Decision
from tidelog.broker.excision import state as fold
from tidelog.broker.excision.order import offsets_of
from tidelog.broker.excision.state import DONE, ORDERED, REFUSED, Excision
from tidelog.broker.internal import InternalTopic, TopicFold
from tidelog.broker.stopped import StoppedBroker
from tidelog.broker.topics import EXCISIONS_TOPIC
from tidelog.errors import DataFolderError, StorageError, UsageError
from tidelog.log.files import Files, RealFiles, replace_file
from tidelog.log.folder import SHUNNING
from tidelog.log.header_block import HEADER_BLOCK
from tidelog.log.log import Log
from tidelog.log.names import partition_name
from tidelog.log.segment import Name, newest
from tidelog.record.codec import scan
from tidelog.record.columns import decode


def begin(data: str, files: Files) -> None:
    replace_file(files, f"{data}/{SHUNNING}", b"a restore is taking excised records out; see tidelog restore\n")


# What is to go --------------------------------------------------------------------------------------------------------


def read(place: str) -> list[Excision]:
    """Of a data folder, a backup, or a file with the JSON of the audit."""
    path = Path(place)
    if not path.exists():
        raise UsageError(f"{place} is not there; --shun takes a data folder, a backup or a file of excisions")
    if path.is_file():
        return _read_json(path)
    tree = path / manifest_file.read(place).tree if (path / manifest_file.MANIFEST).is_file() else path
    found: dict[int, Excision] = {}
    for key, value in _rows(tree / partition_name(EXCISIONS_TOPIC.topic_id, 0)):
        number, excision = fold.parse(key, value)
        found[number] = excision
    return [one for one in found.values() if one.state != REFUSED]


def _read_json(path: Path) -> list[Excision]:
    try:
        listed = loads(path.read_bytes())
        made = [
            Excision(
                one["topic"],
                bytes.fromhex(one["id"]),
                int(one["partition"]),
                tuple((int(first), int(last)) for first, last in one["offsets"]),
                *(str(one["reason"]), str(one["by"]), int(one["ordered_ms"]), str(one["state"])),
            )
            for one in listed
        ]
    except (JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path} is not the output of `tidelog excise --list --json`: {error}") from error
    return [one for one in made if one.state != REFUSED]


def _rows(folder: Path) -> Iterator[tuple[bytes, bytes | None]]:
    """Of a log that nobody opens: whole batches only, for the rest may be on its way."""
    names = [name for path in sorted(folder.glob("*")) if (name := Name.parse(path.name)) is not None]
    for name in newest(names):
        data = memoryview((folder / f"{name}.log").read_bytes())[HEADER_BLOCK:]
        whole = scan(data).end
        for row in decode(data[:whole]).rows():
            assert row.key is not None, "every record of an internal topic has a key"
            yield row.key, row.value


# Taking it out --------------------------------------------------------------------------------------------------------


def finish(data: str, shunned: Iterable[Excision], files: Files | None = None) -> int:
    """Takes all of it out, notes that, and lets brokers start. Returns how many records there were."""
    files = files or RealFiles()
    removed = 0
    with StoppedBroker(Path(data), files) as stopped:
        audit = InternalTopic(EXCISIONS_TOPIC.name, TopicFold(fold.fresh, fold.apply, fold.to_records), _fail)
        audit.recover(stopped.open(EXCISIONS_TOPIC, 0), data, files)
        topics = stopped.topics().state
        known = {_same(one): number for number, one in audit.state.by_number.items()}
        for one in {_same(one): one for one in (*audit.state.by_number.values(), *shunned)}.values():
            topic = topics.by_id.get(one.topic_id)
            if one.state == REFUSED or topic is None or not stopped.has(topic, one.partition):
                continue
            gone = _excise(stopped, stopped.open(topic, one.partition), one)
            removed += gone
            number = known.get(_same(one), audit.state.next_number)
            if number in known.values() and not gone and one.state != ORDERED:
                continue
            done = one._replace(state=DONE, done_ms=_now_ms(), removed=gone)
            audit.commit(Decision([fold.record(number, done)], []), _now_ms())
            stopped.settle()
    files.remove(f"{data}/{SHUNNING}")
    files.sync_folder(data)
    return removed


def _same(one: Excision) -> tuple[bytes, int, tuple[tuple[int, int], ...], int]:
    return one.topic_id, one.partition, one.offsets, one.ordered_ms


def _excise(stopped: StoppedBroker, log: Log, one: Excision) -> int:
    """What the backup has of it: it may end before some of the offsets."""
    offsets = [offset for offset in offsets_of(one.offsets) if offset < log.high_watermark]
    if not offsets:
        return 0
    told: list[tuple[int, StorageError | None]] = []
    log.excise(offsets, _now_ms(), lambda removed, error: told.append((removed, error)))
    stopped.settle()
    ((removed, error),) = told
    if error is not None:
        raise DataFolderError(f"{one.topic} partition {one.partition}: excised records cannot be taken out: {error}")
    return removed


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _fail(error: StorageError) -> None:
    raise error
