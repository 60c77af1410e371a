"""The fixtures of workers."""

from __future__ import annotations

from work.pools import broker, pool, sender

__all__ = ["broker", "pool", "sender"]
