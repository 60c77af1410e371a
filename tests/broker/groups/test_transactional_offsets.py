"""Offsets that a transaction commits: pending while it is open, then all of them or none."""

from __future__ import annotations

from typing import Any

import pytest

from broker.groups.shell import GROUP, Shell
from proving import proves
from tidelog.broker.groups.commits import decide_commit, decide_fetch
from tidelog.broker.groups.removal import decide_delete_groups, decide_topics_deleted
from tidelog.broker.groups.transactional_offsets import decide_end, decide_txn_commit, hide_unstable
from tidelog.wire.error_code import ErrorCode as E
from tidelog.wire.messages.delete_groups import DeleteGroupsRequest
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

PRODUCER, OTHER = 7, 8


@pytest.fixture
def shell() -> Shell:
    return Shell({"orders": 2})


def pend(
    shell: Shell, offset: int, *, producer: int = PRODUCER, place: tuple[str, int] = ("orders", 0), **who: Any
) -> int:
    part = TxnOffsetCommitRequestPartition(partition_index=place[1], committed_offset=offset, committed_metadata="m")
    topics = [TxnOffsetCommitRequestTopic(name=place[0], partitions=[part])]
    request = TxnOffsetCommitRequest(group_id=GROUP, producer_id=producer, topics=topics, **who)
    ticket = shell.ticket("pend")
    shell.commit(decide_txn_commit(shell.state, request, ticket, shell.now))
    code: int = shell.replies[ticket].topics[0].partitions[0].error_code
    return code


def end(shell: Shell, commit: bool, producer: int = PRODUCER) -> None:
    ticket = shell.ticket("end")
    shell.commit(decide_end(shell.state, producer, [GROUP, "other"], commit, ticket))
    assert shell.replies[ticket].error_code == E.NONE


def plain_commit(shell: Shell, offset: int) -> None:
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [OffsetCommitRequestTopic(name="orders", partitions=[part])]
    request = OffsetCommitRequest(group_id=GROUP, topics=topics)
    shell.commit(decide_commit(shell.state, request, 8, shell.ticket("commit"), shell.now))


def fetched(shell: Shell, *, stable: bool, version: int = 7) -> tuple[int, int]:
    asked = OffsetFetchRequestTopic(name="orders", partition_indexes=[0])
    request = OffsetFetchRequest(group_id=GROUP, topics=[asked], require_stable=stable)
    decision = decide_fetch(shell.state, request, version, "ticket")
    [(_, reply)] = decision.replies
    if stable:
        hide_unstable(shell.state, reply, GROUP)
    [found] = reply.topics[0].partitions
    return found.error_code, found.committed_offset


@proves("F2")
@pytest.mark.parametrize(("commit", "after"), [(True, 5), (False, 3)])
def test_pending_offsets_count_only_when_their_transaction_commits(shell: Shell, commit: bool, after: int) -> None:
    plain_commit(shell, 3)
    assert pend(shell, 5) == E.NONE
    assert fetched(shell, stable=False) == (E.NONE, 3)
    assert fetched(shell, stable=True) == (E.UNSTABLE_OFFSET_COMMIT, -1)
    end(shell, commit)
    assert fetched(shell, stable=True) == (E.NONE, after)
    assert shell.state.pending == {}


@proves("F2")
def test_a_second_end_changes_nothing_also_not_what_was_committed_since(shell: Shell) -> None:
    pend(shell, 5)
    end(shell, True)
    shell.wait(1)
    plain_commit(shell, 2)
    end(shell, True)
    assert fetched(shell, stable=True) == (E.NONE, 2)


@proves("F2")
def test_the_transactions_of_two_producers_end_apart(shell: Shell) -> None:
    pend(shell, 5)
    shell.wait(1)
    pend(shell, 6, producer=OTHER)
    end(shell, True, OTHER)
    assert fetched(shell, stable=True) == (E.UNSTABLE_OFFSET_COMMIT, -1)
    end(shell, True)
    assert fetched(shell, stable=True) == (E.NONE, 6), "it was committed later"


@proves("F2", "T6")
def test_pending_offsets_survive_a_restart(shell: Shell) -> None:
    pend(shell, 5)
    pending = dict(shell.state.pending)
    shell.restart()
    assert shell.state.pending == pending
    end(shell, True)
    assert fetched(shell, stable=True) == (E.NONE, 5)


@proves("F2")
def test_what_is_pending_for_a_deleted_topic_or_group_is_gone(shell: Shell) -> None:
    pend(shell, 5)
    shell.commit(decide_topics_deleted(shell.state, ["orders"]))
    assert shell.state.pending == {}
    pend(shell, 5)
    request = DeleteGroupsRequest(groups_names=[GROUP])
    shell.commit(decide_delete_groups(shell.state, request, shell.ticket("delete")))
    assert shell.state.pending == {}
    end(shell, True)
    assert shell.state.offsets == {}


@proves("F3")
def test_a_place_that_is_not_there_and_a_member_that_is_not_known_are_refused(shell: Shell) -> None:
    assert pend(shell, 5, place=("orders", 2)) == E.UNKNOWN_TOPIC_OR_PARTITION
    assert pend(shell, 5, place=("gone", 0)) == E.UNKNOWN_TOPIC_OR_PARTITION
    assert pend(shell, 5, generation_id=1, member_id="m") == E.ILLEGAL_GENERATION
    assert shell.state.pending == {}
