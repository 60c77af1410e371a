"""`tidelog backup DIR --data DATA`: a copy of a broker's data folder that belongs together, while the broker runs. With
`--app FILE` also what a run of that app has beside it: checkpoints, as of this log, and stores in SQLite.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.cli import options as command
from tidelog.cli.tail import time_text
from tidelog.cli.terminal import ProgressLine, count_text, show_json, show_table, size_text, warn
from tidelog.errors import UsageError

if TYPE_CHECKING:
    from tidelog.broker.backup.manifest import Manifest
    from tidelog.pipelines.backup.taking import AppsBackup

EXAMPLES = """\
  tidelog backup /backups/today --data /var/lib/tidelog
  tidelog backup /backups/today --data /var/lib/tidelog       again: only what is new is copied
  tidelog backup /backups/today --data /var/lib/tidelog --app shop.py     with its checkpoints and its SQLite stores
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
    made.add_argument(
        "--app",
        metavar="APP",
        action="append",
        default=[],
        help="the Python file with an App (FILE:NAME of several): its checkpoints and SQLite stores too (repeatable)",
    )
    made.add_argument("--checkpoints", metavar="DIR", help="where the app's run keeps them, as for `tidelog run`")
    made.add_argument("--store", metavar="URL", help="where its views are kept by default, as for `tidelog run`")
    command.add_json(made)
    return made


def run(arguments: list[str]) -> int:
    from tidelog.broker.backup.taking import take
    from tidelog.log.files import RealFiles

    options = command.parse(parser(), arguments)
    if not options.app and (options.checkpoints or options.store):
        raise UsageError("backup: --checkpoints and --store are of an app; add --app FILE")
    companion = companion_of(options) if options.app else None
    with ProgressLine("backup") as progress:
        taken = take(str(options.data), str(options.folder), RealFiles(), progress, companion)
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
        show_apps(made)
        print(
            f"{options.folder} is a backup as of {time_text(made.at_ms)}: {size_text(made.bytes)},"
            f" {size_text(taken.taken_over)} of it from the backup before, in {taken.seconds:.1f} s"
        )
    warn_of_holes(made)
    warn_of_left_out(made)
    if taken.left_out:
        names = ", ".join(taken.left_out[:3]) + (", ..." if len(taken.left_out) > 3 else "")
        warn(
            f"not in the backup: {count_text(len(taken.left_out), 'folder')} that the broker has set aside ({names});"
            " `tidelog repair adopt` gives them back to their topics"
        )
    return 0


def companion_of(options: Namespace) -> AppsBackup:
    from tidelog.cli.app_settings import settings_of
    from tidelog.pipelines.app import VIEW
    from tidelog.pipelines.backup.taking import AppPlaces, AppsBackup
    from tidelog.pipelines.graph import graph_of
    from tidelog.pipelines.loading import load_app
    from tidelog.pipelines.placing import stores_of

    places = []
    for one in map(load_app, options.app):
        graph, settings = graph_of(one), settings_of(options, one)
        views = [node.output for node in graph.nodes if node.output.kind == VIEW]
        stores = {url for view in views for url in stores_of(graph, view, settings.store)}
        places.append(AppPlaces(one.name, settings.checkpoints, tuple(sorted(stores)), settings.store or ""))
    return AppsBackup(places)


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
    } | ({} if made.apps is None else made.apps.about)


def show_partitions(made: Manifest) -> None:
    rows = [
        (one.topic, one.partition, one.mark.start_offset, one.mark.end_offset, len(one.files), size_text(one.bytes))
        for one in made.partitions
    ]
    show_table(("topic", "partition", "start", "end", "files", "size"), rows)


def show_apps(made: Manifest) -> None:
    for app in made.apps.about["apps"] if made.apps is not None else ():
        said = ", ".join(f"{one['folder']} up to micro-batch {one['batch']}" for one in app["queries"])
        print(f"app {app['name']}: checkpoints of {said}" if said else f"app {app['name']}: no checkpoint yet")
    for one in made.apps.about["stores"] if made.apps is not None else ():
        if one["file"]:
            print(f"store of {', '.join(one['views'])}: {one['url']}")


def warn_of_left_out(made: Manifest) -> None:
    for app in made.apps.about["apps"] if made.apps is not None else ():
        for sink in app["left_out"]:
            warn(
                f"{sink} is in the log, and its checkpoint is not in {app['checkpoints']}/{app['name']} (is"
                " --checkpoints that of its run?): after a restore it has to be rebuilt"
            )


def warn_of_holes(made: Manifest) -> None:
    for one, hole in made.holes:
        offsets = f"{hole.base_offset} to {hole.end_offset - 1}"
        warn(
            f"{one.topic} {one.partition}: offsets {offsets} are damaged, here as where they came from ({hole.reason})"
        )
