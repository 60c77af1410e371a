"""Transactions in a partition: what is open, what was aborted, how far a reader of committed records may read."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from log.partition import NOW, Partition, batch
from proving import proves
from tidelog.errors import OutsideTransaction, StaleProducerEpoch
from tidelog.log.settings import LogSettings
from tidelog.log.transactions import (
    ABORTED_SIZE,
    BLOCK,
    Aborted,
    AbortedColumns,
    Block,
    FoldedTransactions,
    pack,
    unpack,
)
from tidelog.record import codec
from tidelog.record.columns import decode


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    return Partition(tmp_path / "p")


def write(partition: Partition, producer_id: int, sequence: int, *, epoch: int = 0) -> int:
    """Two records in a transaction; the offset of the first."""
    data = batch(b"a", b"b", producer=(producer_id, epoch, sequence), transactional=True)
    return partition.append(data).base_offset


@proves("T6")
def test_readers_of_committed_records_stop_at_the_oldest_open_transaction(partition: Partition) -> None:
    log = partition.log
    partition.put(b"plain")
    assert [write(partition, 1, 0), write(partition, 2, 0), write(partition, 1, 2)] == [1, 3, 5]
    partition.commit()
    assert (log.high_watermark, log.last_stable_offset) == (7, 1)
    assert log.open_transactions() == {1: 1, 2: 3}
    partition.mark(1, commit=True)
    partition.commit()
    assert (log.high_watermark, log.last_stable_offset) == (8, 3)
    partition.mark(2, commit=False)
    partition.commit()
    assert (log.high_watermark, log.last_stable_offset) == (9, 9)
    assert log.open_transactions() == {}
    assert log.stable().aborted_between(0, 9) == [Aborted(2, 3, 8)]


@proves("T6")
def test_a_marker_counts_when_it_is_visible_and_not_before(partition: Partition) -> None:
    log = partition.log
    write(partition, 1, 0)
    partition.commit()
    partition.mark(1, commit=False)
    write(partition, 1, 2)
    assert (log.last_stable_offset, log.stable().aborted_between(0, 99)) == (0, [])
    partition.commit()
    assert (log.last_stable_offset, log.stable().aborted_between(0, 99)) == (3, [Aborted(1, 0, 2)])


@proves("T6")
def test_a_marker_is_a_control_batch_as_kafka_writes_it(partition: Partition) -> None:
    write(partition, 7, 0)
    partition.commit()
    done = partition.log.append_marker(7, 0, True, 3, 1234)
    partition.commit()
    piece = partition.log.read(done.base_offset, 1000)
    assert piece is not None
    columns = decode(piece.read())
    (row,) = columns.rows()
    assert (row.key, row.value) == (b"\0\0\0\1", b"\0\0\0\0\0\3")
    header = codec.check(piece.read())
    assert (header.is_control, header.is_transactional, header.producer_id, header.producer_epoch) == (True, True, 7, 0)
    assert (header.base_sequence, header.max_timestamp) == (-1, 1234)


@proves("T6")
def test_a_marker_twice_is_written_once_and_waits_for_the_first(partition: Partition) -> None:
    write(partition, 1, 0)
    first, second = partition.mark(1, commit=True), partition.mark(1, commit=True)
    assert (first.duplicate, second.duplicate) == (False, True)
    assert second.last_offset == first.last_offset
    partition.commit()
    assert partition.log.end_offset == 3


@proves("T6")
def test_a_marker_of_a_newer_epoch_ends_the_transaction_and_fences_the_older(partition: Partition) -> None:
    write(partition, 1, 0)
    partition.mark(1, epoch=1, commit=False)
    with pytest.raises(StaleProducerEpoch):
        write(partition, 1, 2)
    with pytest.raises(StaleProducerEpoch, match="marker for producer 1 has epoch 0, but epoch 1"):
        partition.mark(1, commit=False)
    assert write(partition, 1, 0, epoch=1) == 3


@proves("T6")
@pytest.mark.parametrize("clean", [True, False])
def test_transactions_are_as_they_were_after_a_restart(partition: Partition, clean: bool) -> None:
    write(partition, 1, 0)
    write(partition, 2, 0)
    partition.mark(1, commit=False)
    partition.commit()
    log = partition.reopen(clean=clean).log
    assert log.open_transactions() == {2: 2}
    assert (log.high_watermark, log.last_stable_offset) == (5, 2)
    assert log.stable().aborted_between(0, 5) == [Aborted(1, 0, 4)]


@proves("T6")
def test_a_producer_with_an_open_transaction_writes_nothing_outside_of_it(partition: Partition) -> None:
    write(partition, 1, 0)
    with pytest.raises(OutsideTransaction, match="producer 1 has a transaction open since offset 0"):
        partition.append(batch(b"c", producer=(1, 0, 2)))
    partition.mark(1, commit=True)
    assert partition.append(batch(b"c", producer=(1, 0, 2))).base_offset == 3


@proves("T6")
def test_a_producer_with_an_open_transaction_is_not_forgotten(partition: Partition) -> None:
    write(partition, 1, 0)
    write(partition, 2, 0)
    partition.mark(2, commit=True)
    partition.commit()
    partition.log.forget_producers(NOW + partition.settings.producer_expiration_ms + 1)
    assert set(partition.log.producers) == {1}


# Aborted transactions -------------------------------------------------------------------------------------------------


def overlapping(all_of_them: list[Aborted], start: int, stop: int) -> list[Aborted]:
    found = [one for one in all_of_them if one.first_offset < stop and one.last_offset >= start]
    return sorted(found, key=lambda one: one.first_offset)


@proves("T6")
def test_among_very_many_aborted_transactions_those_of_a_range_are_found() -> None:
    """One in ten stays open for long, so that what ends late may have begun early."""
    aborted, listed = AbortedColumns(()), []
    ends: dict[int, int] = {}
    offset = 0
    for number in range(4 * BLOCK):
        ends[number] = offset
        offset += 1
        long_ones = [one for one in ends if one % 10 == 0 and number - one > 300]
        for one in [number, *long_ones] if number % 10 else long_ones:
            listed.append(Aborted(one, ends.pop(one), offset))
            aborted.add(listed[-1], min(ends.values(), default=offset + 1))
            offset += 1
    for start in range(0, offset, 97):
        for length in (1, 50, 3000):
            assert aborted.between(start, start + length, offset) == overlapping(listed, start, start + length)
    again, _ = unpack(pack(FoldedTransactions({}, aborted.blocks, len(aborted))))
    assert AbortedColumns(again.blocks).between(500, 600, offset) == overlapping(listed, 500, 600)


@proves("T6")
def test_a_short_read_looks_at_few_of_very_many_aborted_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    aborted = AbortedColumns(())
    for number in range(100 * BLOCK):
        aborted.add(Aborted(number, 2 * number, 2 * number + 1), 2 * number + 2)
    looked: list[Block] = []
    columns = Block.columns.fget
    assert columns is not None
    monkeypatch.setattr(Block, "columns", property(lambda block: (looked.append(block), columns(block))[1]))
    assert len(aborted.between(2000, 2010, 200 * BLOCK)) == 5
    assert len(looked) == 1


@proves("T6")
def test_aborted_transactions_are_let_go_with_their_records_and_take_24_bytes_each(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "p", settings=LogSettings(segment_bytes=40_000))
    for number in range(4 * BLOCK):
        write(partition, number, 0)
        partition.mark(number, commit=False)
        partition.commit()
    log = partition.log
    kept = log._appending.transactions.aborted
    assert len(kept) == 4 * BLOCK
    size = sum(array.itemsize * len(array) for block in kept.blocks for array in block.columns)
    assert size == ABORTED_SIZE * len(kept)
    log.delete_before(9 * BLOCK)
    assert len(kept) == BLOCK
    partition.commit()
    again = partition.reopen()
    nine = 9 * BLOCK, 9 * BLOCK + 6
    assert again.log.stable().aborted_between(*nine) == log.stable().aborted_between(*nine) != []
    assert len(again.log._appending.transactions.aborted) < 4 * BLOCK


@proves("T6")
def test_whoever_reads_what_is_deleted_meanwhile_still_knows_what_of_it_was_aborted(partition: Partition) -> None:
    for number in range(2 * BLOCK):
        write(partition, number, 0)
        partition.mark(number, commit=False)
    partition.commit()
    log = partition.log
    stable, piece = log.stable(), log.read(0, 1000)
    assert piece is not None
    log.delete_before(6 * BLOCK)
    assert log.stable().aborted_between(0, 3) == []
    assert stable.aborted_between(0, 3) == [Aborted(0, 0, 2)]


@proves("T8")
def test_an_aborted_transaction_that_compaction_left_nothing_of_is_not_known_again(partition: Partition) -> None:
    write(partition, 1, 0)
    partition.mark(1, commit=False)
    write(partition, 1, 2)
    partition.mark(1, commit=True)
    partition.commit()
    partition.log._old.aborted_gone(3)
    partition.commit()
    assert partition.reopen().log.stable().aborted_between(0, 6) == []


@proves("T5")
def test_an_aborted_transaction_takes_little_more_memory_than_its_three_numbers() -> None:
    """How many are kept is bounded by retention alone, so each must be small."""
    count, far = 40 * BLOCK, 1 << 40
    kept = AbortedColumns(())
    tracemalloc.start()
    try:
        for number in range(count):
            at = far + 3 * number
            kept.add(Aborted(far + number, at, at + 2), at + 3)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(kept) == count
    assert taken < count * (ABORTED_SIZE + 8)
