"""A cut: where every partition ended at one instant, so that what is copied up to there belongs together.

Copied one after the other, partitions would not: a group's offset could lie behind the end of a topic that was copied
before it, and a transaction could be committed in one partition and unheard of in another. One thread of the broker
gives all offsets, so one look of that thread at all partitions is a state that a crash could have left, and every state
that a crash can leave is one that a start makes sense of.

    DIR/cut.wanted    a word that whoever wants a cut made up; the broker looks for it once a second and removes it
    DIR/cut           one line of JSON, then "crc 8a3fe1c0", the CRC-32C of that line in hex:
                      {"v":1,"word":W,"at_ms":MS,"topics":{ID:NAME,...},"partitions":{"ID-INDEX":mark,...}}
                      or {"v":1,"word":W,"error":TEXT}

A mark is what a clean stop leaves of a partition (log/folder.py), and the broker writes the file when everything below
the marks is synced. Whoever asked takes it away when it has got hold of all files (`HOLD_WITHIN_S`); until then the
broker compacts nothing. A partition that has never been written is in neither.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from tidelog.broker.internal import InternalTopic, TopicFold
from tidelog.broker.topics import TOPICS_TOPIC, Topics, apply, fresh, to_records
from tidelog.errors import BackupError, DataFolderError
from tidelog.log.clean_mark import NO_POSITION, CleanMark
from tidelog.log.commit import Committer
from tidelog.log.ends import End, read_ends
from tidelog.log.files import Files, read_file, remove_files, replace_file
from tidelog.log.folder import FORMAT, LOCK, DataFolder
from tidelog.log.log import Log
from tidelog.log.names import partition_name
from tidelog.log.seal import sealed_json, unsealed_json
from tidelog.log.settings import LogSettings

VERSION = 1
WANTED, GIVEN = "cut.wanted", "cut"
PATIENCE_S = 60.0
HOLD_WITHIN_S = 60.0
LOOK_EVERY_S = 0.02
SERVED_EVERY_S = 1.0  # to look takes the lock for a moment: not so often that it is in the way of a start


class Cut(NamedTuple):
    at_ms: int
    topics: dict[str, str]  # names by id, in hex
    marks: dict[str, CleanMark]  # by the name of the partition's folder


def pack(word: str, cut: Cut) -> bytes:
    content = {"v": VERSION, "word": word, "at_ms": cut.at_ms, "topics": cut.topics, "partitions": cut.marks}
    return sealed_json(content)


def pack_error(word: str, error: str) -> bytes:
    return sealed_json({"v": VERSION, "word": word, "error": error})


def unpack(content: bytes, word: str) -> Cut | None:
    """None when it was given to somebody else, or is not whole."""
    found = unsealed_json(content)
    if not isinstance(found, dict) or found.get("word") != word:
        return None
    if found["v"] > VERSION:
        raise BackupError(f"the broker gives cuts of version {found['v']}, newer than {VERSION}; use its own Tidelog")
    if "error" in found:
        raise BackupError(f"the broker could not say where its partitions end: {found['error']}; try again")
    marks = {name: CleanMark(*mark) for name, mark in found["partitions"].items()}
    return Cut(found["at_ms"], found["topics"], marks)


def server_of(data: str) -> str | None:
    """The process that serves the folder; None when there is none."""
    try:
        lock = os.open(f"{data}/{LOCK}", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
    finally:
        os.close(lock)
    return None


@contextmanager
def asked(data: str, files: Files, patience_s: float = PATIENCE_S) -> Iterator[Cut]:
    """Of the broker that serves the folder. Only who may write there can ask. Compaction rests until the end of it."""
    word = os.urandom(16).hex()
    replace_file(files, f"{data}/{WANTED}", word.encode(), durable=False)
    try:
        yield _wait(data, files, word, patience_s)
    finally:
        remove_files(files, [f"{data}/{WANTED}", f"{data}/{GIVEN}"])


def _wait(data: str, files: Files, word: str, patience_s: float) -> Cut:
    deadline, looked = time.monotonic() + patience_s, 0.0
    while (now := time.monotonic()) < deadline:
        content = read_file(files, f"{data}/{GIVEN}")
        found = unpack(content, word) if content is not None else None
        if found is not None:
            return found
        if now - looked > SERVED_EVERY_S:
            looked = now
            if server_of(data) is None:
                raise BackupError(f"the broker of {data} stopped meanwhile; try again")
        time.sleep(LOOK_EVERY_S)
    raise BackupError(
        f"process {server_of(data)} serves {data} and did not say within {patience_s:g} s where its partitions end;"
        " is it an older Tidelog, or is its disk stuck?"
    )


class StoppedFolder:
    """The folder of a broker that does not run, locked against one that starts: `with StoppedFolder(...) as cut`."""

    def __init__(self, data: str, files: Files) -> None:
        self._data = data
        self._files = files
        self._folder = DataFolder(data, files)
        self._committer = Committer(files, lambda: None, threads=False)

    def __enter__(self) -> Cut:
        self._folder.open()
        try:
            marks = self._folder.read_marks()
            if not marks or None in marks.values():
                marks = self._recover()
            names = {topic.topic_id.hex(): topic.name for topic in self._topics(marks).by_name.values()}
        except BaseException:
            self._folder.close()
            raise
        left = {
            name: mark
            for name, mark in marks.items()
            if mark is not None and mark.position != NO_POSITION and name.partition("-")[0] in names
        }
        return Cut(time.time_ns() // 1_000_000, names, left)

    def __exit__(self, *_: object) -> None:
        self._folder.close()

    def _recover(self) -> dict[str, CleanMark | None]:
        """As the next start would, after a stop that was not clean."""
        marks: dict[str, CleanMark | None] = {}
        ends = read_ends(self._files, self._data).table
        for topic_id, index in self._folder.partitions():
            name = partition_name(topic_id, index)
            marks[name] = self._open(topic_id, index, None, ends.get(name)).mark()
        return marks

    def _open(self, topic_id: bytes, index: int, mark: CleanMark | None, end: End | None = None) -> Log:
        path = self._folder.partition(topic_id, index)
        log = Log.open(path, self._files, LogSettings(), self._committer, clean=mark, end=end)
        self._committer.settle()
        return log

    def _topics(self, marks: Mapping[str, CleanMark | None]) -> Topics:
        told = InternalTopic(TOPICS_TOPIC.name, TopicFold(fresh, apply, to_records), lambda _error: None)
        topic_id = TOPICS_TOPIC.topic_id
        told.recover(self._open(topic_id, 0, marks.get(partition_name(topic_id, 0))), self._data, self._files)
        state: Topics = told.state
        return state


def check_folder(data: str, files: Files) -> None:
    if read_file(files, f"{data}/{FORMAT}") is None:
        raise DataFolderError(f"{data} is not a broker's data folder; name one with --data")
