"""Commands become events, and events state: deciders, the store of histories, read models, erasure.

A decider is two pure functions (`decider.py`); what is stored is a record of a topic (`event_record.py`). This room
never writes an event that no decider decided. Read `decider.py` first, then `event_types.py`, then `event_record.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.door import door

if TYPE_CHECKING:
    from tidelog.errors import Refused as Refused
    from tidelog.sourcing.decider import Decider as Decider
    from tidelog.sourcing.event_types import EventType as EventType
    from tidelog.sourcing.event_types import OldEvent as OldEvent
    from tidelog.sourcing.given_when_then import specification as specification
    from tidelog.sourcing.personal import ERASED as ERASED
    from tidelog.sourcing.personal import Personal as Personal

HOMES = {
    "Refused": "tidelog.errors",
    "Decider": "tidelog.sourcing.decider",
    "EventType": "tidelog.sourcing.event_types",
    "OldEvent": "tidelog.sourcing.event_types",
    "ERASED": "tidelog.sourcing.personal",
    "Personal": "tidelog.sourcing.personal",
    "specification": "tidelog.sourcing.given_when_then",
}

__getattr__ = door(__name__, HOMES)
