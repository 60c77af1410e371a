"""Letters and delays, as functions: what a letter says, and when a record is due."""

from __future__ import annotations

import pytest

from proving import proves
from tidelog.broker.queues.delays import DELAY, DELIVER_AT, Due, due_of
from tidelog.broker.queues.letters import LETTER_BYTES, Grave, letters
from tidelog.broker.queues.looked import Looked
from tidelog.broker.queues.settings import ShareSettings
from tidelog.broker.queues.window import ACKNOWLEDGED, ARCHIVED, ARCHIVING, PARKED, QueueWindow
from tidelog.record.columns import Row, decode

NOW = 1_700_000_000_000
GRAVE = Grave("g", "jobs", b"i" * 16, 3, 5, 6, deliveries=1, limit=5, copies=True)


def row(offset: int, key: bytes | None = None, **headers: bytes) -> Row:
    pairs = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Row(offset, NOW, key, b"v%d" % offset, pairs)


@proves("T4")
@pytest.mark.parametrize(
    ("headers", "due"),
    [
        ((), Due(None)),
        (((DELAY, b"250"),), Due(NOW + 250)),
        (((DELIVER_AT, str(NOW + 9).encode()),), Due(NOW + 9)),
        (((DELIVER_AT, b"1"),), Due(1)),  # long ago: at once, and nothing is wrong with it
        (((DELAY, b"5"), (DELIVER_AT, str(NOW + 9).encode())), Due(NOW + 9)),
        (((DELAY, b"1001"),), Due(None, malformed=True)),
        (((DELAY, b"-1"),), Due(None, malformed=True)),
        (((DELAY, b"1.5"),), Due(None, malformed=True)),
        (((DELAY, b"\xff"),), Due(None, malformed=True)),
        (((DELAY, b"9" * 400),), Due(None, malformed=True)),
    ],
)
def test_when_a_record_is_due(headers: tuple[tuple[str, bytes | None], ...], due: Due) -> None:
    assert due_of(headers, NOW, 1000) == due


@proves("T4")
def test_what_cannot_be_read_any_more_has_a_letter_all_the_same() -> None:
    (batch,) = letters(GRAVE, [], readable=False, wall_ms=NOW)
    found = list(decode(batch).rows())
    assert [(one.key, one.value) for one in found] == [(None, None)] * 2
    assert [dict(one.headers)["__dlq.errors.offset"] for one in found] == [b"5", b"6"]


@proves("T4")
def test_a_letter_without_a_copy_says_only_where_its_record_was() -> None:
    (batch,) = letters(GRAVE._replace(copies=False), [row(5, b"k", trace=b"1")], readable=True, wall_ms=NOW)
    (letter,) = decode(batch).rows()
    assert (letter.key, letter.value) == (None, None) and "trace" not in dict(letter.headers)


@proves("T4")
def test_what_a_worker_says_comes_first_in_its_letter() -> None:
    told = GRAVE._replace(reasons={4: "KeyError: 'id'"})
    assert told.message(3) == "a consumer rejected it"
    assert told.message(4) == "KeyError: 'id' (a consumer rejected it)"
    assert told._replace(deliveries=5).message(4).startswith("KeyError: 'id' (it was delivered 5 times")


@proves("T4")
def test_many_large_letters_are_several_batches() -> None:
    rows = [Row(offset, NOW, None, bytes(LETTER_BYTES // 2), ()) for offset in range(4)]
    assert len(letters(GRAVE._replace(first=0, last=3), rows, readable=True, wall_ms=NOW)) == 2


@proves("T4")
def test_a_backoff_doubles_up_to_its_limit() -> None:
    settings = ShareSettings(backoff_ms=100, backoff_max_ms=1000)
    assert [settings.backoff_after(failures) for failures in (1, 2, 3, 4, 5, 10_000)] == [
        100,
        200,
        400,
        800,
        1000,
        1000,
    ]
    assert ShareSettings().backoff_after(3) == 0


@proves("T4")
def test_what_is_not_due_is_parked_by_the_monotonic_clock() -> None:
    window = QueueWindow(0)
    looked = Looked(window, by_key=False)
    first = looked.look([row(0, tidelog_delay_ms=b"500"), row(1), row(2, tidelog_delay_ms=b"x")], 3, 1000, NOW, 77)
    assert (first, window.held[PARKED], looked.malformed, looked.upto) == (577, 1, 1, 3)
    assert window.next_free() == 1
    assert [span.first for span in window.take_due(577)] == [0]


@proves("T4")
def test_a_key_goes_to_nobody_until_its_first_record_is_done() -> None:
    """Nor to who has the first: a worker with many threads would do both at once."""
    window = QueueWindow(0)
    looked = Looked(window, by_key=True)
    looked.look([row(0, b"a"), row(1, b"b"), row(2, b"a"), row(3), row(4, b"b"), row(5)], 6, 0, NOW, 0)
    assert looked.candidates(2) == [0, 1]
    assert looked.candidates(9) == [0, 1, 3, 5]
    window.acquire("one", 0, 1, 1, 100)
    assert looked.candidates(9) == [1, 3, 5]
    window.acquire("two", 1, 2, 1, 100)
    assert looked.candidates(9) == [3, 5]
    window.put(0, 0, 0, 1)  # released: it is the next of its key
    assert looked.candidates(9) == [0, 3, 5]
    window.put(1, 1, ACKNOWLEDGED, 1)
    assert looked.candidates(9) == [0, 3, 4, 5]
    window.put(0, 0, ARCHIVING, 2)  # until its letter is written
    assert looked.candidates(9) == [3, 4, 5]
    window.put(0, 0, ARCHIVED, 2)
    assert looked.candidates(9) == [2, 3, 4, 5]
    looked.look([row(6, b"c")], 7, 0, NOW, 0)
    assert looked.candidates(9) == [2, 3, 4, 5, 6]


@proves("T4")
def test_a_producers_clock_that_is_ahead_makes_nothing_wait_for_longer_than_the_topic_allows() -> None:
    window = QueueWindow(0)
    looked = Looked(window, by_key=False)
    years = 10 * 365 * 86_400_000
    ahead = row(0, tidelog_delay_ms=b"500")._replace(timestamp=NOW + years)
    assert looked.look([ahead], 1, 1000, NOW, 77) == 77 + 1000
    assert [span.first for span in window.take_due(1077)] == [0]
