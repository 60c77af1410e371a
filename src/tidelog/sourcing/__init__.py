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
    from tidelog.sourcing.effects import Effects as Effects
    from tidelog.sourcing.erasure.cipher import SubjectCipher as SubjectCipher
    from tidelog.sourcing.erasure.erasing import erase as erase
    from tidelog.sourcing.event_record import EventRecord as EventRecord
    from tidelog.sourcing.event_types import EventType as EventType
    from tidelog.sourcing.event_types import OldEvent as OldEvent
    from tidelog.sourcing.given_when_then import specification as specification
    from tidelog.sourcing.personal import ERASED as ERASED
    from tidelog.sourcing.personal import Cipher as Cipher
    from tidelog.sourcing.personal import Personal as Personal
    from tidelog.sourcing.process_manager import ClearTimer as ClearTimer
    from tidelog.sourcing.process_manager import CommandRefused as CommandRefused
    from tidelog.sourcing.process_manager import ProcessManager as ProcessManager
    from tidelog.sourcing.process_manager import Send as Send
    from tidelog.sourcing.process_manager import SetTimer as SetTimer
    from tidelog.sourcing.process_manager import TimedOut as TimedOut
    from tidelog.sourcing.read_model import ReadModel as ReadModel
    from tidelog.sourcing.requests import HISTORY_EXISTS as HISTORY_EXISTS
    from tidelog.sourcing.requests import NO_HISTORY as NO_HISTORY
    from tidelog.sourcing.requests import EntityState as EntityState
    from tidelog.sourcing.requests import Receipt as Receipt
    from tidelog.sourcing.store import EventStore as EventStore
    from tidelog.sourcing.time_travel import FieldChange as FieldChange
    from tidelog.sourcing.time_travel import PastState as PastState

HOMES = {
    "Refused": "tidelog.errors",
    "Decider": "tidelog.sourcing.decider",
    "EventType": "tidelog.sourcing.event_types",
    "OldEvent": "tidelog.sourcing.event_types",
    "ERASED": "tidelog.sourcing.personal",
    "Personal": "tidelog.sourcing.personal",
    "Cipher": "tidelog.sourcing.personal",
    "SubjectCipher": "tidelog.sourcing.erasure.cipher",
    "erase": "tidelog.sourcing.erasure.erasing",
    "FieldChange": "tidelog.sourcing.time_travel",
    "PastState": "tidelog.sourcing.time_travel",
    "EventRecord": "tidelog.sourcing.event_record",
    "ReadModel": "tidelog.sourcing.read_model",
    "ProcessManager": "tidelog.sourcing.process_manager",
    "CommandRefused": "tidelog.sourcing.process_manager",
    "Send": "tidelog.sourcing.process_manager",
    "SetTimer": "tidelog.sourcing.process_manager",
    "ClearTimer": "tidelog.sourcing.process_manager",
    "TimedOut": "tidelog.sourcing.process_manager",
    "Effects": "tidelog.sourcing.effects",
    "HISTORY_EXISTS": "tidelog.sourcing.requests",
    "NO_HISTORY": "tidelog.sourcing.requests",
    "EntityState": "tidelog.sourcing.requests",
    "Receipt": "tidelog.sourcing.requests",
    "EventStore": "tidelog.sourcing.store",
    "specification": "tidelog.sourcing.given_when_then",
}

__getattr__, __dir__ = door(__name__, HOMES)
