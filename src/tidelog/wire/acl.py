"""An access rule as Kafka's messages have it: resource, pattern, operation and permission are numbers."""

from __future__ import annotations

from typing import NamedTuple


class Acl(NamedTuple):
    resource: int
    pattern: int
    name: str
    principal: str
    host: str
    operation: int
    permission: int
