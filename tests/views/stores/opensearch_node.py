"""A real OpenSearch, one node from jars alone, on free ports of loopback.

The jars lie in the folder that TIDELOG_OPENSEARCH_LIB names, else in `.make/opensearch/lib` of the repository, which
`make opensearch` fills from `opensearch/pom.xml`. It refuses to run as root, so there it is `nobody`. It keeps its
folder and its ports over `kill` and `start`, and dies with its parent. `node.log` has what it said.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

from against.apache_kafka import REPOSITORY, Missing, die_with_parent
from crash.port import free_port
from run_servers import Facts, share

LAUNCHER = Path(__file__).parent / "opensearch" / "SearchNode.java"
START_SECONDS = 180.0
HEAP = "512m"
NOBODY = 65534
LOGGING = """
rootLogger.level=warn
rootLogger.appenderRef.console.ref=console
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %-5p %c{1.} %m%n
"""


def opensearch_jars() -> Path:
    folder = Path(os.environ.get("TIDELOG_OPENSEARCH_LIB") or REPOSITORY / ".make" / "opensearch" / "lib")
    if not any(folder.glob("opensearch-2*.jar")):
        raise Missing(f"no OpenSearch jars in {folder}; run `make opensearch` (Maven), or set TIDELOG_OPENSEARCH_LIB")
    if shutil.which("javac") is None:
        raise Missing("no javac on the path; install a JDK 17 or later (Debian: default-jdk-headless)")
    return folder


class OpenSearchPlace:
    """Where a node is: all that a test needs that does not end it."""

    def __init__(self, port: int) -> None:
        self.port = port

    @property
    def url(self) -> str:
        return f"opensearch+http://127.0.0.1:{self.port}/"

    def answers(self) -> bool:
        health = f"http://127.0.0.1:{self.port}/_cluster/health?wait_for_status=yellow&timeout=10s"
        try:
            with urllib.request.urlopen(health, timeout=15) as answer:
                return answer.status == 200
        except OSError:
            return False

    def delete(self, prefix: str) -> None:
        """All indexes of that prefix: a node has room for a thousand."""
        asked = urllib.request.Request(f"http://127.0.0.1:{self.port}/{prefix}*", method="DELETE")
        with urllib.request.urlopen(asked, timeout=60):
            pass


def shared_node() -> OpenSearchPlace:
    """The node of the run, for all of its processes (`run_servers.py`)."""
    opensearch_jars()
    facts = share("opensearch", f"{__name__}:start", lambda found: OpenSearchPlace(found["port"]).answers())
    return OpenSearchPlace(facts["port"])


def start(folder: Path) -> OpenSearchNode:
    return OpenSearchNode(folder).start()


class OpenSearchNode(OpenSearchPlace):
    """`folder` must be one that others may enter, since root's node runs as nobody."""

    def __init__(self, folder: Path) -> None:
        self.jars = opensearch_jars()
        self.folder = folder
        super().__init__(free_port())
        self._transport = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        (folder / "config").mkdir(parents=True, exist_ok=True)
        (folder / "config" / "log4j2.properties").write_text(LOGGING)
        subprocess.run(
            ["javac", "-nowarn", "-cp", f"{self.jars}/*", "-d", str(folder / "classes"), str(LAUNCHER)],
            check=True,
            capture_output=True,
        )
        # Root's jars may lie where nobody cannot look.
        (folder / "lib").mkdir(exist_ok=True)
        for jar in self.jars.glob("*.jar"):
            shutil.copy(jar, folder / "lib")
        if os.geteuid() == 0:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, NOBODY, NOBODY)

    def facts(self) -> Facts:
        return {"port": self.port}

    def start(self) -> OpenSearchNode:
        words = ["java", f"-Xms{HEAP}", f"-Xmx{HEAP}", "-XX:+UseSerialGC", "-Dlog4j2.disable.jmx=true"]
        words += ["-cp", f"{self.folder}/classes:{self.folder}/lib/*", "SearchNode", str(self.folder)]
        as_nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        with (self.folder / "node.log").open("ab") as said:
            self.process = subprocess.Popen(
                [*words, str(self.port), str(self._transport)],
                stdout=said,
                stderr=said,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                preexec_fn=die_with_parent,
                **as_nobody,  # type: ignore[call-overload]
            )
        deadline = time.monotonic() + START_SECONDS
        while not self.answers():
            assert self.process.poll() is None and time.monotonic() < deadline, self.said()[-4000:]
            time.sleep(0.1)
        return self

    def said(self) -> str:
        return (self.folder / "node.log").read_text(errors="replace")

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: int) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(120)
            self.process = None
