"""One Java machine for all tests of Java programs: `java/*.java` compiled once, then main classes run in it, one turn
at a time.

What the programs log (warnings and worse) is in `java.log` of the folder.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from against.apache_kafka import QUICK_JVM, Missing, die_with_parent, kafka_jars

SOURCES = Path(__file__).with_name("java")


class Turn(NamedTuple):
    status: int
    out: str
    err: str

    def lines(self) -> list[str]:
        return self.out.splitlines()

    def json(self) -> Any:
        """The one JSON object that the program wrote; its failure otherwise."""
        assert self.status == 0, self.err
        return json.loads(self.out)


class JavaMachine:
    def __init__(self, folder: Path) -> None:
        if shutil.which("javac") is None:
            raise Missing("no javac on the path; install a JDK 17 or later (Debian: default-jdk-headless)")
        jars = kafka_jars()
        if not any(jars.glob("kafka-streams-*.jar")):
            raise Missing(f"no Kafka Streams in {jars}; run `make kafka` (Maven) anew")
        sources = [str(source) for source in sorted(SOURCES.glob("*.java"))]
        compiled = subprocess.run(
            ["javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(folder), *sources], capture_output=True, text=True
        )
        assert compiled.returncode == 0, compiled.stderr
        self.log = (folder / "java.log").open("wb")
        self.command = ["java", *QUICK_JVM, "-Dorg.apache.logging.log4j.level=WARN", "-cp", f"{folder}:{jars}/*"]
        self.process = subprocess.Popen(
            [*self.command, "Runner"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            preexec_fn=die_with_parent,
        )

    def run(self, main: str, *arguments: str, says: str = "") -> Turn:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        order = {"main": main, "arguments": list(arguments), "stdin": says}
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, "the Java machine ended; see java.log"
        return Turn(**json.loads(answer))

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(180)
        self.log.close()


def run_alone(main: str, *arguments: str) -> Turn:
    """The same in a Java machine of its own, for a tool that does its last work as that ends."""
    command = ["java", *QUICK_JVM, "-cp", f"{kafka_jars()}/*", main, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return Turn(done.returncode, done.stdout, done.stderr)
