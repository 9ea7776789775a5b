"""Replay of producer state from a log with damaged bytes below the recovery point."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek.storage.disk.os_disk import OsDisk
from odradek.storage.producers.state import AppendPlan, ProducerState
from odradek.storage.recovery import producer_replay
from tests.support.logs import NOW_MS, append, batch, headers, marker, open_log, produced

if TYPE_CHECKING:
    from pathlib import Path


def set_base_offset(tmp_path: Path, segment: int, position: int, before: int, after: int) -> None:
    """Replace the base offset of the batch at a byte position. The checksum does not cover it."""
    path = tmp_path / "t-0" / f"{segment:020}.log"
    data = bytearray(path.read_bytes())
    assert data[position : position + 8] == before.to_bytes(8, "big")
    data[position : position + 8] = after.to_bytes(8, "big")
    path.write_bytes(data)


def test_batch_whose_base_offset_is_damaged_is_not_replayed(tmp_path: Path) -> None:
    disk = OsDisk()
    log = open_log(disk, str(tmp_path))
    for producer_id in (1, 2, 3):
        append(log, produced(producer_id, 0, transactional=True))
    first, second, _ = headers(log)
    log.roll(NOW_MS)
    append(log, batch())
    log.close(clean=False)
    set_base_offset(tmp_path, 0, first.size, second.base_offset, 0)
    log = open_log(disk, str(tmp_path), recovery_point=3)
    assert set(log.producers.entries) == {1, 3}
    assert log.producers.first_unstable_offset == 0
    disk.close()


def test_batch_that_begins_below_the_snapshot_is_not_replayed(tmp_path: Path) -> None:
    """Otherwise its transaction would open below those of the snapshot, and the log would fail at each start."""
    disk = OsDisk()
    log = open_log(disk, str(tmp_path))
    for producer_id in (1, 2, 3):
        append(log, produced(producer_id, 0, transactional=True))
    log.roll(NOW_MS)
    append(log, produced(4, 0, 5, transactional=True))
    append(log, produced(5, 0, transactional=True))
    log.roll(NOW_MS)
    append(log, batch())
    log.close(clean=False)
    set_base_offset(tmp_path, 3, 0, 3, 1)
    log = open_log(disk, str(tmp_path), recovery_point=9, high_watermark=3)
    assert set(log.producers.entries) == {1, 2, 3, 5}
    assert log.producers.first_unstable_offset == 0
    disk.close()


@pytest.mark.parametrize("damaged", [2**40, 4], ids=["after the log end", "in the next segment"])
def test_batch_with_an_offset_after_its_segment_does_not_hide_the_next_batches(tmp_path: Path, damaged: int) -> None:
    """Without the marker, the transaction of producer 1 would stay open and limit the last stable offset."""
    disk = OsDisk()
    log = open_log(disk, str(tmp_path))
    append(log, produced(1, 0, transactional=True))
    append(log, produced(2, 0))
    append(log, marker(1, commit=True))
    first, second, _ = headers(log)
    log.roll(NOW_MS)
    append(log, produced(3, 0))
    append(log, produced(4, 0))
    log.roll(NOW_MS)
    append(log, batch())
    log.close(clean=False)
    set_base_offset(tmp_path, 0, first.size, second.base_offset, damaged)
    log = open_log(disk, str(tmp_path), recovery_point=5)
    assert set(log.producers.entries) == {1, 3, 4}
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == log.log_end_offset
    disk.close()


@pytest.mark.parametrize("recovery_point", [0, 1_000_000])
def test_recovery_commits_many_batches_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recovery_point: int
) -> None:
    """With a recovery point behind all batches, the producer state is replayed from the sealed segment instead."""
    monkeypatch.setattr(producer_replay, "BATCHES_PER_COMMIT", 10)
    disk = OsDisk()
    log = open_log(disk, str(tmp_path))
    for sequence in range(20):
        for producer_id in (1, 2, 3):
            append(log, produced(producer_id, sequence))
    append(log, produced(4, 0, transactional=True))
    append(log, produced(5, 0, transactional=True))
    append(log, marker(4, commit=False))
    state = {producer_id: (entry.epoch, entry.batches) for producer_id, entry in log.producers.entries.items()}
    aborted = log.segments.active.txn_index.entries()
    log.close(clean=False)
    commits = []
    commit = ProducerState.commit

    def counted(self: ProducerState, plan: AppendPlan) -> None:
        commits.append(len(plan.updates))
        commit(self, plan)

    monkeypatch.setattr(ProducerState, "commit", counted)
    log = open_log(disk, str(tmp_path), recovery_point=recovery_point)
    assert len([producers for producers in commits if producers]) == 7
    assert {producer_id: (entry.epoch, entry.batches) for producer_id, entry in log.producers.entries.items()} == state
    assert log.producers.first_unstable_offset == 60
    assert log.segments.active.txn_index.entries() == aborted
    disk.close()
