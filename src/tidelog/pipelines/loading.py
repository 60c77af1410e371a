"""The user's file: imported once, as Python would, and its `App` found.

    shop.py          the one App that stands in it
    shop.py:shop     the one of that name, where there are several

What stands in the file travels to Spark's workers whole: they could not import it by the name that it has here.
"""

from __future__ import annotations

import sys
import traceback
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Any

from tidelog.errors import TidelogError, UsageError
from tidelog.pipelines.app import App, SourceLine
from tidelog.pipelines.sql_query import SqlQuery

PREFIX = "tidelog_app_"


class AsItIs(SourceFileLoader):
    """Compiles the file that is there. Bytecode of an earlier one, which Python knows by its second and size, would be
    run under the fingerprint of the new text.
    """

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code


def load_app(path: str) -> App:
    file, colon, wanted = path.partition(":")
    module = _loaded(Path(file))
    apps = {name: one for name, one in vars(module).items() if isinstance(one, App)}
    if colon:
        if wanted not in apps:
            raise UsageError(f"{file} has no App called {wanted!r}; it has {', '.join(apps) or 'none'}")
        return apps[wanted]
    found = {id(one): one for one in apps.values()}
    if len(found) != 1:
        several = f"{file}:{next(iter(apps))}" if apps else ""
        advice = f"name one, as {several}" if several else "write app = App('name') in it"
        raise UsageError(f"{file} has {len(found) or 'no'} App{'s' if len(found) > 1 else ''}; {advice}")
    return next(iter(found.values()))


def _loaded(file: Path) -> ModuleType:
    if not file.is_file():
        raise UsageError(f"{file} is not a file; give the Python file with your App")
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # as for a program that Python runs: it may import what lies beside it
    name = file.stem if file.stem not in sys.modules else f"{PREFIX}{file.stem}"  # `json.py` is not to replace json
    spec = spec_from_file_location(name, file.resolve(), loader=AsItIs(name, str(file.resolve())))
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except TidelogError:
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        where = place_in(error.__traceback__, str(file.resolve())) or SourceLine(
            str(file), getattr(error, "lineno", 0) or 0
        )
        raise UsageError(f"{where}: {type(error).__name__}: {error}") from error
    return module


def place_in(trace: TracebackType | None, file: str) -> SourceLine | None:
    """The innermost line of the user's own file."""
    lines = [one.lineno or 0 for one in traceback.extract_tb(trace) if one.filename == file]
    return SourceLine(file, lines[-1]) if lines else None


def travelling_whole(app: App) -> None:
    """From now on functions of the user's file are sent to workers themselves and not by their names."""
    from pyspark import cloudpickle

    pickle: Any = cloudpickle
    for output in app.outputs.values():
        if isinstance(output.function, SqlQuery):
            continue
        module = sys.modules.get(output.function.__module__)
        if module is not None and module.__name__ not in ("__main__", *pickle.list_registry_pickle_by_value()):
            pickle.register_pickle_by_value(module)
