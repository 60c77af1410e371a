"""`tidelog work MODULE:FUNCTION --topic T --group G`: workers that call a function for each job of a queue."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from tidelog.cli import options as command
from tidelog.errors import UsageError

if TYPE_CHECKING:
    from tidelog.work.crew import JobFunction

EXAMPLES = """\
  tidelog work mail:deliver --topic mail --group mailers --workers 8
  tidelog work mail:deliver --topic mail --group mailers --time-limit 60 --dead-letters dlq.mail
  tidelog work mail:deliver --topic mail --group mailers --drain      end when nothing is left
"""


def parser() -> command.Parser:
    what = "Call a function for each job of a queue, until SIGTERM or Ctrl-C; jobs under way are ended."
    made = command.command_parser("work", what, EXAMPLES, parent=command.connection_options())
    made.add_argument("function", metavar="MODULE:FUNCTION", help="called with a tidelog.Job")
    made.add_argument("--topic", metavar="TOPIC", required=True, help="where jobs are sent; made if it is missing")
    made.add_argument("--group", metavar="GROUP", required=True, help="the share group; begins with the first job")
    made.add_argument("--workers", metavar="N", type=command.positive, default=1, help="threads with a job each (1)")
    made.add_argument("--time-limit", metavar="SECONDS", type=command.seconds, help="of a job; then it is released")
    made.add_argument("--backoff", metavar="SECONDS", type=command.span, help="before a job is tried again (1)")
    made.add_argument("--attempts", metavar="N", type=command.positive, help="deliveries until a job is given up (5)")
    made.add_argument("--dead-letters", metavar="TOPIC", help="for jobs that are given up, such as dlq.mail")
    made.add_argument("--output", metavar="TOPIC", help="write what the function returns there, once for each job")
    made.add_argument("--name", metavar="NAME", help="of these workers in `tidelog status` (group, host, process)")
    made.add_argument("--drain", action="store_true", help="end when nothing is left to do")
    return made


def run(arguments: list[str]) -> int:
    from tidelog.cli.main import OK
    from tidelog.cli.run import say_in
    from tidelog.logger import Logger, hear
    from tidelog.process import stop_on_signals
    from tidelog.work.running import worker

    options = command.parse(parser(), arguments)
    function, log = find_function(options.function), Logger(json=False)
    with command.connect(options) as cluster:
        cluster.is_tidelog()  # an address that is wrong is told at once; later a broker that is away is waited for
    pool = worker(
        function,
        topic=options.topic,
        group=options.group,
        workers=options.workers,
        time_limit_s=options.time_limit,
        backoff_s=options.backoff,
        attempts=options.attempts,
        dead_letters=options.dead_letters,
        output=options.output,
        name=options.name,
        bootstrap=options.bootstrap,
        security=command.security(options),
        say=say_in(log),
    )
    hear(log)
    stop_on_signals(pool.stopping)
    pool.prepare()
    count = f"{options.workers} worker{'' if options.workers == 1 else 's'}"
    takes = "takes" if options.workers == 1 else "take"
    print(f"{count} of {options.group} {takes} jobs from {options.topic}", flush=True)
    if options.drain:
        pool.drain()
        return OK
    return pool.run()


def find_function(text: str) -> JobFunction:
    place, _, name = text.partition(":")
    if not place or not name:
        raise UsageError(f"work: {text!r} does not name a function; write MODULE:FUNCTION, as mail:deliver")
    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` does
    try:
        module = import_module(place)
    except Exception as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == place.partition(".")[0]
        hint = "; a module is looked for in this folder, and where Python looks" if missing else ""
        raise UsageError(f"{place} cannot be imported: {type(error).__name__}: {error}{hint}") from error
    function: JobFunction | None = getattr(module, name, None)
    if not callable(function):
        raise UsageError(f"{place} has no function {name!r}; it is to take one argument, a tidelog.Job")
    return function
