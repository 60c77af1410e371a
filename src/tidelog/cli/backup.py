"""`tidelog backup DIR --data DATA`: a copy of a broker's data folder that belongs together, while the broker runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.cli import options as command
from tidelog.cli.tail import time_text
from tidelog.cli.terminal import Progress, count_text, show_json, show_table, size_text, warn

if TYPE_CHECKING:
    from tidelog.broker.backup.manifest import Manifest

EXAMPLES = """\
  tidelog backup /backups/today --data /var/lib/tidelog
  tidelog backup /backups/today --data /var/lib/tidelog       again: only what is new is copied
  tidelog verify /backups/today
  tidelog restore /backups/today --data /var/lib/tidelog-new
"""


def parser() -> command.Parser:
    made = command.command_parser(
        "backup", "Copy a broker's data folder as it is at one instant, while the broker runs or not.", EXAMPLES
    )
    made.add_argument("folder", metavar="DIR", type=Path, help="the folder of the backup; one that is there is renewed")
    made.add_argument(
        "--data", metavar="DIR", type=Path, default=Path("tidelog-data"), help="the data folder (default: tidelog-data)"
    )
    command.add_json(made)
    return made


def run(arguments: list[str]) -> int:
    from tidelog.broker.backup.taking import take
    from tidelog.log.files import RealFiles

    options = command.parse(parser(), arguments)
    with Progress("backup") as progress:
        taken = take(str(options.data), str(options.folder), RealFiles(), progress)
    made = taken.manifest
    if options.json:
        show_json(
            {
                **summary(made),
                "taken_over": taken.taken_over,
                "seconds": round(taken.seconds, 3),
                "left_out": taken.left_out,
            }
        )
    else:
        show_partitions(made)
        print(
            f"{options.folder} is a backup as of {time_text(made.at_ms)}: {size_text(made.bytes)},"
            f" {size_text(taken.taken_over)} of it from the backup before, in {taken.seconds:.1f} s"
        )
    warn_of_holes(made)
    if taken.left_out:
        names = ", ".join(taken.left_out[:3]) + (", ..." if len(taken.left_out) > 3 else "")
        warn(
            f"not in the backup: {count_text(len(taken.left_out), 'folder')} that the broker has set aside ({names});"
            " `tidelog repair adopt` gives them back to their topics"
        )
    return 0


def summary(made: Manifest) -> dict[str, Any]:
    return {
        "at_ms": made.at_ms,
        "tidelog": made.tidelog,
        "cluster_id": made.cluster_id,
        "bytes": made.bytes,
        "partitions": [
            {
                "topic": one.topic,
                "partition": one.partition,
                "start": one.mark.start_offset,
                "end": one.mark.end_offset,
                "files": len(one.files),
                "bytes": one.bytes,
                "holes": [[hole.base_offset, hole.end_offset] for hole in one.holes],
            }
            for one in made.partitions
        ],
    }


def show_partitions(made: Manifest) -> None:
    rows = [
        (one.topic, one.partition, one.mark.start_offset, one.mark.end_offset, len(one.files), size_text(one.bytes))
        for one in made.partitions
    ]
    show_table(("topic", "partition", "start", "end", "files", "size"), rows)


def warn_of_holes(made: Manifest) -> None:
    for one, hole in made.holes:
        offsets = f"{hole.base_offset} to {hole.end_offset - 1}"
        warn(
            f"{one.topic} {one.partition}: offsets {offsets} are damaged, here as where they came from ({hole.reason})"
        )
