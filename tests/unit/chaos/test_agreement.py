"""Metadata logs written by hand: one good cluster, and one bad per breach of agreement."""

from __future__ import annotations

import struct

from tests.chaos.agreement import check_agreement
from tests.sim.checkers.batches import Batch, read_batches
from tests.sim.workloads.encode import CONTROL, encode_batch

TOPIC_ID = b"t" * 16


def batch(offset: int, term: int, value: bytes, *, control: bool = False) -> Batch:
    key = struct.pack(">hh", 0, 2) if control else None
    data = encode_batch(
        [(key, value)], timestamp=1, base_offset=offset, leader_epoch=term, attributes=CONTROL if control else 0
    )
    return next(iter(read_batches(data)))


def leader_change(offset: int, term: int, leader: int) -> Batch:
    return batch(offset, term, struct.pack(">hi", 0, leader), control=True)


def topic(offset: int, term: int) -> Batch:
    return batch(offset, term, b"\1\2\0" + b"\2t" + TOPIC_ID + b"\0")


def ids(*nodes: int) -> bytes:
    return bytes([len(nodes) + 1]) + b"".join(struct.pack(">i", node) for node in nodes)


def partition(offset: int, term: int, leader: int, epoch: int, isr: tuple[int, ...] = (1, 2, 3)) -> Batch:
    value = b"\1\3\0" + struct.pack(">i", 0) + TOPIC_ID + ids(1, 2, 3) + ids(*isr) + ids() + ids()
    return batch(offset, term, value + struct.pack(">iii", leader, epoch, 0) + b"\0")


def test_logs_that_agree_and_one_with_a_tail_that_was_never_committed() -> None:
    good = [leader_change(0, 1, 1), topic(1, 1), partition(2, 1, 1, 0), leader_change(3, 2, 2), partition(4, 2, 2, 1)]
    assert list(check_agreement({1: [*good[:3], topic(3, 1)], 2: good, 3: good[:4]})) == []


def test_logs_that_differ_below_what_they_agree_on() -> None:
    one = [leader_change(0, 1, 1), topic(1, 1), leader_change(2, 2, 2)]
    two = [leader_change(0, 1, 1), partition(1, 1, 1, 0), leader_change(2, 2, 2)]
    assert any("agree behind it" in finding for finding in check_agreement({1: one, 2: two}))


def test_two_leaders_of_one_term() -> None:
    findings = check_agreement({1: [leader_change(0, 1, 1)], 2: [leader_change(0, 1, 2)]})
    assert any("two leaders of term 1" in finding for finding in findings)


def test_a_term_that_goes_back() -> None:
    assert any("comes after term" in finding for finding in check_agreement({1: [topic(0, 2), topic(1, 1)]}))


def test_two_leaders_of_one_epoch_of_a_partition() -> None:
    log = [topic(0, 1), partition(1, 1, 1, 4), partition(2, 1, 2, 4)]
    assert any("two leaders of epoch 4" in finding for finding in check_agreement({1: log}))


def test_a_leader_that_is_not_in_sync() -> None:
    log = [topic(0, 1), partition(1, 1, 1, 4), partition(2, 1, 2, 5, isr=(1, 3))]
    assert any("not in sync" in finding for finding in check_agreement({1: log}))
