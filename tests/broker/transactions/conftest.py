"""A broker for each test, in a folder of its own."""

from __future__ import annotations

from broker.topics.conftest import served

__all__ = ["served"]
