"""Header block, facts, snapshots, epochs: read as written, never taken for good when damaged, newer refused by name."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.errors import DataFolderError
from tidelog.log import facts, snapshot, transactions
from tidelog.log.epochs import BEGINNING, Epoch, end_offset_for, epoch_at, raised
from tidelog.log.facts import Facts, Hole
from tidelog.log.header_block import (
    HEADER_BLOCK,
    SLOT_AT,
    SegmentOwner,
    Slot,
    pack_block,
    pack_slot,
    unpack_block,
    unpack_slots,
)
from tidelog.log.producers import ProducerState, RecentBatch
from tidelog.log.snapshot import Snapshot
from tidelog.log.transactions import Aborted, FoldedTransactions
from tidelog.record.codec import crc32c

HISTORY = (Epoch(0, 0), Epoch(3, 100), Epoch(4, 250))


OWNER = SegmentOwner(bytes(range(16)), 7)


def put_slot(data: bytearray, slot: Slot) -> None:
    packed = pack_slot(slot)
    at = SLOT_AT[slot.sequence & 1]
    data[at : at + len(packed)] = packed


@proves("T1")
def test_a_new_segment_says_that_nothing_is_synced() -> None:
    head = unpack_block(bytes(pack_block(500, 123, OWNER)), "x")
    assert head is not None
    assert head == (500, 123, Slot(1, 500, HEADER_BLOCK), OWNER)


@proves("T1")
def test_the_newer_slot_counts_and_a_torn_one_leaves_the_other() -> None:
    data = pack_block(0, 0, OWNER)
    put_slot(data, Slot(2, 10, 5000))
    put_slot(data, Slot(3, 20, 6000))
    assert unpack_slots(bytes(data)) == Slot(3, 20, 6000)
    for cut in range(1, 28):
        torn = bytearray(data)
        newer = pack_slot(Slot(4, 30, 7000))
        torn[SLOT_AT[0] : SLOT_AT[0] + cut] = newer[:cut]
        expected = Slot(4, 30, 7000) if bytes(torn[SLOT_AT[0] : SLOT_AT[0] + 28]) == newer else Slot(3, 20, 6000)
        assert unpack_slots(bytes(torn)) == expected


@proves("T1")
@given(st.integers(0, 51), st.integers(0, 7))
def test_a_flipped_bit_in_the_head_of_a_segment_is_noticed(byte: int, bit: int) -> None:
    data = pack_block(500, 123, OWNER)
    data[byte] ^= 1 << bit
    assert unpack_block(bytes(data), "x") is None


@proves("T6")
def test_a_segment_of_the_first_format_is_read_and_does_not_say_whose_it_is() -> None:
    data = pack_block(500, 123, OWNER)
    data[8:10] = (1).to_bytes(2, "big")
    data[28:52] = crc32c(bytes(data[:28])).to_bytes(4, "big") + bytes(20)
    assert unpack_block(bytes(data), "x") == (500, 123, Slot(1, 500, HEADER_BLOCK), None)


@proves("T6")
def test_a_segment_of_a_newer_format_is_refused_by_name() -> None:
    data = pack_block(0, 0, OWNER)
    data[8:10] = (3).to_bytes(2, "big")
    data[48:52] = crc32c(bytes(data[:48])).to_bytes(4, "big")
    with pytest.raises(DataFolderError, match=r"a\.log has segment format 3, newer than 2"):
        unpack_block(bytes(data), "a.log")


some_facts = st.builds(
    Facts,
    st.integers(0, 2**62),
    st.booleans(),
    st.just(HISTORY),
    st.lists(
        st.builds(
            Hole,
            st.integers(0, 2**62),
            st.integers(0, 2**62),
            st.integers(0, 2**62),
            st.integers(0, 2**31),
            st.integers(0, 2**31),
            st.booleans(),
            st.sampled_from(["crc mismatch", "batch says: offset 5; 6 is due", "x"]),
        ),
        max_size=3,
    ).map(tuple),
)


@proves("T1")
@given(some_facts)
def test_facts_are_read_as_they_were_written(written: Facts) -> None:
    assert facts.unpack(facts.pack(written), "x") == written


@proves("T1")
@given(some_facts, st.data())
def test_damaged_facts_are_not_taken_for_good(written: Facts, data: st.DataObject) -> None:
    packed = bytearray(facts.pack(written))
    at = data.draw(st.integers(0, len(packed) - 2))
    packed[at] ^= 1
    assert facts.unpack(bytes(packed), "x") in (None, written)
    assert facts.unpack(bytes(packed[:at]), "x") is None


@proves("T6")
def test_facts_of_a_newer_format_are_refused_by_name() -> None:
    text = b"tidelog partition 3\nstart 5\n"
    with pytest.raises(DataFolderError, match="here has format 3, newer than 2"):
        facts.unpack(text + f"crc {crc32c(text):08x}\n".encode(), "here")


PRODUCERS = {
    5: ProducerState(1, 99, (RecentBatch(0, 4, 10, -1), RecentBatch(5, 5, 11, 77))),
    6: ProducerState(0, 98, (), 3),
}
ABORTED = transactions.AbortedColumns(())
ABORTED.add(Aborted(5, 2, 7), 9)
ABORTED.add(Aborted(6, 4, 9), 10)
SNAPSHOT = Snapshot(12, 8, 4196, PRODUCERS, FoldedTransactions({6: 10}, ABORTED.blocks, 2))


@proves("T1")
def test_a_snapshot_is_read_as_it_was_written_and_noticed_when_damaged() -> None:
    data = snapshot.pack(SNAPSHOT)
    found = snapshot.unpack(data, "x")
    assert found is not None
    assert found[:4] == SNAPSHOT[:4]
    assert (found.transactions.open, found.transactions.aborted) == ({6: 10}, 2)
    (block,) = found.transactions.blocks
    assert [list(column) for column in block.columns] == [[5, 6], [2, 4], [7, 9]]
    for byte in range(len(data)):
        damaged = bytearray(data)
        damaged[byte] ^= 4
        assert snapshot.unpack(bytes(damaged), "x") is None
    for size in range(len(data)):
        assert snapshot.unpack(data[:size], "x") is None


@proves("T6")
def test_a_snapshot_is_drawn_on_its_page_and_older_ones_have_less() -> None:
    data = snapshot.pack(SNAPSHOT)
    assert struct.unpack_from(">8sH2xqqQ", data) == (b"TIDEPROD", 3, 12, 8, 4196)
    assert struct.unpack_from(">II2q6q", data, 40) == (1, 2, 6, 10, 5, 6, 2, 4, 7, 9)
    assert struct.unpack_from(">qhqiB", data, 112) == (5, 1, 99, -1, 2)
    assert struct.unpack(">qhqiB", data[112 + 23 + 48 :]) == (6, 0, 98, 3, 0)
    without_coordinators = data[112:130] + data[134:201] + data[205:]
    producers = {5: PRODUCERS[5], 6: PRODUCERS[6]._replace(coordinator_epoch=-1)}
    second = snapshot.unpack(of_version(2, data[:112] + without_coordinators), "x")
    assert second is not None
    assert (second.producers, second.transactions.open) == (producers, {6: 10})
    first = snapshot.unpack(of_version(1, data[:40] + without_coordinators), "x")
    assert first == SNAPSHOT._replace(producers=producers, transactions=transactions.NO_TRANSACTIONS)


def of_version(version: int, data: bytes) -> bytes:
    head = data[:8] + version.to_bytes(2, "big") + data[10:36]
    return head + crc32c(data[40:], crc32c(head)).to_bytes(4, "big") + data[40:]


@proves("T6")
def test_a_snapshot_of_a_newer_format_is_refused_by_name() -> None:
    data = bytearray(snapshot.pack(SNAPSHOT))
    data[8:10] = (9).to_bytes(2, "big")
    data[36:40] = crc32c(bytes(data[40:]), crc32c(bytes(data[:36]))).to_bytes(4, "big")
    with pytest.raises(DataFolderError, match=r"a\.producers has snapshot format 9, newer than 3"):
        snapshot.unpack(bytes(data), "a.producers")


@proves("T1")
def test_the_epoch_of_an_offset_is_the_last_one_that_began_before_it() -> None:
    assert [epoch_at(HISTORY, offset) for offset in (0, 99, 100, 249, 250, 9999)] == [0, 0, 3, 3, 4, 4]


@proves("T1")
@pytest.mark.parametrize(
    ("epoch", "answer"),
    [(4, (4, 300)), (3, (3, 250)), (2, (0, 100)), (1, (0, 100)), (0, (0, 100)), (5, (-1, -1)), (-1, (-1, -1))],
)
def test_where_an_epoch_ended_is_answered_as_in_kafka(epoch: int, answer: tuple[int, int]) -> None:
    assert end_offset_for(HISTORY, epoch, 300) == answer


@proves("T1")
def test_a_raised_epoch_begins_at_the_end_and_replaces_one_without_records() -> None:
    assert raised(BEGINNING, 40) == (Epoch(0, 0), Epoch(1, 40))
    assert raised(raised(BEGINNING, 40), 40) == (Epoch(0, 0), Epoch(2, 40))
    assert raised(BEGINNING, 0) == (Epoch(1, 0),)
