"""What the contract needs to know of a kind of store. The list of them is in `conftest.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Kind:
    name: str
    url: Callable[[pytest.FixtureRequest], str]  # of a place that is new and empty
    transactions: bool = True  # whether a reader sees a micro-batch whole or not at all
    shared: bool = True  # whether several appliers may share a view in it
    marks: tuple[pytest.MarkDecorator, ...] = ()  # pytest.mark.external, for a server that pip does not have

    def parameter(self, *more: pytest.MarkDecorator) -> object:
        return pytest.param(self, id=self.name, marks=(*self.marks, *more))
