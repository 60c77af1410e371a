"""A source by its URL: `sqlite:///shop.db`, `postgresql://app:${PASSWORD}@host/shop`, ...

scheme     the module that has it, with `connect(url, name, tables) -> Source`; loaded when one is opened
method     log: the database's own log; triggers: into a table of its own. The first one of a scheme is its default
${NAME}    taken from the environment (`control/urls.py`); what is kept and shown is the URL as written
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import cast

from tidelog.capture.source import ChangeSource
from tidelog.control.urls import fill, redacted, without_secret
from tidelog.errors import UsageError

LOG, TRIGGERS = "log", "triggers"
METHODS = (LOG, TRIGGERS)
_MYSQL = {
    LOG: "tidelog.capture.sources.mysql.source",
    TRIGGERS: "tidelog.capture.sources.mysql.triggers.source",  # of MariaDB alone, which its check says
}
SCHEMES = {
    "sqlite": {TRIGGERS: "tidelog.capture.sources.sqlite.source"},
    "postgresql": {
        LOG: "tidelog.capture.sources.postgres.source",
        TRIGGERS: "tidelog.capture.sources.postgres.triggers.source",
    },
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
}
KEEPER = "the list of processes and the status of captures"


def scheme_of(url: str) -> str:
    scheme, found, _ = url.partition("://")
    if not found or scheme not in SCHEMES:
        known = ", ".join(f"{one}://" for one in SCHEMES)
        raise UsageError(f"{redacted(url)!r} is not a database that can be captured; a URL begins with {known}")
    return scheme


def module_of(scheme: str, method: str | None) -> str:
    there = SCHEMES[scheme]
    if method is not None and method not in there:
        raise UsageError(f"{scheme}:// is not captured by {method!r}; there is {', '.join(there)}")
    return there[method] if method is not None else next(iter(there.values()))


def methods_of(url: str, method: str | None) -> Sequence[str]:
    """The one that is said, or all that there are for the database."""
    return tuple(SCHEMES[scheme_of(url)]) if method is None else (method,)


def open_source(url: str, name: str, tables: Sequence[str], method: str | None = None) -> ChangeSource:
    """`tables` are patterns of `schema.table`, with `*`."""
    module = module_of(scheme_of(without_secret(url, KEEPER)), method)
    if find_spec(module.rpartition(".")[0]) is None:
        raise UsageError(f"{scheme_of(url)}:// cannot be captured by this version of Tidelog")
    try:
        return cast("ChangeSource", import_module(module).connect(fill(url, os.environ), name, tables))
    except UsageError as error:
        where = "" if redacted(url) in str(error) else f"{redacted(url)}: "
        raise UsageError(f"{where}{error}") from None
