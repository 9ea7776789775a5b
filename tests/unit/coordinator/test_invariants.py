"""Each test breaks one invariant of a coordinator and expects its violation."""

from __future__ import annotations

from dataclasses import replace

from odradek.coordinator.group.classic.member import Member
from odradek.coordinator.group.classic.state import ClassicGroup
from odradek.coordinator.group.classic.transitions import ClassicState
from odradek.coordinator.txn.changes import check_step
from odradek.invariants.coordinator import (
    CLASSIC_GROUP_COUNTS,
    CLASSIC_GROUP_MEMBERS,
    CLASSIC_GROUP_STATE,
    TXN_CLIENT_IDENTITY,
    TXN_IDENTITY,
    TXN_PARTITIONS,
    TXN_TIMES,
)
from odradek.protocol.txn_state import TxnState
from tests.support.invariants import breaks
from tests.support.txn_rig import PID, transaction


@breaks(TXN_IDENTITY)
def test_ongoing_transaction_with_another_producer_id_is_a_violation() -> None:
    before = transaction(TxnState.ONGOING)
    check_step(before, replace(before, producer_id=before.producer_id + 1))


@breaks(TXN_CLIENT_IDENTITY)
def test_kept_transaction_that_loses_the_identity_of_its_client_is_a_violation() -> None:
    before = replace(transaction(TxnState.ONGOING, epoch=5), next_producer_id=PID, next_producer_epoch=6)
    check_step(before, replace(before, next_producer_epoch=8))


@breaks(TXN_PARTITIONS)
def test_ongoing_transaction_that_loses_its_partitions_is_a_violation() -> None:
    before = transaction(TxnState.ONGOING)
    check_step(before, replace(before, partitions={}))


@breaks(TXN_TIMES)
def test_ongoing_transaction_without_a_start_time_is_a_violation() -> None:
    before = transaction(TxnState.ONGOING)
    check_step(before, replace(before, start_ms=-1))


@breaks(CLASSIC_GROUP_STATE)
def test_empty_group_that_completes_a_rebalance_is_a_violation() -> None:
    ClassicGroup("g").enter(ClassicState.COMPLETING, 0)


@breaks(CLASSIC_GROUP_MEMBERS)
def test_second_member_with_the_same_instance_id_is_a_violation() -> None:
    group = ClassicGroup("g")
    for member_id in ("a", "b"):
        group.add(Member(member_id, "instance", "client", "host", 1, 1, (("range", b""),)), "consumer")


@breaks(CLASSIC_GROUP_COUNTS)
def test_joined_member_without_a_waiting_request_is_a_violation() -> None:
    group = ClassicGroup("g")
    draft = group.draft()
    draft.joined_count += 1
    group.commit(draft)
