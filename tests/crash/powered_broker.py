"""A whole broker in a thread, on a simulated disk whose power can go at any operation; it comes back on what is left.

    off        the constructor, or `crash`, or a start that the power cut ended
    running    `start` returned True: clients reach it, always at the same port
    stopped    `stop`: everything is on the disk, and the next start is on the same folder

What the broker says in its log is kept in `lines`, for the test that fails.
"""

from __future__ import annotations

import io
import random
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from crash.port import free_port
from tidelog.broker.server import Server
from tidelog.broker.settings.configuring import load_broker_config
from tidelog.errors import StorageError
from tidelog.logger import Logger
from tidelog.testing.disk import SimulatedDisk

END_WITHIN_S = 180.0
LOOK_S = 0.005
LINES_SHOWN = 4000


class PoweredBroker:
    def __init__(self, folder: Path, settings: dict[str, object]) -> None:
        self.port = free_port()
        self.lines = io.StringIO()
        self.lives = 0
        self.disk = SimulatedDisk(folder / "life0")
        self.server: Server | None = None
        self.failed: BaseException | None = None
        self.left_clean = False
        self._folder = folder
        self._settings = settings
        self._thread: threading.Thread | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        return self.disk.folder / "data"

    def start(self) -> bool:
        """False when the power went before it was ready."""
        where = {"listeners": self.bootstrap, "log.dirs": str(self.data)}
        config = load_broker_config({**self._settings, **where})
        server = Server(config, Logger(self.lines), self.disk)
        try:
            server.start()
        except (OSError, StorageError):
            if not self.disk.is_off:
                raise
            return False
        self.server = server
        self.failed = None
        self.left_clean = False
        self._thread = threading.Thread(target=self._run, args=(server,), daemon=True)
        self._thread.start()
        return True

    def _run(self, server: Server) -> None:
        try:
            self.left_clean = server.run()
        except BaseException as error:
            self.failed = error
        self.failed = self.failed or server.failed

    def live(self, seconds: float) -> None:
        """Until the power goes, by the disk's own plan or when the time is over."""
        deadline = time.monotonic() + seconds
        while not self.disk.is_off and time.monotonic() < deadline and self.running:
            time.sleep(LOOK_S)
        assert self.disk.is_off or self.running, self.failed
        self.disk.cut_power()

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def crash(self, rng: random.Random) -> None:
        """The power is gone: the broker's memory too, and the disk is one of those that could be left."""
        self.disk.cut_power()
        self.end()
        self.lives += 1
        seed = rng.randrange(1 << 30)
        image = self.disk.crash(self._folder / f"life{self.lives}", seed)
        shutil.rmtree(self.disk.folder)
        self.disk = SimulatedDisk(image, seed=seed)

    def other_ends(self, rng: random.Random, count: int) -> Iterator[PoweredBroker]:
        """The power is gone; some of those that could come back, each at a port of its own and without clients."""
        self.disk.cut_power()
        self.end()
        for _ in range(count):
            other = PoweredBroker(self._folder / "other", self._settings)
            shutil.rmtree(other.disk.folder)
            other.disk = SimulatedDisk(self.disk.crash(other.disk.folder, rng.randrange(1 << 30)))
            assert other.start()
            try:
                yield other
            finally:
                self.lines.write(other.said())
                other.end()
                shutil.rmtree(other.disk.folder)

    def stop(self) -> None:
        """A clean end."""
        self.end()
        assert self.failed is None, self.failed
        assert self.left_clean, self.said()

    def join(self) -> None:
        """Until it has ended by itself."""
        assert self._thread is not None
        self._thread.join(END_WITHIN_S)
        assert not self._thread.is_alive(), "the broker does not end"

    def said(self) -> str:
        """The end of its log."""
        return self.lines.getvalue()[-LINES_SHOWN:]

    def end(self) -> None:
        """An end, clean or not; the disk stays as it is."""
        if self.server is not None and self._thread is not None:
            self.server.stop_soon()
            self.join()
        self.server = self._thread = None
