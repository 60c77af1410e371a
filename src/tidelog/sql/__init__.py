"""SQL over live topics and views, without a JVM: DuckDB reads what the codec decodes.

It never writes a topic or a store and keeps no copy. It may import `views`, `client`, `schema` and `record`; DuckDB and
pyarrow are loaded when the first question is asked. Read `session.py` first.

`tidelog.sql("select ...")` is the function and the room in one: Python binds the name to this module as soon as any
part of it is imported, so the module can be called.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from tidelog.sql.session import sql

        return sql(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
