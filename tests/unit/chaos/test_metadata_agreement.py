"""Invariant I12 on constructed metadata logs: one valid case, and one case per violation."""

from __future__ import annotations

import struct

from tests.chaos.metadata_agreement import check_metadata_logs
from tests.sim.checkers.batches import Batch, read_batches
from tests.sim.workloads.encode import CONTROL, encode_batch

TOPIC_ID = b"t" * 16


def batch(offset: int, epoch: int, value: bytes, *, control: bool = False) -> Batch:
    key = struct.pack(">hh", 0, 2) if control else None
    data = encode_batch(
        [(key, value)], timestamp=1, base_offset=offset, leader_epoch=epoch, attributes=CONTROL if control else 0
    )
    return next(iter(read_batches(data)))


def leader_change(offset: int, epoch: int, leader: int) -> Batch:
    return batch(offset, epoch, struct.pack(">hi", 0, leader), control=True)


def topic(offset: int, epoch: int) -> Batch:
    return batch(offset, epoch, b"\1\2\0" + b"\2t" + TOPIC_ID + b"\0")


def ids(*nodes: int) -> bytes:
    return bytes([len(nodes) + 1]) + b"".join(struct.pack(">i", node) for node in nodes)


def partition(offset: int, epoch: int, leader: int, leader_epoch: int, isr: tuple[int, ...] = (1, 2, 3)) -> Batch:
    value = b"\1\3\0" + struct.pack(">i", 0) + TOPIC_ID + ids(1, 2, 3) + ids(*isr) + ids() + ids()
    return batch(offset, epoch, value + struct.pack(">iii", leader, leader_epoch, 0) + b"\0")


def test_log_with_an_uncommitted_tail_is_valid() -> None:
    valid = [leader_change(0, 1, 1), topic(1, 1), partition(2, 1, 1, 0), leader_change(3, 2, 2), partition(4, 2, 2, 1)]
    assert list(check_metadata_logs({1: [*valid[:3], topic(3, 1)], 2: valid, 3: valid[:4]})) == []


def test_logs_that_differ_below_a_common_epoch_violate_log_matching() -> None:
    log_1 = [leader_change(0, 1, 1), topic(1, 1), leader_change(2, 2, 2)]
    log_2 = [leader_change(0, 1, 1), partition(1, 1, 1, 0), leader_change(2, 2, 2)]
    assert any("same epoch at a higher offset" in finding for finding in check_metadata_logs({1: log_1, 2: log_2}))


def test_two_leaders_of_one_raft_epoch_are_a_violation() -> None:
    findings = check_metadata_logs({1: [leader_change(0, 1, 1)], 2: [leader_change(0, 1, 2)]})
    assert any("two leaders of Raft epoch 1" in finding for finding in findings)


def test_decrease_of_the_raft_epoch_is_a_violation() -> None:
    assert any(
        "the Raft epoch decreases" in finding for finding in check_metadata_logs({1: [topic(0, 2), topic(1, 1)]})
    )


def test_two_leaders_of_one_leader_epoch_are_a_violation() -> None:
    log = [topic(0, 1), partition(1, 1, 1, 4), partition(2, 1, 2, 4)]
    assert any("two leaders of leader epoch 4" in finding for finding in check_metadata_logs({1: log}))


def test_leader_outside_the_isr_is_a_violation() -> None:
    log = [topic(0, 1), partition(1, 1, 1, 4), partition(2, 1, 2, 5, isr=(1, 3))]
    assert any("not in the ISR" in finding for finding in check_metadata_logs({1: log}))
