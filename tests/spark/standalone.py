"""A Spark cluster on this machine whose workers are on hosts of their own: 127.0.0.2 and so on are all this machine.

Spark takes them for several, and it starts a speculative twin on another host only.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pyspark

from crash.port import free_port

HOME = Path(pyspark.__file__).parent
LAUNCHER = HOME / "bin" / "spark-class"
MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
HOSTS = ("127.0.0.2", "127.0.0.3")
NOT_THEIRS = ("SPARK_LOCAL_IP",)  # a worker is where it is told to be


class StandaloneCluster:
    """A core and an executor a host. `environment` is that of the executors' Python workers too."""

    def __init__(self, folder: Path, environment: dict[str, str], hosts: Sequence[str] = HOSTS) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._environment = {
            **{name: value for name, value in environment.items() if name not in NOT_THEIRS},
            "SPARK_HOME": str(HOME),
            "SPARK_DAEMON_MEMORY": "256m",
        }
        port = free_port()
        self.master = f"spark://127.0.0.1:{port}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._start("master", MASTER, "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        for host in hosts:
            given = ["--host", host, "--cores", "1", "--memory", "700m", "--webui-port", "0"]
            self._start(host, WORKER, *given, "--work-dir", str(folder / f"work-{host}"), self.master)

    def _start(self, name: str, *command: str) -> None:
        with (self._folder / f"{name}.log").open("a") as log:
            started = subprocess.Popen([LAUNCHER, *command], env=self._environment, stdout=log, stderr=log)
        self._processes.append(started)

    def kill(self) -> None:
        for process in self._processes:
            for one in reversed(psutil.Process(process.pid).children(recursive=True)):
                with suppress(psutil.NoSuchProcess):  # the daemon's workers end with it
                    one.kill()
            process.kill()
            process.wait()
