"""Every error that Tidelog raises on purpose, split by whose fault it is.

    TidelogError
    ├── UsageError                 the caller's: a wrong option, name or value
    │   ├── ConfigError            a setting that is unknown, malformed or refused
    │   ├── InvalidSchema          a text that is not a schema, or one that is larger than a limit
    │   ├── LostCheckpoint         a query whose sink was written by another query
    │   ├── PipelineFailed         a pipeline under test that raised an error
    │   ├── ViewChanged            a view that is declared otherwise than it was built
    │   ├── NotShown               a view that is built and not yet shown by its store
    │   ├── CursorExpired          a place in a feed that is older than the feed horizon
    │   ├── StateMismatch          the state of an operator that this query or this version cannot go on with
    │   ├── Refused                a command that its decider refused (`reason`)
    │   ├── WrongVersion           a command for a version that its history does not have (`expected`, `actual`)
    │   ├── HistoryClosed          a command to an entity whose history was closed
    │   ├── CommandConflict        a command with the id of another one
    │   ├── IncompatibleEvents     event types that do not fit those in the log
    │   └── OffsetOutOfRange       an offset that a partition does not have (`start`, `end`)
    ├── PeerError                  the other side's: bytes or answers that break the protocol
    │   ├── MalformedBatch         bytes that are not a record batch
    │   │   ├── TruncatedBatch     fewer bytes than the batch says it has
    │   │   ├── CorruptBatch       the checksum does not match
    │   │   └── OversizedBatch     its records are larger than the limit when they are decompressed
    │   ├── OutOfOrderSequence     an idempotent producer left out or repeated a batch
    │   ├── StaleProducerEpoch     an idempotent producer whose place a newer one has taken
    │   ├── OutsideTransaction     a producer with an open transaction wrote a batch that is not part of it
    │   ├── MalformedMessage       bytes that are not a request or a response
    │   ├── UndecodableValue       a record's value that is not of its schema
    │   │   └── UnknownSchema      a value whose schema its registry does not have, or not yet
    │   ├── MalformedMark          a mark of a sink that is newer than this version, or none at all
    │   ├── BrokerError            the broker answered with an error code (`code`)
    │   │   └── ProducerFenced     a transactional id whose owner is another one by now
    │   ├── AnotherApplier         a store that somebody else has written to since it was read
    │   ├── AnotherCapture         a capture whose name another one has taken since it began
    │   ├── NotYetApplied          a wait for a view that ended before the view was that far
    │   │   └── HeldBack           a wait for a time that an input which is silent holds back
    │   ├── UnknownKey             a question to a pipeline that keeps nothing of its key
    │   ├── NotAnswered            a question that a running pipeline did not answer in time
    │   ├── PipelineStopped        a question to a pipeline that does not run
    │   ├── AbortOnly              a transaction that lost something: it can be aborted, not committed
    │   ├── OutcomeUnknown         a transaction that was to be committed, and is or is not
    │   ├── TransactionTimedOut    a transaction that was open for too long: the broker aborted it
    │   ├── HistoryFault           a record of a history that cannot be read, or not be applied
    │   │   └── UnknownEvent       an event of a type or version that is not registered
    │   ├── DataLoss               offsets that a query was to read are gone
    │   ├── SourceLost             a database that no longer has all changes since the last one that was captured
    │   └── Disconnected           the connection ended or could not be made
    │       └── OpenTransaction    a transaction that is open holds up what was to be read
    ├── ListenError                the machine's: an address that is taken, or not its own
    └── StorageError               the disk's
        ├── DataFolderError        a folder that is locked, newer than this version, or not ours
        ├── BackupError            a backup that is damaged, unfinished or not ours, or cannot be taken now
        ├── HoleError              a bad batch at or below the synced offset
        ├── QueryTimedOut          a question to a store that took longer than it may
        ├── DiskFullError          no room for an append
        └── OfflineError           a partition whose sync failed; it is offline until the next start
            └── GoneError          a partition whose files were taken away while it was written to

A message is a lower-case fact with the values in it; what to do about it, if anything, follows after a semicolon.
DataFolderError and HoleError name folders: they are for whoever runs the broker, and no client is told them.
Faults of Tidelog itself are assertions, not errors of this tree.
"""

from __future__ import annotations


class TidelogError(Exception):
    pass


class UsageError(TidelogError):
    pass


class ConfigError(UsageError):
    pass


class InvalidSchema(UsageError):
    pass


class LostCheckpoint(UsageError):
    """`what` has become of the checkpoint, if that is all there is to say: for who knows a better way on."""

    def __init__(self, message: str, what: str = "") -> None:
        super().__init__(message)
        self.what = what


class PipelineFailed(UsageError):
    pass


class ViewChanged(UsageError):
    pass


class NotShown(UsageError):
    """`again_s`: after so many seconds it may be worth to ask again."""

    def __init__(self, message: str, again_s: int = 1) -> None:
        super().__init__(message)
        self.again_s = again_s


class CursorExpired(UsageError):
    """`start` is where a reader can begin anew, once it has read the view itself; a cursor's text, or None."""

    def __init__(self, message: str, start: str | None = None) -> None:
        super().__init__(message)
        self.start = start


class StateMismatch(UsageError):
    pass


class Refused(UsageError):
    """Raised by a decider. `reason` is a text, or data of a type that the decider has among its refusals."""

    def __init__(self, reason: object, message: str | None = None) -> None:
        super().__init__(message or (reason if isinstance(reason, str) else repr(reason)))
        self.reason = reason


class WrongVersion(UsageError):
    """`actual` is the version that the history has; 0 is none."""

    def __init__(self, message: str, expected: int | str, actual: int) -> None:
        super().__init__(message)
        self.expected = expected
        self.actual = actual


class HistoryClosed(UsageError):
    pass


class CommandConflict(UsageError):
    pass


class IncompatibleEvents(UsageError):
    pass


class OffsetOutOfRange(UsageError):
    """`start` and `end` are what the partition has: offsets from `start` up to and without `end`."""

    def __init__(self, message: str, start: int, end: int) -> None:
        super().__init__(message)
        self.start = start
        self.end = end


class PeerError(TidelogError):
    pass


class MalformedBatch(PeerError):
    pass


class TruncatedBatch(MalformedBatch):
    pass


class CorruptBatch(MalformedBatch):
    pass


class OversizedBatch(MalformedBatch):
    pass


class OutOfOrderSequence(PeerError):
    pass


class StaleProducerEpoch(PeerError):
    pass


class OutsideTransaction(PeerError):
    pass


class MalformedMessage(PeerError):
    pass


class UndecodableValue(PeerError):
    pass


class UnknownSchema(UndecodableValue):
    pass


class MalformedMark(PeerError):
    pass


class BrokerError(PeerError):
    """`code` is Kafka's number; its name and meaning are in `tidelog.wire.error_code`."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class ProducerFenced(BrokerError):
    pass


class AnotherApplier(PeerError):
    pass


class AnotherCapture(PeerError):
    pass


class NotYetApplied(PeerError):
    pass


class HeldBack(NotYetApplied):
    """Waiting longer does not help: only a new record does."""


class UnknownKey(PeerError):
    """A pipeline that was asked keeps nothing of it."""


class NotAnswered(PeerError):
    """A pipeline that runs did not answer in time."""


class PipelineStopped(PeerError):
    pass


class AbortOnly(PeerError):
    """The cause (`__cause__`) says what was lost."""


class OutcomeUnknown(PeerError):
    pass


class TransactionTimedOut(PeerError):
    pass


class HistoryFault(PeerError):
    pass


class UnknownEvent(HistoryFault):
    pass


class DataLoss(PeerError):
    pass


class SourceLost(PeerError):
    pass


class Disconnected(PeerError):
    pass


class OpenTransaction(Disconnected):
    pass


class ListenError(TidelogError):
    pass


class StorageError(TidelogError):
    pass


class DataFolderError(StorageError):
    pass


class BackupError(StorageError):
    pass


class HoleError(StorageError):
    pass


class QueryTimedOut(StorageError):
    pass


class DiskFullError(StorageError):
    pass


class OfflineError(StorageError):
    pass


class GoneError(OfflineError):
    pass
