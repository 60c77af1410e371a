"""Batches as a whole: what was aborted, markers, and the last word of each producer."""

from __future__ import annotations

from proving import proves
from tidelog.log.compaction.verdicts import Verdicts
from tidelog.log.producers import ProducerState, RecentBatch
from tidelog.log.transactions import Aborted
from tidelog.record.header import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    DROP,
    FILTER,
    KEEP,
    REMEMBER_BIT,
    SET_HORIZON_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
)

NOW = 1_700_000_000_000


def header(offset: int, producer: int, attributes: int = TRANSACTIONAL_BIT, **fields: int) -> BatchHeader:
    plain = BatchHeader(offset, 100, 0, attributes, 0, NOW, NOW, producer, 0, 0, 1)
    return plain._replace(**fields)


def marker(offset: int, producer: int, horizon: int | None = None) -> BatchHeader:
    attributes = TRANSACTIONAL_BIT | CONTROL_BIT | (DELETE_HORIZON_BIT if horizon is not None else 0)
    return header(offset, producer, attributes, base_timestamp=horizon or NOW)


def judge(*headers: BatchHeader, discard: bool = True, aborted: tuple[Aborted, ...] = ()) -> list[int]:
    return list(Verdicts(aborted, (), {}, NOW, discard=discard).of(headers))


@proves("T6", "D5")
def test_what_was_aborted_goes_and_what_the_same_producer_wrote_before_and_after_stays() -> None:
    aborted = (Aborted(1, 10, 20), Aborted(1, 40, 50), Aborted(2, 0, 99))
    verdicts = judge(*(header(offset, 1) for offset in (9, 10, 19, 21, 39, 40, 49, 51)), aborted=aborted)
    assert verdicts == [FILTER, DROP, DROP, FILTER, FILTER, DROP, DROP, FILTER]
    assert judge(header(12, 1, 0), header(12, 3), aborted=aborted) == [FILTER, FILTER]
    skips = Verdicts(aborted, (), {}, NOW, discard=True).skips(
        [header(12, 1), marker(20, 1), header(30, 1), header(1, -1)]
    )
    assert list(skips) == [DROP, DROP, FILTER, FILTER]


@proves("T6", "D5")
def test_a_marker_stays_with_its_records_and_for_its_time_after_them() -> None:
    assert judge(header(1, 1), marker(2, 1), marker(3, 1)) == [FILTER, KEEP, KEEP | SET_HORIZON_BIT]
    assert judge(header(1, 1), marker(2, 2)) == [FILTER, KEEP | SET_HORIZON_BIT]
    assert judge(marker(2, 1, NOW + 1), marker(3, 2, NOW)) == [KEEP, DROP]
    assert judge(marker(3, 2, NOW), discard=False) == [KEEP]
    assert list(Verdicts((), {(2, 3)}, {}, NOW, discard=True).of([marker(3, 2, NOW), marker(4, 2, NOW)])) == [
        KEEP,
        DROP,
    ]
    assert judge(header(1, 1), marker(2, 1, NOW)) == [FILTER, KEEP]
    assert judge(header(1, 1, count=0), marker(2, 1, NOW)) == [FILTER, DROP]


@proves("T6", "D5")
def test_the_last_batch_of_a_producer_that_is_remembered_stays() -> None:
    batches = (RecentBatch(0, 0, 5, -1), RecentBatch(1, 1, 8, -1))
    producers = {1: ProducerState(0, NOW, batches), 2: ProducerState(3, NOW, ())}
    judged = Verdicts((), (), producers, NOW, discard=True)
    plain = [header(offset, 1, 0) for offset in (5, 8)]
    assert list(judged.of(plain)) == [FILTER, FILTER | REMEMBER_BIT]
    markers = [marker(6, 2, NOW)._replace(producer_epoch=epoch) for epoch in (2, 3)]
    assert list(judged.of(markers)) == [DROP, DROP | REMEMBER_BIT]
    assert list(judged.of([header(9, -1, 0)])) == [FILTER]
