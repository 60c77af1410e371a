"""Idempotent producers: what is a repetition, what is in order, what is refused; and the snapshot of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.errors import OutOfOrderSequence, StaleProducerEpoch, StorageError
from tidelog.log.producers import (
    MAX_SEQUENCE,
    REMEMBERED,
    ProducerState,
    RecentBatch,
    advance,
    expired,
    find_duplicate,
    follow,
    pack,
    unpack,
)
from tidelog.record.header import BatchHeader

CONTROL = 0x20


def header(sequence: int, count: int = 1, epoch: int = 0, attributes: int = 0) -> BatchHeader:
    return BatchHeader(0, 100, 0, attributes, count - 1, 0, 0, 9, epoch, sequence, count)


def after(*batches: tuple[int, int], epoch: int = 0) -> ProducerState:
    """A producer that has written these (sequence, count), one record to an offset."""
    producer, offset = None, 0
    for sequence, count in batches:
        producer = follow(producer, header(sequence, count, epoch), offset + count - 1, 0)
        offset += count
    assert producer is not None
    return producer


@proves("T1")
def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert find_duplicate(None, header(0)) is None
    assert find_duplicate(None, header(77)) is None


@proves("T1")
def test_the_next_sequence_is_new_and_a_gap_is_refused() -> None:
    producer = after((0, 3))
    assert find_duplicate(producer, header(3)) is None
    with pytest.raises(OutOfOrderSequence, match="sequence 5 after 2"):
        find_duplicate(producer, header(5))


@proves("T1")
def test_the_last_five_batches_are_known_again_with_their_offsets() -> None:
    producer = after((0, 2), (2, 1), (3, 4), (7, 1), (8, 1), (9, 2))
    found = [find_duplicate(producer, header(sequence, count)) for sequence, count in ((2, 1), (3, 4), (9, 2))]
    assert [batch.last_offset for batch in found if batch] == [2, 6, 10]
    with pytest.raises(OutOfOrderSequence):
        find_duplicate(producer, header(0, 2))


@proves("T1")
def test_a_batch_that_only_overlaps_is_no_repetition() -> None:
    with pytest.raises(OutOfOrderSequence):
        find_duplicate(after((0, 2), (2, 2)), header(2, 1))


@proves("T1")
def test_sequences_go_round_after_the_largest() -> None:
    producer = after((MAX_SEQUENCE, 1))
    assert find_duplicate(producer, header(0)) is None
    wrapping = after((MAX_SEQUENCE - 1, 4))
    assert wrapping.last_sequence == 1
    assert find_duplicate(wrapping, header(2)) is None
    assert find_duplicate(wrapping, header(MAX_SEQUENCE - 1, 4)) is not None
    assert advance(MAX_SEQUENCE, 1) == 0


@proves("T1")
def test_a_new_epoch_begins_at_zero_and_fences_the_old_one() -> None:
    producer = after((0, 3))
    assert find_duplicate(producer, header(0, epoch=1)) is None
    with pytest.raises(OutOfOrderSequence, match="not at 0"):
        find_duplicate(producer, header(3, epoch=1))
    newer = follow(producer, header(0, epoch=1), 3, 0)
    with pytest.raises(StaleProducerEpoch, match="epoch 0, but epoch 1"):
        find_duplicate(newer, header(3, epoch=0))


@proves("T1")
def test_a_control_batch_has_no_sequence_but_an_epoch() -> None:
    producer = follow(after((0, 3)), header(-1, epoch=2, attributes=CONTROL), 3, 0)
    assert producer == ProducerState(2, 0, ())
    assert find_duplicate(producer, header(0, epoch=2)) is None


@proves("F2")
def test_the_coordinators_epoch_is_that_of_the_last_marker() -> None:
    producer = after((0, 3))
    assert producer.coordinator_epoch == -1
    marked = follow(producer, header(-1, epoch=0, attributes=CONTROL), 3, 0, marked_by=4)
    assert marked == producer._replace(coordinator_epoch=4)
    assert follow(marked, header(0, epoch=1), 4, 0).coordinator_epoch == 4
    assert follow(marked, header(-1, attributes=CONTROL), 4, 0).coordinator_epoch == 4, "compaction emptied the marker"


@proves("T1")
def test_those_who_have_not_written_for_long_are_found() -> None:
    producers = {1: ProducerState(0, 100, ()), 2: ProducerState(0, 200, ())}
    assert expired(producers, 200) == [1]


@proves("T1")
@given(
    st.dictionaries(
        st.integers(0, 2**63 - 1),
        st.builds(
            ProducerState,
            st.integers(0, 2**15 - 1),
            st.integers(-1, 2**62),
            st.lists(
                st.builds(
                    RecentBatch,
                    st.integers(0, MAX_SEQUENCE),
                    st.integers(0, MAX_SEQUENCE),
                    st.integers(0, 2**62),
                    st.integers(-1, 2**62),
                ),
                max_size=REMEMBERED,
            ).map(tuple),
            st.integers(-1, 2**31 - 1),
        ),
        max_size=5,
    )
)
def test_a_snapshot_is_read_as_it_was_written(producers: dict[int, ProducerState]) -> None:
    assert unpack(pack(producers)) == producers


@proves("T1")
def test_a_snapshot_cut_short_is_an_error() -> None:
    data = pack({1: after((0, 2))})
    for size in range(1, len(data)):
        with pytest.raises(StorageError, match="ends in the middle"):
            unpack(data[:size])
