"""`tidelog verify DIR`: is a backup whole, and is every batch in it what was written?"""

from __future__ import annotations

from pathlib import Path

from tidelog.cli import options as command
from tidelog.cli.backup import summary, warn_of_holes
from tidelog.cli.tail import time_text
from tidelog.cli.terminal import ProgressLine, show_json, show_table, size_text

EXAMPLES = """\
  tidelog verify /backups/today
  tidelog verify /backups/today --json
"""


def parser() -> command.Parser:
    made = command.command_parser(
        "verify", "Check every file and every batch of a backup; nothing is changed.", EXAMPLES
    )
    made.add_argument("folder", metavar="DIR", type=Path, help="the backup")
    command.add_json(made)
    return made


def run(arguments: list[str]) -> int:
    from tidelog.broker.backup.verifying import verify
    from tidelog.log.files import RealFiles

    options = command.parse(parser(), arguments)
    with ProgressLine("verify") as progress:
        verified = verify(str(options.folder), RealFiles(), progress)
    found = verified.manifest
    if options.json:
        show_json({**summary(found), "faults": [fault._asdict() for fault in verified.faults]})
    else:
        if verified.faults:
            show_table(("file", "what is wrong"), verified.faults)
        state = "is damaged; use another one" if verified.faults else "is whole"
        records = sum(one.mark.end_offset - one.mark.start_offset for one in found.partitions)
        print(
            f"{options.folder}, as of {time_text(found.at_ms)}, {state}:"
            f" {len(found.partitions)} partitions, {records} offsets, {size_text(found.bytes)}"
        )
    warn_of_holes(found)
    return 1 if verified.faults else 0
