"""Where a function of the user's raised: the line of his file, for an error that is told in one line."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

NOT_THEIRS = (str(Path(__file__).parent.parent), sysconfig.get_paths()["stdlib"], "<frozen")


def told(error: BaseException) -> str:
    """The error, and the innermost line of his: `KeyError('copy') (library.py:41)`."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [one for one in frames if not one.filename.startswith(NOT_THEIRS) and "site-packages" not in one.filename]
    line = f" ({Path(theirs[-1].filename).name}:{theirs[-1].lineno})" if theirs else ""
    return f"{error!r:.300}{line}"
