"""Changelog topics applied to real stores: declared, applied, queried, waited for, followed and switched.

A view is its topic first (`control/catalog.py`): what a store has is a copy up to a mark, and can always be made anew.
It never imports PySpark and never writes a view's topic. It may import `control`, `client`, `schema`, `record` and
`wire`; each store's library is loaded when a store of that kind is opened. Read `schema/declaration.py` first, then
`changes.py`, then `applier.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.door import door

if TYPE_CHECKING:
    from tidelog.control.catalog import Editor as Editor
    from tidelog.schema.declaration import Declaration as Declaration
    from tidelog.schema.declaration import declare as declare
    from tidelog.schema.expression.parser import parse as parse
    from tidelog.views.applier import Applier as Applier
    from tidelog.views.asking import Pipeline as Pipeline
    from tidelog.views.asking import ask as ask
    from tidelog.views.changes import Change as Change
    from tidelog.views.changes import Stretch as Stretch
    from tidelog.views.changes import encode as encode
    from tidelog.views.lifecycle import of_topic as of_topic
    from tidelog.views.stores.opening import open_store as open_store
    from tidelog.views.stores.store import Ask as Ask
    from tidelog.views.waiting import parse_after as parse_after
    from tidelog.views.waiting import wait as wait

HOMES = {
    "parse": "tidelog.schema.expression.parser",
    "Applier": "tidelog.views.applier",
    "Pipeline": "tidelog.views.asking",
    "ask": "tidelog.views.asking",
    "Editor": "tidelog.control.catalog",
    "of_topic": "tidelog.views.lifecycle",
    "Change": "tidelog.views.changes",
    "Stretch": "tidelog.views.changes",
    "encode": "tidelog.views.changes",
    "Declaration": "tidelog.schema.declaration",
    "declare": "tidelog.schema.declaration",
    "open_store": "tidelog.views.stores.opening",
    "Ask": "tidelog.views.stores.store",
    "parse_after": "tidelog.views.waiting",
    "wait": "tidelog.views.waiting",
}

__getattr__, __dir__ = door(__name__, HOMES)
