"""How a public door hands out names: each is loaded from the module that has it when it is first used.

So `import tidelog` loads no room, `from tidelog.client import Producer` no view, and users name no module behind a
door. A door is a table of names and their homes, and a `TYPE_CHECKING` block with the same names for type checkers;
`tests/test_doors.py` compares the two. The doors are `tidelog`, and `.operators`, `.spark`, `.client`, `.sourcing`,
`.views` and `.testing` in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def door(name: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` of the module `name`, and its `__dir__`, by which a prompt completes names. `homes` says in
    which module each of its public names stands. A home that ends with the name itself is a module that is handed out
    whole.
    """

    def load(wanted: str) -> Any:
        if wanted not in homes:
            raise AttributeError(f"module {name!r} has no attribute {wanted!r}")
        from importlib import import_module

        home = homes[wanted]
        loaded = import_module(home)
        return loaded if home.rpartition(".")[2] == wanted and not hasattr(loaded, wanted) else getattr(loaded, wanted)

    return load, lambda: sorted(homes)
