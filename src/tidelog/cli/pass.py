"""`tidelog pass OUTPUT TOPIC:PARTITION:OFFSET`: a record that an output leaves out; alone, which it does."""

from __future__ import annotations

from tidelog.cli import options as command
from tidelog.cli.main import OK
from tidelog.control.catalog import TOPIC, VIEW, Catalog, View, read_catalog
from tidelog.control.derived import Derived
from tidelog.control.passed import pass_record, passed_by, place_of
from tidelog.errors import UsageError
from tidelog.views.asking import pipeline_of

EXAMPLES = """\
  tidelog pass revenue orders:0:17
  tidelog resume shop.revenue
  tidelog pass revenue                     which records it passes
"""


def parser() -> command.Parser:
    made = command.command_parser(
        "pass",
        "Leave a record out of a view or a derived topic: it is written to the output's dead letters instead, also by a"
        " rebuild and by run --batch.",
        EXAMPLES,
        parent=command.connection_options(),
    )
    made.add_argument("output", metavar="OUTPUT", help="a view or a derived topic of an app")
    made.add_argument("record", nargs="?", metavar="TOPIC:PARTITION:OFFSET", help="where the record stands")
    return made


def run(arguments: list[str]) -> int:
    options = command.parse(parser(), arguments)
    place = None if options.record is None else place_of(options.record)
    with command.connect(options) as cluster:
        known = read_catalog(cluster)
        pipeline = pipeline_of(known, options.output)
        output = pipeline.output
        if place is None:
            for one in sorted(passed_by(cluster, output)):
                print(one)
            return OK
        entry = known.get((VIEW, output)) or known.get((TOPIC, output))
        reads = _topics(known, entry.inputs) if isinstance(entry, View | Derived) else []
        if place.topic not in reads:
            raise UsageError(f"{output} does not read topic {place.topic}; it reads {', '.join(reads)}")
        news = pass_record(cluster, output, pipeline.app, place)
    said = "passes" if news else "passes already"
    print(f"{output} {said} {place}; a query that has failed goes on by `tidelog resume {pipeline.app}.{output}`")
    return OK


def _topics(known: Catalog, inputs: tuple[str, ...]) -> list[str]:
    """Of a view or a derived topic, those of all its generations."""
    found = list[str]()
    for name in inputs:
        entry = known.get((VIEW, name)) or known.get((TOPIC, name))
        found += [name] if entry is None else [one.topic for one in entry.generations] or [name]
    return list(dict.fromkeys(found))
