"""What becomes of a request about a transaction: an outcome now, or later.

`TransactionOutcome` is the reply of a decision; handlers turn it into a response of their version. `Later` says that
nothing can be decided yet and what must come first: the shell waits for it and asks again.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from tidelog.broker.decision import Decision, Ticket
from tidelog.broker.transactions.state import NO_EPOCH, NO_PRODUCER
from tidelog.wire.error_code import ErrorCode


class TransactionOutcome(NamedTuple):
    error_code: int = ErrorCode.NONE
    producer_id: int = NO_PRODUCER
    epoch: int = NO_EPOCH


class Later(Enum):
    SETTLED = "when the markers of the last transaction are written"
    PRODUCER_ID = "when there is a producer id that was never used"


DONE = TransactionOutcome()


def refuse(ticket: Ticket, error_code: int) -> Decision:
    return Decision([], [(ticket, TransactionOutcome(error_code))])
