"""Every error that Tidelog raises on purpose, split by whose fault it is.

    TidelogError
    ├── UsageError                 the caller's: a wrong option, name or value
    │   └── ConfigError            a setting that is unknown, malformed or refused
    ├── PeerError                  the other side's: bytes or answers that break the protocol
    │   ├── MalformedBatch         bytes that are not a record batch
    │   │   ├── TruncatedBatch     fewer bytes than the batch says it has
    │   │   └── CorruptBatch       the checksum does not match
    │   ├── MalformedMessage       bytes that are not a request or a response
    │   ├── BrokerError            the broker answered with an error code (`code`)
    │   └── Disconnected           the connection ended or could not be made
    └── StorageError               the disk's
        ├── DataFolderError        a folder that is locked, newer than this version, or not ours
        ├── HoleError              a bad batch at or below the synced offset
        ├── DiskFullError          no room for an append
        └── OfflineError           a partition whose sync failed; it is offline until recovery

A message is a lower-case fact with the values in it; what to do about it, if anything, follows after a semicolon.
Faults of Tidelog itself are assertions, not errors of this tree.
"""

from __future__ import annotations


class TidelogError(Exception):
    pass


class UsageError(TidelogError):
    pass


class ConfigError(UsageError):
    pass


class PeerError(TidelogError):
    pass


class MalformedBatch(PeerError):
    pass


class TruncatedBatch(MalformedBatch):
    pass


class CorruptBatch(MalformedBatch):
    pass


class MalformedMessage(PeerError):
    pass


class BrokerError(PeerError):
    """`code` is Kafka's number; its name and meaning are in `tidelog.wire.error_code`."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Disconnected(PeerError):
    pass


class StorageError(TidelogError):
    pass


class DataFolderError(StorageError):
    pass


class HoleError(StorageError):
    pass


class DiskFullError(StorageError):
    pass


class OfflineError(StorageError):
    pass
