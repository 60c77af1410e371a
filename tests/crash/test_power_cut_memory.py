"""`tidelog.durability=memory`: a power cut may take what was acked, but never unnoticed, and never leaves a gap."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from crash.power_cut import SETTINGS, Story, quick_folder
from log.partition import Partition, batch
from proving import proves
from tidelog.testing.disk import SimulatedDisk

FEW = 60
MANY = int(os.environ.get("TIDELOG_SEEDS", "300"))
FIRST = int(os.environ.get("TIDELOG_SEED", "1"))


class VolatileStory(Story):
    clean_before = False

    def check(self) -> None:
        """Offsets are dense and the batches are what was sent; what was visible is there, or the epoch has risen."""
        log, told = self.log, self.told
        assert log is not None
        log.load()
        found = self._batches()
        for offset, data in found.items():
            assert data in told.possible.get(offset, set()) or data == told.acked.get(offset)
        visible = {offset: data for offset, data in told.acked.items() if offset >= log.start_offset}
        if any(found.get(offset) != data for offset, data in visible.items()):
            assert log.leader_epoch > told.epoch, "records that a consumer may have seen are gone, and nothing tells"
            assert not self.clean_before, "a clean stop loses nothing"
            epoch, end = log.end_offset_for_epoch(told.epoch)
            assert epoch <= told.epoch
            assert all(offset in found or offset >= end for offset in visible)
        told.acked = dict(found)
        told.possible = {offset: {data} for offset, data in found.items()}
        told.epoch, told.end = log.leader_epoch, log.end_offset
        told.delete_asked = told.delete_done = log.start_offset
        # A client whose producer was forgotten asks for a new id; here it begins anew with what the log knows of it.
        for producer in self.producers:
            known = log.producers.get(producer.producer_id)
            producer.next_sequence = known.last_sequence + 1 if known is not None else 0
            producer.unacked.clear()
            producer.in_flight = 0


def run(folder: Path, first: int, count: int) -> None:
    for seed in range(first, first + count):
        story = VolatileStory(folder / str(seed), seed, replace(SETTINGS, durable=False))
        try:
            for _ in range(4):
                story.live(steps=story.rng.randint(10, 150), cut_after=story.rng.choice((20, 100, 400)))
                stops = story.log is not None and story.rng.random() < 0.3
                if stops:
                    story.stop()
                story.clean_before = story.clean is not None
                if not story.clean_before:
                    story.crash()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@proves("T1")
@pytest.mark.slow
def test_what_a_memory_partition_loses_shows_in_its_epoch() -> None:
    with quick_folder() as folder:
        run(folder, 1, FEW)


@proves("T1")
def test_a_partition_that_is_to_be_durable_from_now_on_is_so_when_all_that_was_acked_before_is_synced(
    tmp_path: Path,
) -> None:
    disk = SimulatedDisk(tmp_path / "disk")
    partition = Partition(disk.folder / "p", disk, replace(SETTINGS, durable=False))
    partition.put(b"first")
    partition.append(batch(b"acked" * 2000))
    partition.committer.write_round()
    partition.committer.drain()
    assert partition.log.high_watermark == 2, "acked from memory"
    partition.log.update_settings(SETTINGS)
    for _ in range(3):
        partition.committer.background.wait()
        partition.committer.drain()
    kept = set()
    for seed in range(12):
        again = Partition(disk.crash(tmp_path / f"image{seed}", seed) / "p", settings=SETTINGS).log
        kept.add(again.end_offset)
        assert again.end_offset == 2 or again.leader_epoch > 0, "gone, and nothing tells"
    assert kept == {1, 2}
    partition.commit()
    partition.put(b"durable")
    image = disk.crash(tmp_path / "image", seed=0)
    again = Partition(image / "p", settings=SETTINGS).log
    assert (again.end_offset, again.leader_epoch) == (3, 0)


@proves("T1")
@pytest.mark.soak
def test_what_a_memory_partition_loses_shows_in_its_epoch_with_many_seeds() -> None:
    with quick_folder() as folder:
        run(folder, FIRST * MANY, MANY)
