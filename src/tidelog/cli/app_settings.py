"""What commands about apps share: the user's file, and how its app is to run, from the command line, the environment,
`[app]` in tidelog.toml and the App itself; the first that has a setting wins.

    key              environment               default
    bootstrap        TIDELOG_BOOTSTRAP         127.0.0.1:9092
    checkpoints      TIDELOG_CHECKPOINTS       tidelog-checkpoints
    store            TIDELOG_STORE             sqlite:///tidelog-views/<app>.db
    allowed.stores   TIDELOG_ALLOWED_STORES    none: which URLs of the catalog are opened (`views/stores/allowing.py`)
    master           TIDELOG_MASTER            all cores of this machine
    memory           TIDELOG_MEMORY            Spark's own: 1g
    trigger          TIDELOG_TRIGGER           100 milliseconds: how often a query looks for rows
    command.config   TIDELOG_COMMAND_CONFIG    none: TLS and login, as Kafka's tools take them
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.cli import options as command
from tidelog.config import APP_KEYS, Given, find_file, gather, variable
from tidelog.errors import UsageError

if TYPE_CHECKING:
    from tidelog.pipelines.app import App
    from tidelog.pipelines.running import Settings

TABLE = "app"
CHECKPOINTS = "tidelog-checkpoints"
TRIGGER = "100 milliseconds"


def add_app(parser: command.Parser) -> None:
    parser.add_argument("app", metavar="APP", help="the Python file with your App; FILE:NAME where it has several")


def add_running(parser: command.Parser, *, only: bool = True) -> None:
    if only:
        parser.add_argument("--only", metavar="NAME", action="append", default=[], help="only this output (repeatable)")
    parser.add_argument("--checkpoints", metavar="DIR", help=f"where queries keep their place (default: {CHECKPOINTS})")
    parser.add_argument("--store", metavar="URL", help="where views are kept that do not say so themselves")
    command.add_allowed(parser)
    parser.add_argument("--master", metavar="URL", help="Spark's master, such as spark://host:7077 (default: here)")
    parser.add_argument("--memory", metavar="SIZE", help="the heap of Spark's driver, such as 2g")
    parser.add_argument("--trigger", metavar="TIME", help=f"how often queries look for rows (default: {TRIGGER})")
    command.add_set(parser, "a setting of Spark's")


def settings_of(
    options: Namespace, app: App, *, environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> Settings:
    from tidelog.pipelines.operators.durations import milliseconds
    from tidelog.pipelines.running import Settings
    from tidelog.views.stores.allowing import listed
    from tidelog.views.stores.opening import absolute

    environment = os.environ if environment is None else environment
    written = {key: getattr(options, key.replace(".", "_"), None) for key in APP_KEYS}
    given = gather(
        APP_KEYS,
        TABLE,
        command_line=[
            (key, text if isinstance(text, str) else ",".join(text)) for key, text in written.items() if text
        ],
        environment={name: environment[name] for name in map(variable, APP_KEYS) if environment.get(name)},
        file=find_file(environment, folder or Path.cwd()),
    )
    found = {key: one.text for key, one in given.items()}
    security = found.get("command.config")
    store = _store(given.get("store"), app)
    return Settings(
        bootstrap=found.get("bootstrap") or app.bootstrap or command.DEFAULT_BOOTSTRAP,
        checkpoints=str(_folder(found.get("checkpoints") or app.checkpoints or CHECKPOINTS)),
        store=absolute(store),
        store_unnamed="store" not in found and app.store is None,
        store_by_folder="store" not in found and absolute(store) != store,
        allowed_stores=listed(found.get("allowed.stores", "")),
        master=found.get("master"),
        memory=found.get("memory"),
        trigger_ms=milliseconds(found.get("trigger") or TRIGGER, what="trigger"),
        security_file=None if security is None else str(Path(security).resolve()),
        answer_s=options.timeout,
        spark=dict(getattr(options, "set", [])),
        grown=tuple(getattr(options, "grown", [])),
        go_on=tuple(getattr(options, "go_on", [])),
    )


def _folder(text: str) -> str | Path:
    """A place that is not a local path stays as it is written."""
    return text if "://" in text else Path(text).resolve()


def _store(given: Given | None, app: App) -> str:
    """Where views are kept that do not say so themselves. A URL that is not one is told with who has said it."""
    from tidelog.pipelines.placing import DEFAULT_STORE
    from tidelog.views.stores.opening import checked

    try:
        return checked(given.text if given is not None else app.store or DEFAULT_STORE.format(app=app.name))
    except UsageError as error:
        origin = app.place if given is None else given.origin
        where = "--store" if str(origin).startswith("--") else origin  # without the URL itself
        raise UsageError(f"{where}: {error}") from None
