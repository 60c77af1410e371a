"""The appliers of a view's stores, as parts of a run: one `tidelog apply` for each.

A store that the app names, or the run, is `--store`. One that only the catalog has (of a run in another folder, of a
rebuild) is `--declared`: its applier opens it as what came by a record (`views/stores/allowing.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidelog.parts.children import ChildPart
from tidelog.parts.part import Key, Part
from tidelog.pipelines.parts import APPLIER
from tidelog.pipelines.placing import DEFAULT_STORE, Target
from tidelog.views.stores.allowing import open_recorded
from tidelog.views.stores.opening import name_of, open_store

if TYPE_CHECKING:
    from tidelog.pipelines.running import Settings
    from tidelog.views.stores.store import Store


def appliers_of(target: Target, settings: Settings) -> list[Part]:
    found: list[Part] = []
    own = _own(target, settings)
    allowed = [word for entry in settings.allowed_stores for word in ("--allow-store", entry)]
    for number, url in enumerate(target.stores):
        named = ["--store", url] if url in own else ["--declared", url, *allowed]
        words = [sys.executable, "-m", "tidelog", "apply", target.node.name, *named]
        words += ["--bootstrap", settings.bootstrap, "--timeout", f"{settings.answer_s:g}", "--with-parent"]
        words += [] if settings.security_file is None else ["--command-config", settings.security_file]
        name = target.node.name if len(target.stores) == 1 else f"{target.node.name}.{number}"
        about = {"app": target.app, "view": target.node.name}
        reports_as = f"{target.node.name}.{name_of(url)}"
        found.append(ChildPart(APPLIER, f"{target.app}.{name}", words, about, reports_as=reports_as))
    return found


def opened(target: Target, url: str, settings: Settings) -> Store:
    """As its applier opens it."""
    if url in _own(target, settings):
        return open_store(url, target.node.name)
    return open_recorded(url, target.node.name, lambda: settings.allowed_stores)


def _own(target: Target, settings: Settings) -> tuple[str, ...]:
    """Those that the app names, or the run."""
    return target.node.output.stores or (settings.store or DEFAULT_STORE.format(app=target.app),)


def changed_appliers(parts: Mapping[Key, Part], view: str, wanted: list[Part]) -> tuple[list[Key], list[Part]]:
    """Appliers of a view that are not wanted any more, and those that are new. One that stays has the same command."""
    mine = {key: one for key, one in parts.items() if isinstance(one, ChildPart) and one.about["view"] == view}
    by_key = {(one.kind, one.name): one for one in wanted if isinstance(one, ChildPart)}
    stays = {key for key, one in by_key.items() if key in mine and mine[key].command == one.command}
    return [key for key in mine if key not in stays], [one for key, one in by_key.items() if key not in stays]
