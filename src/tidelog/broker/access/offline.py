"""Changing users in the folder of a broker that does not run: how the first one comes into being.

The folder is opened as a broker opens it, with its lock and its recovery, and left clean; only no socket is bound.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tidelog.broker.access.state import AccessState
from tidelog.broker.broker import Broker
from tidelog.broker.decision import Decision, NewRecord
from tidelog.broker.loop import Loop
from tidelog.broker.settings.configuring import load_broker_config
from tidelog.broker.topics import ACCESS_TOPIC
from tidelog.errors import StorageError
from tidelog.log.files import RealFiles
from tidelog.logger import Logger


class _Written:
    """Stands for a request: it is answered when the records are synced."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.dropped = False

    def reply(self, _response: object) -> None:
        self._loop.stop()

    def drop(self) -> None:
        self.dropped = True
        self._loop.stop()


def change(data: Path, decide: Callable[[AccessState], list[NewRecord]]) -> None:
    """Writes the records that `decide` makes of the present state, and returns when they are on disk."""
    faults: list[BaseException] = []
    loop = Loop(faults.append)
    config = load_broker_config({"log.dirs": str(data), "tidelog.log.level": "WARNING"})

    def failed(error: BaseException) -> None:
        faults.append(error)
        loop.stop()

    broker = Broker(
        config,
        loop,
        Logger.from_config(config),
        lambda: loop.call_soon_threadsafe(broker.drain),
        failed,
        RealFiles(),
    )
    broker.start()
    try:
        written = _Written(loop)
        broker.commit(ACCESS_TOPIC.name, Decision(decide(broker.access.state), [(written, None)]))
        loop.run()
        loop.finish_work()
    finally:
        clean = broker.stop(clean=not faults)
        loop.close()
    if faults:
        raise faults[0]
    if written.dropped or not clean:
        raise StorageError(f"the change could not be written to {data}; see what the disk says")
