"""When a log is compacted, how much of it, and which segments become one. Pure."""

from __future__ import annotations

from dataclasses import replace

from proving import proves
from tidelog.log.compaction.plan import MAX_SPAN, Dirt, Piece, find_dirt, in_groups, is_due
from tidelog.log.settings import DAY_MS, LogSettings

NOW = 1_700_000_000_000
SETTINGS = LogSettings(compact=True, segment_bytes=1000)
END = 40


def pieces(*sizes: int, latest: int = NOW - DAY_MS) -> list[Piece]:
    """Ten offsets each."""
    return [Piece(number * 10, number * 10 + 10, size, latest) for number, size in enumerate(sizes)]


@proves("T6", "D5")
def test_the_dirty_part_begins_where_the_last_pass_ended_and_ends_with_the_complete_segments() -> None:
    found = find_dirt(pieces(100, 200, 300, 400), 20, END, SETTINGS, NOW)
    assert found == Dirt(4, 20, 300, 700)
    assert found.ratio == 0.7
    assert find_dirt(pieces(100, 200), 13, END, SETTINGS, NOW) == Dirt(2, 13, 100, 200)
    assert find_dirt([], 0, 0, SETTINGS, NOW) == Dirt(0, 0, 0, 0)
    assert find_dirt([], 0, 0, SETTINGS, NOW).ratio == 0


@proves("T6", "D5")
def test_nothing_is_touched_from_the_segment_with_the_first_open_transaction_on() -> None:
    assert find_dirt(pieces(100, 200, 300, 400), 0, 20, SETTINGS, NOW).pieces == 2
    assert find_dirt(pieces(100, 200, 300, 400), 0, 29, SETTINGS, NOW).pieces == 2
    assert find_dirt(pieces(100, 200, 300, 400), 0, 5, SETTINGS, NOW) == Dirt(0, 0, 0, 0)


@proves("T6", "D5")
def test_what_is_younger_than_the_shortest_lag_waits_with_all_that_follows() -> None:
    settings = replace(SETTINGS, min_compaction_lag_ms=1000)
    log = pieces(1, 1, 1, 1)
    log[2] = log[2]._replace(latest=NOW - 999)
    assert find_dirt(log, 0, END, settings, NOW).pieces == 2
    assert find_dirt(log, 30, END, settings, NOW).pieces == 4  # it has been compacted: it may be so again
    assert find_dirt(log, 0, END, settings, NOW + 1).pieces == 4


@proves("T6", "D5")
def test_a_first_dirty_offset_that_cannot_be_is_taken_for_the_beginning() -> None:
    log = [piece for piece in pieces(1, 1, 1, 1) if piece.base_offset >= 20]
    assert find_dirt(log, 5, END, SETTINGS, NOW).start == 20  # retention has deleted it
    assert find_dirt(log, 77, END, SETTINGS, NOW).start == 20
    assert find_dirt(log, 40, END, SETTINGS, NOW) == Dirt(2, 40, 2, 0)


@proves("T6", "D5")
def test_a_pass_is_due_by_the_dirty_part_or_by_the_age_of_a_record() -> None:
    half = Dirt(2, 0, 50, 50)
    assert not is_due(half, None, SETTINGS, NOW)
    assert is_due(half._replace(dirty_bytes=51), None, SETTINGS, NOW)
    assert not is_due(Dirt(1, 0, 50, 0), NOW - DAY_MS, replace(SETTINGS, min_cleanable_ratio=0.0), NOW)
    late = replace(SETTINGS, max_compaction_lag_ms=1000)
    assert not is_due(half, NOW - 1000, late, NOW)
    assert is_due(half, NOW - 1001, late, NOW)
    assert not is_due(half, None, late, NOW)
    assert not is_due(half._replace(dirty_bytes=0), NOW - 5000, late, NOW)


@proves("T6", "D5")
def test_small_segments_in_a_row_become_one_and_damaged_ones_none() -> None:
    assert in_groups(pieces(400, 600, 1, 999, 1), 1000) == [range(2), range(2, 4), range(4, 5)]
    assert in_groups(pieces(5000), 1000) == [range(1)]
    assert in_groups([], 1000) == []
    log = pieces(1, 1, 1, 1, 1)
    log[2] = log[2]._replace(damaged=True)
    assert in_groups(log, 1000) == [range(2), range(3, 5)]
    far = [Piece(0, 10, 1, NOW), Piece(10, MAX_SPAN + 1, 1, NOW)]
    assert in_groups(far, 1000) == [range(1), range(1, 2)]
    assert in_groups([far[0], Piece(10, MAX_SPAN, 1, NOW)], 1000) == [range(2)]
