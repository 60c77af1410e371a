"""What tagged versions left behind, one archive each in tests/data, and the scripts that wrote them.

The scripts are no part of the package: a test takes the ways to look at a folder from the one that wrote it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
LARGEST_BYTES = 200 << 10
RELEASED = re.compile(r"^## \[?v?(\d+\.\d+\.\d+)", re.MULTILINE)


def archives_of(kind: str) -> list[Path]:
    return sorted((ROOT / "tests" / "data" / kind).glob("*.tar.xz"))


def version_of(archive: Path) -> str:
    return archive.name.removesuffix(".tar.xz")


def script(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """One of `scripts`, loaded anew."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return import_module(name)


def versions_without(archives: Iterable[Path], changelog: str | None = None) -> list[str]:
    """Versions of the changelog that left none."""
    told = (ROOT / "CHANGELOG.md").read_text() if changelog is None else changelog
    return sorted(set(RELEASED.findall(told)) - {version_of(path) for path in archives})


def too_large(archives: Iterable[Path]) -> list[Path]:
    return [path for path in archives if path.stat().st_size >= LARGEST_BYTES]
