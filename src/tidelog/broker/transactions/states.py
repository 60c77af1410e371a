"""The states of a transactional id, in one table: what moves it from one to the next.

                     INITIALISED   ADDED     COMMITTED       ABORTED        NOTHING_ABORTED   MARKED           EXPIRED
    Empty            Empty         Ongoing                                  CompleteAbort                      Dead
    Ongoing                        Ongoing   PrepareCommit   PrepareAbort
    PrepareCommit                                                                             CompleteCommit
    PrepareAbort                                                                              CompleteAbort
    CompleteCommit   Empty         Ongoing                                  CompleteAbort                      Dead
    CompleteAbort    Empty         Ongoing                                  CompleteAbort                      Dead

    INITIALISED       InitProducerId: a new epoch, and all older ones are fenced
    ADDED             a partition or a group joined the transaction; the first one begins it
    COMMITTED         EndTxn. From here on there is no way back: the record of it is the transaction's outcome
    ABORTED           EndTxn, a time-out, or a newer producer that wants the id
    NOTHING_ABORTED   EndTxn of transaction version 2 before anything was added: only the epoch moves
    MARKED            the outcome is visible in every partition and group
    EXPIRED           unused for transactional.id.expiration.ms. A dead id is forgotten at once: Dead is only ever said

The names are Kafka's: tools show them.
"""

from __future__ import annotations

from enum import Enum


class State(Enum):
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"


class TransactionEvent(Enum):
    INITIALISED = "initialised"
    ADDED = "added"
    COMMITTED = "committed"
    ABORTED = "aborted"
    NOTHING_ABORTED = "nothing aborted"
    MARKED = "marked"
    EXPIRED = "expired"


AT_REST = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
PREPARED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)

MOVES: dict[tuple[State, TransactionEvent], State] = {
    (State.ONGOING, TransactionEvent.ADDED): State.ONGOING,
    (State.ONGOING, TransactionEvent.COMMITTED): State.PREPARE_COMMIT,
    (State.ONGOING, TransactionEvent.ABORTED): State.PREPARE_ABORT,
    (State.PREPARE_COMMIT, TransactionEvent.MARKED): State.COMPLETE_COMMIT,
    (State.PREPARE_ABORT, TransactionEvent.MARKED): State.COMPLETE_ABORT,
    **{(state, TransactionEvent.INITIALISED): State.EMPTY for state in AT_REST},
    **{(state, TransactionEvent.ADDED): State.ONGOING for state in AT_REST},
    **{(state, TransactionEvent.NOTHING_ABORTED): State.COMPLETE_ABORT for state in AT_REST},
    **{(state, TransactionEvent.EXPIRED): State.DEAD for state in AT_REST},
}
