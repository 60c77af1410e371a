"""What becomes of records by what is said of them: one table, and what is refused as a whole."""

from __future__ import annotations

import pytest

from proving import proves
from tidelog.broker.queues.acknowledging import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Acked,
    RefusedAcks,
    decide_acks,
)
from tidelog.broker.queues.fairness import REST_MAX, fair_share, rest_at_once
from tidelog.broker.queues.settings import duration_ms, is_reset
from tidelog.broker.queues.window import ACKNOWLEDGED, ARCHIVED, AVAILABLE, QueueWindow
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.share_fetch import AcknowledgementBatch
from tidelog.wire.own_tags import REASON, REASON_BYTES_MAX

LIMIT = 3


def window_of(owner: str, count: int = 10) -> QueueWindow:
    window = QueueWindow(0)
    window.acquire(owner, 0, count, count, 1000)
    return window


def said(first: int, last: int, *types: int) -> AcknowledgementBatch:
    return AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))


def taken(window: QueueWindow, *batches: AcknowledgementBatch) -> Acked:
    acked = decide_acks(window, "me", batches, LIMIT, True)
    assert isinstance(acked, Acked), acked
    return acked


@proves("T4")
def test_each_type_has_its_own_end() -> None:
    acked = taken(window_of("me"), said(0, 4, GAP, ACCEPT, RELEASE, REJECT, RENEW))
    assert [span[:4] for span in acked.spans] == [(0, 0, ARCHIVED, 1), (1, 1, ACKNOWLEDGED, 1), (2, 2, AVAILABLE, 1)]
    assert [span[:2] for span in acked.dead] == [(3, 3)]
    assert acked.renewed == [(4, 4)]


@proves("T4")
def test_one_type_may_stand_for_all_and_equal_ones_become_a_range() -> None:
    assert [span[:2] for span in taken(window_of("me"), said(0, 9, ACCEPT)).spans] == [(0, 9)]
    mixed = taken(window_of("me"), said(0, 3, ACCEPT, ACCEPT, RELEASE, RELEASE), said(5, 6, ACCEPT))
    assert [span[:2] for span in mixed.spans] == [(0, 1), (2, 3), (5, 6)]


@proves("T4")
def test_the_last_delivery_that_is_released_is_the_end() -> None:
    window = window_of("me", 1)
    for count in (1, 2):
        window.put(0, 0, AVAILABLE, count)
        window.acquire("me", 0, 1, 1, 1000)
    acked = taken(window, said(0, 0, RELEASE))
    assert not acked.spans and acked.dead[0].count == LIMIT


@proves("T4")
@pytest.mark.parametrize(
    ("owner", "batches"),
    [
        ("other", [said(0, 9, ACCEPT)]),  # another has them
        ("me", [said(8, 10, ACCEPT)]),  # one was never given
        ("me", [said(0, 1, ACCEPT), said(20, 20, ACCEPT)]),
    ],
)
def test_one_record_that_is_not_acquired_refuses_all_of_them(owner: str, batches: list[AcknowledgementBatch]) -> None:
    refused = decide_acks(window_of(owner), "me", batches, LIMIT, True)
    assert isinstance(refused, RefusedAcks) and refused.code == ErrorCode.INVALID_RECORD_STATE


@proves("T4")
@pytest.mark.parametrize(
    "batches",
    [
        [said(3, 2, ACCEPT)],
        [said(-1, 2, ACCEPT)],
        [said(0, 2, ACCEPT, ACCEPT)],
        [said(0, 2)],
        [said(0, 0, 5)],
        [said(0, 0, -1)],
        [said(2, 3, ACCEPT), said(3, 4, ACCEPT)],
    ],
)
def test_malformed_acknowledgements_are_refused(batches: list[AcknowledgementBatch]) -> None:
    refused = decide_acks(window_of("me"), "me", batches, LIMIT, True)
    assert isinstance(refused, RefusedAcks) and refused.code == ErrorCode.INVALID_REQUEST


@proves("T4")
def test_a_worker_says_why_and_what_is_no_text_or_too_long_is_cut_to_what_is() -> None:
    batches = [said(0, 2, REJECT), said(3, 3, RELEASE), said(4, 4, ACCEPT), said(5, 5, REJECT), said(6, 6, REJECT)]
    for batch, why in zip(batches, (b"all of these", b"not dead yet", b"done", b"x\xff" * 1000, b""), strict=True):
        batch.unknown_tags = {REASON: why, REASON + 1: b"of somebody else"}
    acked = taken(window_of("me"), *batches)
    (first, last, why), (_, _, long) = acked.reasons
    assert (first, last, why) == (0, 2, "all of these")
    assert len(long) == REASON_BYTES_MAX and long.startswith("x\ufffd")


@proves("T4")
def test_a_group_may_forbid_renewing() -> None:
    refused = decide_acks(window_of("me"), "me", [said(0, 0, RENEW)], LIMIT, False)
    assert isinstance(refused, RefusedAcks) and "share.renew.acknowledge.enable" in refused.message


@proves("T4")
@pytest.mark.parametrize(("available", "readers"), [(1, 8), (8, 8), (100, 8), (4000, 8), (3, 2)])
def test_who_asks_first_leaves_something_for_the_others(available: int, readers: int) -> None:
    shares = []
    left = available
    for _ in range(readers):
        shares.append(min(left, fair_share(left, readers, 500)))
        left -= shares[-1]
    assert sum(share > 0 for share in shares) == min(available, readers)
    assert max(shares) <= -(-available // (2 * readers))


@proves("T4")
def test_what_is_left_of_a_batch_is_a_little_or_as_much_as_is_done_in_a_tenth_of_a_second() -> None:
    assert rest_at_once(0, 0) == rest_at_once(0, 10_000) == REST_MAX
    assert rest_at_once(500, 2_500) == REST_MAX, "jobs of 5 ms"
    assert rest_at_once(500, 5) == 10_000


@proves("T4")
def test_who_is_alone_gets_what_it_asks_for_and_nobody_gets_more() -> None:
    assert fair_share(4000, 1, 500) == 500
    assert fair_share(1_000_000, 8, 500) == 500


@proves("T4")
@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("by_duration:PT1H", 3_600_000),
        ("by_duration:P1DT0.5S", 86_400_500),
        ("by_duration:PT-1H", None),
        ("by_duration:P", None),
        ("by_duration:PT", None),
        ("by_duration:1h", None),
        ("PT1H", None),
    ],
)
def test_a_duration_is_read_as_iso_8601(text: str, ms: int | None) -> None:
    assert duration_ms(text) == ms
    assert is_reset(text) == (ms is not None)
