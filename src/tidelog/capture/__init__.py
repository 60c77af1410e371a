"""Databases become topics: a source's committed changes, in order, once, as Debezium envelopes.

Read `change.py` and `source.py` first: what a source tells. Then `running.py`.

`tidelog.capture(url, ...)` is the function and the room in one: Python binds the name to this module as soon as any
part of it is imported, so the module can be called.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from tidelog.capture.running import capture

        return capture(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
