"""A real broker without sockets: requests go through the wire's codec in their version, and so do the replies.

Blocking work is done at once, timers never ring, and a request waits until the committer has made its reply true.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from io import StringIO
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

from tidelog.broker.broker import Broker
from tidelog.broker.dispatch import APIS
from tidelog.broker.settings.configuring import load_broker_config
from tidelog.errors import StorageError
from tidelog.log.files import Files, RealFiles
from tidelog.logger import Logger
from tidelog.record.codec import check
from tidelog.record.columns import encode as encode_batch
from tidelog.wire.api import request_class, response_class
from tidelog.wire.codec import decode, encode
from tidelog.wire.message import Struct

LISTENER = ("broker.example", 9092)
PATIENCE_S = 180.0

R = TypeVar("R", bound=Struct)


class Never:
    def cancel(self) -> None:
        pass


class AtOnce:
    """A scheduler for one thread."""

    def call_later(self, delay_s: float, action: Callable[[], None]) -> Never:
        return Never()

    def in_thread(self, work: Callable[[], object], done: Callable[[object, BaseException | None], None]) -> None:
        try:
            result = work()
        except Exception as error:
            done(None, error)
        else:
            done(result, None)


class Request:
    """What a handler is told about a request, and where it answers."""

    client_id = "test"
    peer_host = "127.0.0.1"
    user = None
    listener = LISTENER

    def __init__(self, api_key: int, version: int) -> None:
        self.api_key = api_key
        self.version = version
        self.answer: Any = None
        self.done = False
        self.may_be_dropped = False

    @property
    def ticket(self) -> Request:
        return self

    def reply(self, response: Any) -> None:
        assert not self.done, "a request was answered twice"
        self.answer, self.done = response, True

    def drop(self) -> None:
        assert self.may_be_dropped, "the connection was dropped"
        self.done = True

    def fault(self, error: Exception) -> None:
        raise error


class Served:
    def __init__(self, folder: Path, settings: dict[str, Any], files: Files | None = None) -> None:
        self._ready = Event()
        self.log_lines = StringIO()
        config = load_broker_config({"log.dirs": str(folder), **settings})
        self.broker = Broker(
            config,
            scheduler=AtOnce(),
            logger=Logger(self.log_lines),
            commit_ready=self._ready.set,
            on_fatal=self._fatal,
            files=files or RealFiles(),
        )
        self.broker.start()

    def _fatal(self, error: StorageError) -> None:
        raise AssertionError("the broker gave up") from error

    def ask(self, request: Struct, version: int) -> Any:
        """The reply, as a client that speaks this version would read it."""
        call = self.begin(request, version)
        self.wait_for(call)
        reply = b"".join(bytes(chunk) for chunk in encode(call.answer, version))
        return decode(response_class(call.api_key), version, reply)[0]

    def begin(self, request: Struct, version: int) -> Request:
        """Hands the request over; what the committer has done since is not looked at."""
        cls = type(request)
        api_key = cls.SCHEMA.api_key
        assert cls is request_class(api_key)
        wire = b"".join(bytes(chunk) for chunk in encode(request, version))  # type: ignore[arg-type]
        call = Request(api_key, version)
        handler = import_module(f"tidelog.broker.handlers.{APIS[api_key].name}")
        answer = handler.handle(self.broker, decode(cls, version, wire)[0], call)
        if answer is not None:
            call.reply(answer)
        return call

    def wait_for(self, call: Request) -> None:
        while not call.done:
            self.turn()

    def produce(self, topic: str, partition: int, *values: bytes, producer_id: int = -1, sequence: int = -1) -> None:
        """Appends one batch and waits until it is synced."""
        found = self.broker.partition(topic, partition)
        assert found is not None
        rows = [(None, value, (), 1_700_000_000_000) for value in values]
        batch = encode_batch(
            rows, producer_id=producer_id, producer_epoch=0 if producer_id >= 0 else -1, base_sequence=sequence
        )
        appended = found.log.append(memoryview(batch), check(batch), self.broker.now().wall_ms)
        while found.log.high_watermark <= appended.last_offset:
            self.turn()

    def turn(self) -> None:
        """Waits until the committer has something to tell, and lets it."""
        assert self._ready.wait(PATIENCE_S), "the committer has nothing to tell"
        self._ready.clear()
        self.broker.drain()


@contextmanager
def serving(folder: Path, files: Files | None = None, **settings: Any) -> Iterator[Served]:
    served = Served(folder, settings, files)
    try:
        yield served
    finally:
        served.broker.stop()


@contextmanager
def after_a_crash(served: Served, folder: Path) -> Iterator[Served]:
    """A broker on the data as it is on disk at this moment, as if the first one had been killed."""
    copy_of(Path(served.broker.config.texts("log.dirs")[0]), folder)
    with serving(folder) as again:
        yield again


def copy_of(running: Path, folder: Path) -> None:
    """Taken anew when a file was renamed under it: a disk has a file under its old name or its new one, never none."""
    for _ in range(100):
        try:
            shutil.copytree(running, folder)
            return
        except shutil.Error:
            shutil.rmtree(folder)
    raise AssertionError(f"files of {running} are renamed faster than they can be copied")


def versions(api_key: int) -> range:
    """Every version that the broker takes of this API."""
    return range(APIS[api_key].min_version, APIS[api_key].max_version + 1)
