"""`@proves("T1", "T6")` says which mission rows or numbered rules a test proves; `make rows` prints the table made from it."""

from __future__ import annotations

import pytest

proves = pytest.mark.proves
