"""`tidelog restore DIR --data NEW`: a data folder from a backup, for a broker to be started on. With `--app-folder`
also the checkpoints and stores of apps that were backed up with it.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.cli import options as command
from tidelog.cli.backup import show_partitions, summary, warn_of_holes
from tidelog.cli.tail import time_text
from tidelog.cli.terminal import ProgressLine, show_json

if TYPE_CHECKING:
    from tidelog.broker.backup.manifest import Apps, Manifest

EXAMPLES = """\
  tidelog restore /backups/today --data /var/lib/tidelog-new
  tidelog restore /backups/monday --data /var/lib/tidelog-new --shun /backups/friday
  tidelog restore /backups/today --data /srv/new/data --app-folder /srv/new      and the apps that are in it
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
    made.add_argument(
        "--app-folder",
        metavar="DIR",
        type=Path,
        help="a new folder for checkpoints and stores of the apps in the backup (default: the log alone)",
    )
    command.add_json(made)
    return made


def run(arguments: list[str]) -> int:
    from tidelog.broker.backup.restoring import AppsFolder, restore
    from tidelog.log.files import RealFiles

    options = command.parse(parser(), arguments)
    beside = None if options.app_folder is None else AppsFolder(str(options.app_folder), _settle)
    with ProgressLine("restore") as progress:
        found = restore(str(options.folder), str(options.data), RealFiles(), progress, options.shun, beside)
    if options.json:
        show_json(summary(found))
    else:
        show_partitions(found)
        if not options.shun:
            print("records that were excised after this backup are back; if there are any, restore again with --shun")
        print(f"to keep what is past its retention.ms or retention.bytes: {HOLD}")
        show_restored(found, options)
        print(f"{options.data} has what there was at {time_text(found.at_ms)}; tidelog up --data {options.data}")
    warn_of_holes(found)
    return 0


def _settle(folder: str, apps: Apps) -> None:
    from tidelog.pipelines.backup.restoring import settle_checkpoints

    settle_checkpoints(folder, apps.about)


def show_restored(found: Manifest, options: Namespace) -> None:
    if found.apps is None:
        return
    if options.app_folder is None:
        names = ", ".join(one["name"] for one in found.apps.about["apps"])
        print(f"of app {names} only the log is restored; --app-folder DIR restores checkpoints and stores too")
        return
    from tidelog.pipelines.backup.restoring import apps_in, stores_in

    folder, about = str(options.app_folder), found.apps.about
    for app in apps_in(folder, about):
        store = f" --store {app.store}" if app.store else ""
        print(f"app {app.app}: tidelog run FILE --checkpoints {app.checkpoints}{store}")
    defaults = {app["store"] for app in about["apps"]}
    for one, kept in zip(stores_in(folder, about), about["stores"], strict=True):
        views = ", ".join(one.views)
        if one.file is None:
            print(f"view {views}: {one.url} is not in the backup; it must be empty, or older than the log")
        elif kept["file"] not in defaults:
            print(f"view {views}: its store {one.url} is now {one.file}; name it in the app's code, or move it there")
        else:
            print(
                f"view {views}: until the app has run so, readers of the restored broker (tidelog views, tidelog sql,"
                f" HTTP) open {one.url}, which is the store that was backed up, if that is here"
            )
