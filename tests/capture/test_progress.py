"""Progress: a fold that, cut anywhere, goes on with the row behind the last that is stored."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.capture.change import CREATE, Begin, Commit, Event, Idle, Message, RowChange, SourceColumn, SourceTable
from tidelog.capture.progress import CaptureProgress, Passing, apply, from_fields, to_fields
from tidelog.errors import MalformedMark, SourceLost

TABLE = SourceTable("main", "kv", (SourceColumn("id", {"type": "int64", "optional": False}),), ("id",))


def transactions(sizes: list[int]) -> list[Event]:
    """Many of them share one position's text with others' rows: only the id and the count tell them apart."""
    events: list[Event] = []
    for number, size in enumerate(sizes):
        events.append(Begin(str(number), 0))
        events += [RowChange(TABLE, CREATE, None, (str(row),)) for row in range(size)]
        events.append(Commit({"lsn": number + 1}, 0))
    return events


def streamed(events: list[Event], position: object) -> list[Event]:
    """As a source gives them after a restart: from the first transaction behind the position, from its Begin."""
    if position is None:
        return events
    at = next(place for place, one in enumerate(events) if isinstance(one, Commit) and one.position == position)
    return events[at + 1 :]


@proves("cdc.2", "cdc.3", "cdc.33")
@given(sizes=st.lists(st.integers(0, 4), min_size=1, max_size=6), cuts=st.lists(st.integers(1, 7), max_size=8))
def test_cut_anywhere_each_row_is_written_once_and_none_is_lost(sizes: list[int], cuts: list[int]) -> None:
    events = transactions(sizes)
    progress, written = CaptureProgress(), []
    for cut in [*cuts, len(events)]:
        passing = Passing(progress)
        rest = streamed(events, progress.position)
        base = CaptureProgress(progress.position)
        stored, fresh = passing.split(rest)
        taken = fresh[:cut]  # what one transaction of the log has before the crash
        assert [type(one) for one in (*stored, *fresh)] == [type(one) for one in rest]
        written += [one for one in taken if isinstance(one, RowChange)]
        progress = from_fields(json.loads(json.dumps(to_fields(apply(base, [*stored, *taken])))))
    assert written == [one for one in events if isinstance(one, RowChange)]
    assert progress == CaptureProgress({"lsn": len(sizes)})


@proves("cdc.7")
def test_a_source_that_begins_with_another_transaction_has_lost_one() -> None:
    passing = Passing(CaptureProgress({"lsn": 1}, open="7", rows=2))
    with pytest.raises(SourceLost, match="of transaction 7 the first 2 rows are stored"):
        passing.split([Begin("8", 0)])


@proves("cdc.7")
def test_a_transaction_that_is_shorter_than_what_is_stored_of_it_is_not_taken() -> None:
    passing = Passing(CaptureProgress({"lsn": 1}, open="7", rows=2))
    with pytest.raises(SourceLost, match="does not give what it gave before"):
        passing.split([Begin("7", 0), RowChange(TABLE, CREATE, None, ("1",)), Commit({"lsn": 2}, 0)])


@proves("cdc.4")
def test_idle_moves_the_position_only_where_nothing_is_open() -> None:
    assert apply(CaptureProgress({"lsn": 1}), [Idle({"lsn": 5}, 0)]).position == {"lsn": 5}
    assert apply(CaptureProgress({"lsn": 1}, open="7", rows=1), [Idle({"lsn": 5}, 0)]).position == {"lsn": 1}


@proves("cdc.3")
def test_messages_in_a_transaction_count_as_rows_do_and_others_do_not() -> None:
    message = Message("p", b"", True)
    assert apply(CaptureProgress(), [Begin("1", 0), message]).rows == 1
    assert apply(CaptureProgress(), [message]).rows == 0


@proves("F1")
@pytest.mark.parametrize("content", [{}, {"position": 1, "open": 5}, {"position": None, "open": {"rows": "x"}}])
def test_what_is_not_progress_is_refused(content: dict[str, object]) -> None:
    with pytest.raises(MalformedMark, match="progress cannot be read"):
        from_fields(content)
