"""One entity as its owner knows it: state, version, and the commands that made the last events. Snapshots are of this.

Rules:
- `version` counts the events of the history; 0 is an entity without one.
- `commands` has the last REMEMBERED commands that wrote events, the oldest first: id to [digest, first version, last
  version, offset of the last event]. A command with one of these ids is not decided again. One that was refused, or
  that decided nothing, is not remembered.
- Only the fold (`Folding`) and a decision (`deciding.py`) change an entity.
"""

from __future__ import annotations

from typing import Any

from tidelog.errors import Disconnected, HistoryFault, UnknownEvent
from tidelog.record.columns import Row
from tidelog.sourcing.codec import JsonCodec
from tidelog.sourcing.decider import Decider
from tidelog.sourcing.event_record import EventRecord, events_of, parse
from tidelog.sourcing.personal import Cipher

REMEMBERED = 1_000  # commands of an entity by default
REFUSE, SKIP = "refuse", "skip"  # what an unknown event does
SNAPSHOT_FORMAT = 1

Remembered = list[Any]  # digest, first version, last version, offset


class LoadedEntity:
    __slots__ = ("closed", "commands", "fault", "state", "version")

    def __init__(
        self,
        state: Any,
        version: int = 0,
        *,
        closed: bool = False,
        commands: dict[str, Remembered] | None = None,
        fault: HistoryFault | None = None,
    ) -> None:
        self.state = state
        self.version = version
        self.closed = closed
        self.commands = {} if commands is None else commands
        self.fault = fault  # a history that cannot be read takes no commands

    def copy(self) -> LoadedEntity:
        return LoadedEntity(
            self.state, self.version, closed=self.closed, commands=dict(self.commands), fault=self.fault
        )

    def remember(self, command: str, remembered: Remembered, at_most: int) -> None:
        self.commands[command] = remembered
        while len(self.commands) > at_most:
            del self.commands[next(iter(self.commands))]


class Folding:
    """Rows of a history become an entity: the one fold, for owners and for who reads beside them."""

    def __init__(
        self,
        decider: Decider[Any],
        *,
        cipher: Cipher | None = None,
        unknown: str = REFUSE,
        remembered: int = REMEMBERED,
    ) -> None:
        self.decider, self.cipher = decider, cipher
        self._types, self._apply = decider.types, decider.apply
        self._unknown, self._remembered = unknown, remembered
        self._snapshots = JsonCodec(dict[str, Any])

    def fresh(self) -> LoadedEntity:
        return LoadedEntity(self.decider.initial)

    def apply(self, entity: LoadedEntity, record: EventRecord, row: Row) -> bool:
        """Whether it was the next of its history. One that is there already is passed over: the first counts, for
        everybody who reads.
        """
        if entity.fault is not None or record.version <= entity.version:
            return False
        if record.version != entity.version + 1:
            entity.fault = HistoryFault(
                f"version {record.version} of {record.entity!r}, at offset {row.offset}, comes after version"
                f" {entity.version}; events between them are gone"
            )
            return False
        try:
            for event in events_of(record, row, self._types, self.cipher):
                entity.state = self._apply(entity.state, event)
        except UnknownEvent as error:
            if self._unknown != SKIP:
                entity.fault = error
                return False
        except HistoryFault as error:
            entity.fault = error
            return False
        except Disconnected:
            raise  # of the store of keys: it is read again when that is back
        except Exception as error:
            entity.fault = HistoryFault(
                f"version {record.version} of {record.entity!r} cannot be applied: {error!r}; apply must take every"
                " event that is stored"
            )
            return False
        entity.version = record.version
        entity.closed = entity.closed or record.closes
        known = entity.commands.get(record.command)
        if known is None:
            entity.remember(
                record.command, [record.digest, record.version, record.version, row.offset], self._remembered
            )
        else:
            known[2], known[3] = record.version, row.offset
        return True

    @staticmethod
    def parse(row: Row) -> EventRecord | None:
        """None for a record that no store wrote: it is not an event."""
        try:
            return parse(row)
        except HistoryFault:
            return None

    # Snapshots

    @property
    def snapshot_schema(self) -> bytes:
        return f"{SNAPSHOT_FORMAT}-{self.decider.state_schema}".encode()

    def encode(self, name: str, entity: LoadedEntity) -> bytes:
        states = self.decider.states
        state = states.encode(entity.state, name, f"{name}/{entity.version}/snapshot", self.cipher)
        commands = [[command, *remembered] for command, remembered in entity.commands.items()]
        rest = self._snapshots.encode({"version": entity.version, "closed": entity.closed, "commands": commands})
        return b'{"v":1,"state":' + state + b"," + rest[1:]

    def decode(self, name: str, value: bytes) -> LoadedEntity:
        """What is not a snapshot of this state is a `HistoryFault`."""
        fields = self._snapshots.decode(value)
        try:
            version, commands = int(fields["version"]), fields["commands"]
            state = self.decider.states.from_fields(fields["state"], name, f"{name}/{version}/snapshot", self.cipher)
            known = {str(command): list(rest) for command, *rest in commands}
            return LoadedEntity(state, version, closed=bool(fields["closed"]), commands=known)
        except (KeyError, TypeError, ValueError) as error:
            raise HistoryFault(f"the snapshot of {name!r} cannot be read: {error!r}") from error
