"""`tidelog COMMAND ...`: finds the command's module, runs it, and turns every end of it into an exit code.

Exit codes: 0 done; 1 the thing failed; 2 the command was written wrongly; 3 no broker could be reached; 130
interrupted. A command is a module here with `run(arguments) -> int`, and, unless it is `up`, nothing of it is loaded
for another command. An error is one line on stderr; TIDELOG_DEBUG=1 shows where it came from.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper

OK, FAILED, USAGE, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 130

COMMANDS = {
    "up": "start a broker",
    "topics": "list, create, delete, alter, describe and truncate topics",
    "queues": "list and describe share groups: left, in flight, redelivered, delayed, dead",
    "dead": "list, show and replay dead letters of queues, captures and apps",
    "work": "call a function for each job of a queue, with retries and dead letters",
    "groups": "list, describe and delete consumer groups, with their lag",
    "reset": "move a group's offsets to an offset, a time, the start or the end",
    "transactions": "list, describe and abort transactions, also hanging ones",
    "tail": "show the records of a topic",
    "sql": "ask in SQL over topics and views",
    "produce": "write records from standard input to a topic",
    "capture": "turn the changes of a database into topics",
    "store": "run an event store: decide commands, write events",
    "events": "check the histories of an event store",
    "views": "list views, read their rows as they are and as they were",
    "wait": "wait until a view has what was written, or all up to a time",
    "apply": "keep a view in a store",
    "erase": "destroy the key of a person, so that his fields in event stores are unreadable",
    "excise": "take single records out of every file of a broker, and see what was taken out",
    "configs": "show and change the settings of topics, brokers and groups",
    "users": "who may log in, and by which password",
    "acls": "who may do what",
    "quotas": "how much users and client ids may use",
    "demo": "a shop whose events flow through Spark into views, and a live page of it",
    "run": "run an app: its queries on Spark and the appliers of its views",
    "rebuild": "rebuild a view from the log, beside the old one, and switch to it",
    "plan": "show what an app would run, as text or as a graph",
    "access": "the access rules of an app: for who runs it, and for who reads what it makes",
    "ask": "ask a running pipeline, or a view, what it has of a key",
    "status": "show how queries, appliers and all other parts are",
    "pause": "let a part rest until it is resumed",
    "resume": "let a part go on that is paused, stopped or has failed",
    "stop": "end a part; its run goes on",
    "pass": "leave a record out of a view or a derived topic, as a dead letter",
    "debug": "run one micro-batch of a query again, under a debugger or as a test",
    "state": "what a pipeline's operators keep, from its checkpoint",
    "gateway": "serve HTTP beside a broker: health, metrics, and every other route",
    "doctor": "check this machine: ports, disk, limits, clock, codec, Java",
    "backup": "copy a broker's data folder as it is at one instant, while the broker runs",
    "restore": "make a new data folder from a backup",
    "verify": "check every file and every batch of a backup",
    "repair": "show, and skip, what was lost in a stopped broker's partition",
    "completion": "print a completion script for bash, zsh or fish",
}

HELP = """\
usage: tidelog COMMAND [options]

One durable log, and everything derived from it.

commands:
{commands}

examples:
  tidelog up                                    a broker on 127.0.0.1:9092, data in ./tidelog-data
  tidelog topics create orders --partitions 3
  echo hello | tidelog produce orders
  tidelog tail orders --from earliest
  tidelog groups                                every group and how far it lags

Commands reach a broker by --bootstrap HOST:PORT[,HOST:PORT...], else TIDELOG_BOOTSTRAP, else 127.0.0.1:9092. Any broker
that speaks Kafka's protocol will do. `tidelog COMMAND --help` says more, `tidelog --version` the version.

exit codes: 0 done, 1 it failed, 2 wrong usage, 3 no broker reached, 130 interrupted
"""


def main(argv: list[str] | None = None) -> int:
    try:
        return flushed(_main(sys.argv[1:] if argv is None else argv))
    except SystemExit:  # as argparse ends a command, with what it printed still to be written
        flushed(OK)
        raise
    except BrokenPipeError:
        return flushed(OK)


def flushed(code: int) -> int:
    """What the command came to, though nobody reads its last lines."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            _point_away(stream.fileno())
    return code


def _point_away(place: int) -> None:
    """Its reader has had enough (`| head`), and Python would try once more at exit, and complain."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), place)


def _main(arguments: list[str]) -> int:
    command = arguments[0] if arguments else "help"
    if command in ("help", "--help", "-h"):
        print(HELP.format(commands="\n".join(f"  {name:<14}{what}" for name, what in COMMANDS.items())), end="")
        return OK if arguments else USAGE
    if command in ("version", "--version", "-V"):
        from tidelog import __version__

        print(f"tidelog {__version__}")
        return OK
    if command.startswith("-"):
        return complain(f"{command} stands before the command; write `tidelog COMMAND {command} ...`", USAGE)
    if command not in COMMANDS:
        from tidelog.config import nearest

        return complain(f"no command {command!r}; {nearest(command, COMMANDS, '`tidelog --help` lists them')}", USAGE)
    return run(command, arguments[1:])


def run(command: str, arguments: list[str]) -> int:
    try:
        from importlib import import_module

        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that is not UTF-8 still shows every record
        return flushed(import_module(f"tidelog.cli.{command}").run(arguments))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        raise  # no fault of the command: `main` has it, for all that is printed
    except Exception as error:
        return failed(error)


def failed(error: Exception) -> int:
    import os

    from tidelog.errors import Disconnected, NotShown, TidelogError, UsageError

    if os.environ.get("TIDELOG_DEBUG"):
        import traceback

        traceback.print_exc()
    if isinstance(error, NotShown):
        return complain(str(error), FAILED)  # nothing was wrong with the question: it came early
    if isinstance(error, UsageError):
        return complain(str(error), USAGE)
    if isinstance(error, Disconnected):
        return complain(str(error), UNREACHABLE)
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return complain(where + error.strerror.lower(), FAILED)
    if isinstance(error, TidelogError | OSError):
        return complain(str(error), FAILED)
    if type(error).__module__.startswith(("pyspark", "py4j")):
        from tidelog.spark.cluster_python import missing_in_a_worker

        if reason := missing_in_a_worker(str(error)):
            return complain(reason, FAILED)
    fault = f"internal fault: {type(error).__name__}: {error}; TIDELOG_DEBUG=1 shows where, please report it"
    return complain(fault, FAILED)


def complain(message: str, code: int) -> int:
    """The exit code says it, also where nobody reads standard error any more."""
    from contextlib import suppress

    from tidelog.cli.terminal import printable

    with suppress(BrokenPipeError):
        print("tidelog: " + printable(" ".join(message.split())), file=sys.stderr)
    return code
