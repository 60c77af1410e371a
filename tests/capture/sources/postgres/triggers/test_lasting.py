"""How far what is seen may go: the rules, without a server."""

from __future__ import annotations

from proving import proves
from tidelog.capture.sources.postgres.triggers.lasting import LastingNumbers
from tidelog.capture.sources.postgres.triggers.seen import seen_of


@proves("cdc.1")
def test_a_snapshot_that_ends_earlier_has_nothing_from_there_on() -> None:
    whole = seen_of("5:12:5,7,10")
    assert whole.below(12) is whole
    assert whole.below(20) is whole
    assert whole.below(10).text == "5:10:5,7"
    assert whole.below(6).text == "5:6:5"
    assert whole.below(5).text == "5:5:"
    assert seen_of("10:12:10").below(9).text == "9:9:"
    assert [xid for xid in range(15) if whole.has(xid) and not whole.below(9).has(xid)] == [9, 11]


@proves("cdc.1")
def test_numbers_last_when_the_log_behind_them_is_flushed() -> None:
    server, another = object(), object()
    numbers = LastingNumbers(10)
    numbers.look(12, 200, 100, by=server)
    assert numbers.end == 10
    numbers.look(14, 300, 150, by=server)
    numbers.look(16, 400, 200, by=server)
    assert numbers.end == 12, "that of the first look, behind which it is flushed"
    numbers.look(16, 400, 400, by=server)
    assert numbers.end == 16
    numbers.look(18, 500, 450, by=server)
    numbers.look(17, 600, 550, by=another)
    assert numbers.end == 16, "a server that was killed has something else at that place"
    numbers.look(17, 700, 600, by=another)
    assert numbers.end == 17
    numbers.reach(15)
    assert numbers.end == 17
