"""`tidelog repair adopt [WHAT ...] --data DIR [--as NAME]`: folders without a topic are given back to theirs.

The broker must be stopped. Nothing is removed: what cannot be adopted stays as it is, and is told with the reason.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.cli import options as command
from tidelog.cli.repair import orphan_json
from tidelog.cli.terminal import count_text, show_json, show_table, warn

if TYPE_CHECKING:
    from tidelog.broker.adopting import Adopted, Adoption, Refusal

EXAMPLES = """\
  tidelog repair adopt --data /var/lib/tidelog                       all that is set aside
  tidelog repair adopt --data /var/lib/tidelog orders                one topic
  tidelog repair adopt --data /var/lib/tidelog orders --as orders2   under another name
"""


def parser() -> command.Parser:
    made = command.command_parser(
        "repair adopt", "Give folders that lost their topic back to it. The broker must be stopped.", EXAMPLES
    )
    made.add_argument("what", nargs="*", metavar="WHAT", help="a topic's name or id, or a folder (default: all)")
    made.add_argument(
        "--data", metavar="DIR", type=Path, default=Path("tidelog-data"), help="the data folder (default: tidelog-data)"
    )
    made.add_argument(
        "--as",
        dest="new_name",
        metavar="NAME",
        help="the topic's name, where the folder does not say it or the name is taken",
    )
    command.add_json(made)
    return made


def run(arguments: list[str]) -> int:
    from tidelog.broker.adopting import adopt
    from tidelog.broker.stopped import StoppedBroker

    options = command.parse(parser(), arguments)
    with StoppedBroker(options.data) as stopped:
        done = adopt(stopped, options.what, options.new_name)
    if options.json:
        show_json(as_json(done))
    else:
        show(done)
    return 1 if done.decided.refused else 0


def as_json(done: Adopted) -> dict[str, object]:
    return {
        "topics_made_anew": done.made_anew,
        "swapped": done.swapped,
        "adopted": [
            {
                "topic": one.topic.name,
                "id": one.topic.topic_id.hex(),
                "partitions": one.topic.partitions,
                "settings_known": one.told,
                "folders": [orphan_json(folder) for folder in one.folders],
            }
            for one in done.decided.adopted
        ],
        "refused": [
            {"why": one.why, "folders": [orphan_json(folder) for folder in one.folders]} for one in done.decided.refused
        ],
    }


def show(done: Adopted) -> None:
    if done.swapped:
        print(f"{done.swapped} pairs of folders had each other's names, and have their own again")
    if done.made_anew:
        print("the log of topics was rebuilt")
    if done.decided.adopted:
        show_table(("topic", "partitions", "folders", "records", "settings"), map(_row, done.decided.adopted))
    elif not (done.decided.refused or done.made_anew or done.swapped):
        print("nothing is set aside")
    for refused in done.decided.refused:
        warn(_why(refused))


def _row(adoption: Adoption) -> tuple[object, ...]:
    topic = adoption.topic
    settings = "as they were" if adoption.told else "unknown: defaults"
    return topic.name, topic.partitions, len(adoption.folders), adoption.records, settings


def _why(refused: Refusal) -> str:
    names = ", ".join(one.name for one in refused.folders[:3]) + (", ..." if len(refused.folders) > 3 else "")
    return f"not adopted: {count_text(len(refused.folders), 'folder')} ({names}): {refused.why}"
