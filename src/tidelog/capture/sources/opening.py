"""A source by its URL: `sqlite:///shop.db`, `postgresql://app:${PASSWORD}@host/shop`, ...

scheme     the module that has it, with `connect(url, name, tables) -> Source`; loaded when one is opened
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

SCHEMES = {
    "sqlite": "tidelog.capture.sources.sqlite.source",
    "postgresql": "tidelog.capture.sources.postgres.source",
    "mysql": "tidelog.capture.sources.mysql.source",
    "mariadb": "tidelog.capture.sources.mysql.source",
}
KEEPER = "the list of processes and the status of captures"


def scheme_of(url: str) -> str:
    scheme, found, _ = url.partition("://")
    if not found or scheme not in SCHEMES:
        known = ", ".join(f"{one}://" for one in SCHEMES)
        raise UsageError(f"{redacted(url)!r} is not a database that can be captured; a URL begins with {known}")
    return scheme


def open_source(url: str, name: str, tables: Sequence[str]) -> ChangeSource:
    """`tables` are patterns of `schema.table`, with `*`."""
    module = SCHEMES[scheme_of(without_secret(url, KEEPER))]
    if find_spec(module.rpartition(".")[0]) is None:
        raise UsageError(f"{scheme_of(url)}:// cannot be captured by this version of Tidelog")
    try:
        return cast("ChangeSource", import_module(module).connect(fill(url, os.environ), name, tables))
    except UsageError as error:
        raise UsageError(f"{redacted(url)}: {error}") from None
