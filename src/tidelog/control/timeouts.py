"""A commit that takes longer than its transaction may be open: said as such.

A broker aborts a transaction that is open for longer than its owner asked for, and fences that owner: the same answer
as when somebody else takes the transactional id. To the first nothing but more time or fewer rows helps, and a second
try takes as long again; after the second, whoever was fenced may look what was written and try again.

    fenced before its time was over                                 somebody else took the id
    fenced later, and the id is at the abort, one epoch further     the broker aborted it: `TransactionTimedOut`
    fenced later, and the id is further than that                   somebody else took it, then or before

Who takes an id from an open transaction moves its epoch twice: once for the abort, and once to have one of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tidelog.client.admin.transactions import TransactionDescription, describe
from tidelog.client.identity import ProducerIdentity
from tidelog.client.transactions import Transactions
from tidelog.errors import AbortOnly, OutcomeUnknown, PeerError, ProducerFenced, TransactionTimedOut

ABORTED_STATES = ("PrepareAbort", "CompleteAbort")


@contextmanager
def in_time(owner: Transactions, what: str, option: str, smaller: str) -> Iterator[None]:
    """Around one transaction of its owner. An error names `what` took too long, and says to raise the `option` or to
    make `what` smaller.
    """
    begun = time.monotonic()
    try:
        yield
    except (ProducerFenced, AbortOnly, OutcomeUnknown) as error:
        seconds = time.monotonic() - begun
        if seconds * 1000 >= owner.timeout_ms and _was_aborted(owner):
            raise TransactionTimedOut(
                f"{what} took {seconds:.1f} s and was aborted by the broker, since its {option} is {owner.timeout_ms};"
                f" nothing of it counts: raise that option, up to the broker's transaction.max.timeout.ms, or {smaller}"
            ) from error
        raise


def _was_aborted(owner: Transactions) -> bool:
    """By the time alone, where the broker does not tell."""
    try:
        return is_aborted(describe(owner.cluster, owner.transactional_id), owner.identity)
    except PeerError:
        return True


def is_aborted(found: TransactionDescription, identity: ProducerIdentity) -> bool:
    """Whether the transaction that the identity had open was the id's last, and is aborted."""
    theirs = found.producer_id == identity.producer_id and found.epoch <= identity.producer_epoch + 1
    return theirs and found.state in ABORTED_STATES
