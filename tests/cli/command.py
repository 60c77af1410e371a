"""The command as users run it: a process of its own, with its words, its standard input and its exit code."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from typing import Any, NamedTuple

SECONDS = 300
REACHING = (
    "acls",
    "ask",
    "configs",
    "dead",
    "erase",
    "excise",
    "groups",
    "produce",
    "quotas",
    "reset",
    "sql",
    "status",
    "tail",
    "topics",
    "transactions",
    "users",
    "views",
    "wait",
)
PATIENCE = ("--timeout", "120")  # a broker on a machine that stands still for a while is no broker that does not answer


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Command:
    """`command("topics", "--json")` runs `tidelog topics --json` against one broker."""

    def __init__(self, bootstrap: str) -> None:
        unset = ("NO_COLOR", "TIDELOG_DEBUG", "PYTHONPATH")
        self.environment = {key: value for key, value in os.environ.items() if key not in unset}
        self.environment["TIDELOG_BOOTSTRAP"] = bootstrap

    def __call__(self, *words: str, stdin: str | bytes = b"", **environment: str) -> Ran:
        given = stdin.encode() if isinstance(stdin, str) else stdin
        ran = subprocess.run(
            self.line(*words),
            input=given,
            capture_output=True,
            env={**self.environment, **environment},
            timeout=SECONDS,
        )
        return Ran(ran.returncode, ran.stdout.decode(errors="surrogateescape"), ran.stderr.decode())

    def ok(self, *words: str, stdin: str | bytes = b"") -> Ran:
        ran = self(*words, stdin=stdin)
        assert ran.code == 0, ran
        return ran

    def start(self, *words: str, **settings: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self.line(*words), env=self.environment, **settings)

    @staticmethod
    def line(*words: str) -> list[str]:
        patience = PATIENCE if words and words[0] in REACHING and "--timeout" not in words else ()
        return [sys.executable, "-m", "tidelog", *words[:1], *patience, *words[1:]]


def on_a_terminal(command: Command, *words: str, **environment: str) -> str:
    """What a command prints when its standard output is a terminal."""
    ours, theirs = pty.openpty()
    settings = {**command.environment, "TERM": "xterm", **environment}
    with subprocess.Popen(command.line(*words), stdout=theirs, stderr=theirs, env=settings):
        os.close(theirs)
        said = b""
        while True:
            try:
                chunk = os.read(ours, 4096)
            except OSError:
                break
            if not chunk:
                break
            said += chunk
    os.close(ours)
    return said.decode()
