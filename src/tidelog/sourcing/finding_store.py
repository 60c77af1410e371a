"""What a command names: `module:name`, or `file.py`, `file.py:name`. An event store, or what follows one."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from tidelog.errors import TidelogError, UsageError
from tidelog.sourcing.effects import Effects
from tidelog.sourcing.process_manager import ProcessManager
from tidelog.sourcing.raised import told
from tidelog.sourcing.read_model import ReadModel
from tidelog.sourcing.store import EventStore

Follower = ProcessManager | Effects | ReadModel


def find_store(text: str) -> EventStore[Any]:
    place, _, wanted = text.partition(":")
    module = _module(place)
    stores = {name: one for name, one in vars(module).items() if isinstance(one, EventStore)}
    if wanted and wanted not in stores:
        raise UsageError(f"{place} has no EventStore called {wanted!r}; it has {', '.join(stores) or 'none'}")
    if not wanted and len(stores) != 1:
        advice = f"name one, as {place}:{next(iter(stores))}" if stores else "write store = EventStore(...) in it"
        raise UsageError(f"{place} has {len(stores)} EventStores; {advice}")
    return stores[wanted] if wanted else next(iter(stores.values()))


def find_followers(text: str) -> list[Follower]:
    """All that the module has, or the one that is named: by its variable, or by its own name."""
    place, _, wanted = text.partition(":")
    there = {name: one for name, one in vars(_module(place)).items() if isinstance(one, Follower)}
    found = [one for name, one in there.items() if wanted in ("", name, one.name)]
    if not found:
        which = f"called {wanted!r}; it has {', '.join(there) or 'none'}" if wanted else "in it"
        raise UsageError(f"{place} has no ProcessManager, Effects or ReadModel {which}")
    return list({id(one): one for one in found}.values())


def _module(place: str) -> ModuleType:
    """What it raises is told with its name."""
    try:
        return _from_file(Path(place)) if place.endswith(".py") else _by_name(place)
    except TidelogError:
        raise
    except Exception as error:
        raise UsageError(f"{place} cannot be imported: {told(error)}") from error


def _by_name(name: str) -> ModuleType:
    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` does
    return import_module(name)


def _from_file(file: Path) -> ModuleType:
    if not file.is_file():
        raise UsageError(f"{file} is not a file; give the Python file with your EventStore")
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # it may import what lies beside it
    spec = spec_from_file_location(file.stem, file.resolve())
    assert spec is not None and spec.loader is not None, "it ends with .py"
    module = module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module
