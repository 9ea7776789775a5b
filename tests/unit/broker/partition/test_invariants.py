"""Each test breaks one invariant of a partition, and the next transition detects it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.partition.leader_term import LeaderAndIsr
from odradek.broker.partition.partition import Role
from odradek.invariants.partition import (
    ACKNOWLEDGED_OFFSET,
    HIGH_WATERMARK_REPLICATED,
    ISR_WITHIN_REPLICAS,
    ONE_PENDING_ISR_CHANGE,
    PARTITION_LEADER_EPOCH,
    PARTITION_LEADER_TERM,
    PARTITION_REPLICATES,
)
from odradek.storage.producers.entry import Origin
from tests.support.data_rig import NOW_MS, Rig, batch
from tests.support.invariants import breaks

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from odradek.broker.partition.leader_term import LeaderTerm
    from odradek.broker.partition.partition import Partition


def led(tmp_path: Path) -> tuple[Partition, LeaderTerm]:
    rig = Rig(tmp_path)
    rig.topic("t")
    partition = rig.partition()
    assert partition.leader_term is not None
    return partition, partition.leader_term


@breaks(PARTITION_LEADER_TERM)
async def test_leader_without_a_leader_term_is_a_violation(tmp_path: Path) -> None:
    partition, _ = led(tmp_path)
    partition.leader_term = None
    partition.append(batch(), origin=Origin.CLIENT, now_ms=NOW_MS)


@breaks(PARTITION_REPLICATES)
async def test_leader_that_replicates_a_batch_of_another_leader_is_a_violation(tmp_path: Path) -> None:
    partition, _ = led(tmp_path)
    partition.replicate(batch(), leader_epoch=partition.leader_epoch, now_ms=NOW_MS)


@breaks(PARTITION_LEADER_EPOCH)
async def test_leader_term_below_the_latest_epoch_of_the_log_is_a_violation(tmp_path: Path) -> None:
    partition, term = led(tmp_path)
    epoch = partition.leader_epoch
    partition.follow(epoch + 5)
    partition.lead(LeaderAndIsr(epoch + 4, 9, term.replicas.replicas, term.replicas.isr))
    assert partition.role is Role.OFFLINE


@breaks(ISR_WITHIN_REPLICAS)
async def test_isr_without_the_leader_is_a_violation(tmp_path: Path) -> None:
    _, term = led(tmp_path)
    term.replicas._request((99,))


@breaks(ONE_PENDING_ISR_CHANGE)
async def test_second_pending_isr_change_is_a_violation(tmp_path: Path) -> None:
    _, term = led(tmp_path)
    for _ in range(2):
        term.replicas._request(term.replicas.isr)


@breaks(HIGH_WATERMARK_REPLICATED)
async def test_high_watermark_above_the_own_end_is_a_violation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, term = led(tmp_path)
    monkeypatch.setattr(type(term.replicas), "committed", lambda *_: 5)
    term.update_high_watermark()


@breaks(ACKNOWLEDGED_OFFSET)
async def test_acknowledgment_above_the_log_end_offset_is_a_violation(tmp_path: Path) -> None:
    partition, _ = led(tmp_path)
    partition.watermarks.acknowledge(7)
