"""A file or a folder of a store, and how errors name it: as its URL was written. Pure.

Rules:
- `${NAME}` in a URL may be a secret: it is filled in for who opens the file, and shown to nobody.
- What a system or a library says of a fault has the path in it as it is; here it is taken out again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote


class Written(NamedTuple):
    path: Path
    said: str

    def __str__(self) -> str:
        return self.said

    def below(self, name: str) -> Written:
        return Written(self.path / name, f"{self.said}/{name}")

    def told(self, what: object) -> str:
        """An error, or the path of a file below, as it may be shown."""
        if self.said == str(self.path):
            return str(what)
        # Without the name that the system adds: it may be that of a folder above.
        text = what.strerror if isinstance(what, OSError) and what.strerror else str(what)
        whole = os.path.abspath(self.path)  # noqa: PTH100
        for form in (whole, quote(whole), str(self.path)):
            text = text.replace(form, self.said)
        return text


def written(path: Path, said: str | None) -> Written:
    """`said` is the path in the URL as it was written; None: it is not a secret."""
    return Written(path, str(path if said is None else Path(said)))


def path_in(url: str, prefix: str) -> str:
    """Of a file's URL, without what is asked behind it; nothing where it has none."""
    path = url.partition("?")[0]
    return unquote(path.removeprefix(prefix)) if path.startswith(prefix) else ""
