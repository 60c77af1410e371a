"""The records of groups: what they look like, and that nothing is skipped."""

from __future__ import annotations

import json

import pytest

from broker.groups.shell import GROUP, Shell
from proving import proves
from tidelog.broker.groups.classic_requests import decide_leave, decide_sync
from tidelog.broker.groups.commits import decide_commit
from tidelog.broker.groups.refusal import decide_abandonment, decide_refusal
from tidelog.broker.groups.state import apply, fresh
from tidelog.errors import DataFolderError
from tidelog.wire.error_code import ErrorCode as E
from tidelog.wire.messages.leave_group import LeaveGroupRequest
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.wire.messages.sync_group import SyncGroupRequest


@proves("T6", "T7")
def test_records_are_json_with_a_version_in_the_key() -> None:
    shell = Shell({"orders": 2})
    [member] = shell.stable(1)
    shell.commit_offsets({("orders", 1): 7}, member_id=member, generation=1, metadata="m")
    classic, offset = [(json.loads(one.key), json.loads(one.value or b"null")) for one in shell.log]
    assert classic[0] == {"v": 1, "kind": "classic", "group": GROUP}
    assert classic[1]["generation"] == 1
    assert offset == (
        {"v": 1, "kind": "offset", "group": GROUP, "topic": "orders", "partition": 1},
        {"offset": 7, "epoch": 3, "metadata": "m", "at": shell.now.wall_ms},
    )


@proves("T6")
@pytest.mark.parametrize(
    "key", [b'{"v":2,"kind":"offset","group":"g","topic":"t","partition":0}', b'{"v":1,"kind":"queue","group":"g"}']
)
def test_a_record_from_the_future_stops_the_fold(key: bytes) -> None:
    with pytest.raises(DataFolderError, match="newer than this Tidelog"):
        apply(fresh(), key, b"{}")


@proves("T6")
def test_a_tombstone_of_what_is_not_there_changes_nothing() -> None:
    state = fresh()
    for key in (
        b'{"v":1,"kind":"offset","group":"g","topic":"t","partition":0}',
        b'{"v":1,"kind":"classic","group":"g"}',
        b'{"v":1,"kind":"consumer","group":"g"}',
        b'{"v":1,"kind":"member","group":"g","member":"m"}',
    ):
        apply(state, key, None)
    assert state == fresh()


# When a decision cannot be written --------------------------------------------------------------------------------


@proves("T6")
def test_a_sync_that_could_not_be_written_sends_everybody_to_try_again() -> None:
    shell = Shell()
    [first] = shell.stable(1)
    newcomer = shell.join()
    shell.join(first)
    second = shell.joined(newcomer).member_id
    waiting = shell.sync(second, 2)
    ticket = shell.ticket("sync")
    request = SyncGroupRequest(group_id=GROUP, generation_id=2, member_id=first)
    unwritten = decide_sync(shell.state, request, ticket, shell.now)
    assert unwritten.records
    shell.commit(decide_refusal(shell.state, unwritten, shell.now))
    assert shell.synced(ticket).error_code == E.COORDINATOR_NOT_AVAILABLE
    assert shell.synced(waiting).error_code == E.COORDINATOR_NOT_AVAILABLE
    assert shell.unanswered() == []
    # The group is what it was when it was last written.
    assert shell.heartbeat(first, 1) == 0
    assert shell.heartbeat(second, 2) == E.UNKNOWN_MEMBER_ID
    shell.check_folds()


@proves("T6")
def test_when_the_shell_folds_anew_everybody_who_waits_is_told() -> None:
    shell = Shell()
    [first] = shell.stable(1)
    newcomer = shell.join()
    shell.join(first)
    waiting = [shell.sync(shell.joined(newcomer).member_id, 2), shell.join(group="other", version=0)]
    waiting.append(shell.join(group="other", version=0))
    shell.commit(decide_abandonment(shell.state))
    shell.restart()
    assert {shell.replies[ticket].error_code for ticket in (waiting[0], waiting[2])} == {E.COORDINATOR_NOT_AVAILABLE}
    assert shell.unanswered() == []


@proves("T6")
def test_the_last_leave_that_could_not_be_written_did_not_happen() -> None:
    shell = Shell()
    [first] = shell.stable(1)
    ticket = shell.ticket("leave")
    request = LeaveGroupRequest(group_id=GROUP, member_id=first)
    unwritten = decide_leave(shell.state, request, 1, ticket, shell.now)
    assert unwritten.records
    shell.commit(decide_refusal(shell.state, unwritten, shell.now))
    assert shell.replies[ticket].error_code == E.COORDINATOR_NOT_AVAILABLE
    assert shell.heartbeat(first, 1) == 0


@proves("T6")
def test_a_commit_that_could_not_be_written_is_refused_where_it_was_taken() -> None:
    shell = Shell({"orders": 1})
    partitions = [OffsetCommitRequestPartition(partition_index=index, committed_offset=1) for index in (0, 1)]
    request = OffsetCommitRequest(
        group_id=GROUP, topics=[OffsetCommitRequestTopic(name="orders", partitions=partitions)]
    )
    ticket = shell.ticket("commit")
    unwritten = decide_commit(shell.state, request, 5, ticket, shell.now)
    shell.commit(decide_refusal(shell.state, unwritten, shell.now))
    codes = [one.error_code for one in shell.replies[ticket].topics[0].partitions]
    assert codes == [E.COORDINATOR_NOT_AVAILABLE, E.UNKNOWN_TOPIC_OR_PARTITION]
