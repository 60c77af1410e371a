"""A broker inside a Python program: `with tidelog.Broker() as broker: ...`.

By default it runs in a child process of its own, so that it shares neither the interpreter lock nor a crash with
the program, and ends when the program ends, however it ends. `in_process=True` runs it in a thread instead: quicker
to start by the time of an interpreter's start, and slower under load.

    new       the constructor; nothing runs
    running   `start` (or `with`) returned: produce works
    stopped   `stop`, `kill`, or the end of `with`; `start` runs it again on the same data
"""

from __future__ import annotations

import subprocess
import sys
import weakref
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tidelog import process
from tidelog.errors import TidelogError, UsageError

if TYPE_CHECKING:
    from threading import Thread

    from tidelog.broker.server import Server

STOP_WITHIN_S = 15.0


class Broker:
    """A broker of one's own.

    `data` is the folder to keep the log in; without it, a temporary folder that is removed at the end. `listen` is
    HOST:PORT or NAME://HOST:PORT, or several with commas between; port 0 for a free one.
    `settings` are broker settings by Kafka's names, such as {"num.partitions": 4}.
    """

    def __init__(
        self,
        data: str | Path | None = None,
        *,
        listen: str = "127.0.0.1:0",
        settings: Mapping[str, object] | None = None,
        in_process: bool = False,
    ) -> None:
        self._temporary: Any = None
        self._data = Path(data) if data is not None else None
        self._listen = listen
        # A program's own output should not begin with a broker's; what needs attention is still said. HTTP by request.
        self._settings = {"tidelog.log.level": "WARNING", "tidelog.http.listener": "-", **(settings or {})}
        self._in_process = in_process
        self._child: subprocess.Popen[bytes] | None = None
        self._thread: Thread | None = None
        self._server: Server | None = None
        self._address: tuple[str, int] | None = None
        self._http: tuple[str, int] | None = None

    @property
    def bootstrap(self) -> str:
        """What a Kafka client takes as `bootstrap.servers`."""
        if self._address is None:
            raise UsageError("the broker is not running; use it in a with statement or call start()")
        host, port = self._address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def http(self) -> str:
        """The address of its HTTP server, as http://HOST:PORT."""
        if self._http is None:
            asked = 'settings={"tidelog.http.listener": "127.0.0.1:0"}'
            raise UsageError(f"the broker has no HTTP server; give it {asked} and start it")
        host, port = self._http
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @property
    def data(self) -> Path:
        if self._data is None:
            from tempfile import TemporaryDirectory

            self._temporary = TemporaryDirectory(prefix="tidelog-")
            self._data = Path(self._temporary.name)
        return self._data

    @property
    def pid(self) -> int | None:
        """Of the child process; None when the broker runs in this one."""
        return self._child.pid if self._child is not None else None

    def start(self) -> Broker:
        """Returns when produce works."""
        if self._address is not None:
            raise UsageError(f"the broker is running already, on {self.bootstrap}")
        settings = {**self._settings, "listeners": self._listen, "log.dirs": str(self.data)}
        self._address = self._start_thread(settings) if self._in_process else self._start_child(settings)
        return self

    def stop(self) -> None:
        """Ends it cleanly: everything is synced and the next start has nothing to recover."""
        self._address = self._http = None
        if self._server is not None and self._thread is not None:
            self._server.stop_soon()
            self._thread.join(STOP_WITHIN_S)
            self._server = self._thread = None
        if self._child is not None:
            child, self._child = self._child, None
            process.end(child, STOP_WITHIN_S)
            if child.stdout is not None:
                child.stdout.close()

    def kill(self) -> None:
        """Ends it as a crash would (SIGKILL), to see what one's program does then."""
        if self._child is None:
            raise UsageError(
                "only a broker in a child process can be killed; this one runs in_process or is not running"
            )
        self._child.kill()
        self.stop()

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = self._data = None

    def _start_child(self, settings: dict[str, object]) -> tuple[str, int]:
        from json import dumps, loads

        told = dumps({"settings": settings}, default=str) + "\n"
        words = [sys.executable, "-m", "tidelog.broker.child"]
        self._child = process.start(words, told=told.encode(), stdout=subprocess.PIPE)
        assert self._child.stdout is not None
        # A program that ends without stop() still waits for the child: its temporary folder is removed only then.
        weakref.finalize(self, process.end, self._child, STOP_WITHIN_S)
        line = self._child.stdout.readline()
        answer: dict[str, Any] = (
            loads(line)
            if line
            else {"error": f"the broker's process ended with {self._child.wait()}; its log lines say why"}
        )
        if "error" in answer:
            self.stop()
            raise TidelogError(answer["error"])
        if answer.get("http"):
            self._http = answer["http"][0][0], answer["http"][0][1]
        return self._keep_ports([(host, port) for host, port in answer["ready"]])

    def _start_thread(self, settings: dict[str, object]) -> tuple[str, int]:
        from threading import Thread

        from tidelog.broker.server import Server
        from tidelog.broker.settings.configuring import load_broker_config
        from tidelog.logger import Logger

        config = load_broker_config(settings)
        server = Server(config, Logger.from_config(config), http=True)
        server.start()
        if server.http is not None and server.http.addresses:
            self._http = server.http.addresses[0]
        self._server = server
        self._thread = Thread(target=server.run, name="tidelog-broker", daemon=True)
        self._thread.start()
        return self._keep_ports(server.addresses)

    def _keep_ports(self, bound: list[tuple[str, int]]) -> tuple[str, int]:
        """A restart keeps the ports, so that clients find the broker again, and what is spoken there."""
        from tidelog.config import address

        left = list(bound)
        kept = []
        for text in self._listen.split(","):
            name, host, _ = address(text.strip())
            _, port = left.pop(0)
            if left and left[0] == ("::1", port) and host != "::1":
                left.pop(0)
            kept.append(f"{name}://[{host}]:{port}" if ":" in host else f"{name}://{host}:{port}")
        self._listen = ",".join(kept)
        return bound[0]
