"""`tidelog restore DIR --data NEW`: a data folder from a backup, for a broker to be started on."""

from __future__ import annotations

from pathlib import Path

from tidelog.cli import options as command
from tidelog.cli.backup import show_partitions, summary, warn_of_holes
from tidelog.cli.tail import time_text
from tidelog.cli.terminal import Progress, show_json

EXAMPLES = """\
  tidelog restore /backups/today --data /var/lib/tidelog-new
  tidelog restore /backups/monday --data /var/lib/tidelog-new --shun /backups/friday
  tidelog up --data /var/lib/tidelog-new
  tidelog up --data /var/lib/tidelog-new --set tidelog.retention.hold=true     an old backup: delete nothing by age
"""

HOLD = "add --set tidelog.retention.hold=true, or retention deletes it at the start"


def parser() -> command.Parser:
    made = command.command_parser("restore", "Make a new data folder from a backup, checking every file.", EXAMPLES)
    made.add_argument("folder", metavar="DIR", type=Path, help="the backup")
    made.add_argument("--data", metavar="DIR", type=Path, required=True, help="the new data folder")
    made.add_argument(
        "--shun",
        metavar="PLACE",
        action="append",
        default=[],
        help="take out again what was excised since the backup: a newer backup, a data folder, or a file with the"
        " output of `tidelog excise --list --json` (may be repeated)",
    )
    command.add_json(made)
    return made


def run(arguments: list[str]) -> int:
    from tidelog.broker.backup.restoring import restore
    from tidelog.log.files import RealFiles

    options = command.parse(parser(), arguments)
    with Progress("restore") as progress:
        found = restore(str(options.folder), str(options.data), RealFiles(), progress, options.shun)
    if options.json:
        show_json(summary(found))
    else:
        show_partitions(found)
        if not options.shun:
            print("records that were excised after this backup are back; if there are any, restore again with --shun")
        print(f"to keep what is past its retention.ms or retention.bytes: {HOLD}")
        print(f"{options.data} has what there was at {time_text(found.at_ms)}; tidelog up --data {options.data}")
    warn_of_holes(found)
    return 0
