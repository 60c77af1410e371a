"""A real Apache Kafka, one node in KRaft mode, from jars alone: what every test of ours must pass on before it may
judge Tidelog.

The jars lie in the folder that TIDELOG_KAFKA_LIB names, else in `.make/kafka/lib` of the repository, which `make kafka`
fills from `java/pom.xml`. Each instance has private ports and a private folder; it keeps both over `restart()`; it dies
with its parent. `server.log` in its folder has what it said.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from crash.port import free_port

REPOSITORY = Path(__file__).resolve().parents[2]
CLUSTER_ID = "TidelogPeerKafkaNode0A"
QUICK_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
DISTRIBUTION_JVM = ("-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
START_SECONDS = 180.0
STOP_SECONDS = 120.0
PR_SET_PDEATHSIG = 1

SINGLE_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL,"
    "SASL_PLAINTEXT:SASL_PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # Tests write records that are years old; looked at now and then, they would be deleted from under a test.
    "log.initial.task.delay.ms": "86400000",
    "log.retention.check.interval.ms": "86400000",
}


class Missing(Exception):
    """Something that is installed by Debian's packages or by Maven is not here; the message says how to get it."""


def kafka_jars() -> Path:
    folder = Path(os.environ.get("TIDELOG_KAFKA_LIB") or REPOSITORY / ".make" / "kafka" / "lib")
    if not any(folder.glob("kafka_2.13-*.jar")):
        raise Missing(f"no Apache Kafka jars in {folder}; run `make kafka` (Maven), or set TIDELOG_KAFKA_LIB")
    if shutil.which("java") is None:
        raise Missing("no java on the path; install Java 17 or later (Debian: default-jre-headless)")
    return folder


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def is_serving(port: int) -> bool:
    """Whether a broker on this port answers Metadata v0 and names itself in it."""
    request = struct.pack(">hhihi", 3, 0, 1, -1, 0)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = connection.recv(12, socket.MSG_WAITALL)
    except OSError:
        return False
    return len(answer) == 12 and struct.unpack(">iii", answer)[2] > 0


class ApacheKafka:
    """`settings` override the single-node ones; `jvm` are the flags of its Java machine."""

    name = "apache_kafka"

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        *,
        jvm: tuple[str, ...] = QUICK_JVM,
        further_listeners: str = "",
    ) -> None:
        """`further_listeners`, as NAME://HOST:PORT,..., are bound beside the plain one."""
        self.folder = folder
        self.port = free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.further_listeners = further_listeners
        self.jvm = jvm
        self.jars = kafka_jars()
        self.process: subprocess.Popen[bytes] | None = None
        self._write_properties(dict(settings or {}))
        self._format()

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self, *, wait: bool = True) -> ApacheKafka:
        with (self.folder / "server.log").open("ab") as said:
            self.process = subprocess.Popen(
                self._java(*self.jvm, "kafka.Kafka", str(self.folder / "server.properties")),
                stdout=said,
                stderr=said,
                stdin=subprocess.DEVNULL,
                preexec_fn=die_with_parent,
            )
        if wait:
            self._await_answer()
        return self

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self.stop()
        self.start()

    def said(self) -> str:
        return (self.folder / "server.log").read_text(errors="replace")

    def _write_properties(self, settings: dict[str, str]) -> None:
        controller = free_port()
        self.folder.mkdir(parents=True, exist_ok=True)
        plain, quorum = f"PLAINTEXT://127.0.0.1:{self.port}", f"CONTROLLER://127.0.0.1:{controller}"
        listeners = (plain, self.further_listeners, quorum)
        own = {
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": ",".join(filter(None, listeners)),
            "log.dirs": str(self.folder / "data"),
        }
        lines = [f"{key}={value}" for key, value in {**SINGLE_NODE, **own, **settings}.items()]
        (self.folder / "server.properties").write_text("\n".join(lines) + "\n")

    def _format(self) -> None:
        properties = str(self.folder / "server.properties")
        made = subprocess.run(
            self._java(*QUICK_JVM, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", properties),
            capture_output=True,
            text=True,
        )
        assert made.returncode == 0, made.stdout + made.stderr

    def _java(self, *arguments: str) -> list[str]:
        return ["java", "-cp", f"{self.jars}/*", *arguments]

    def _await_answer(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + START_SECONDS
        while not is_serving(self.port):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Apache Kafka did not start:\n{self.said()[-4000:]}")
            time.sleep(0.05)

    def _end(self, how: int) -> None:
        if self.process is None:
            return
        self.process.send_signal(how)
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None
