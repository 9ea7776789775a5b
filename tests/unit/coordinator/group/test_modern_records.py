"""The records of consumer groups: byte for byte as the serde of Kafka 4.3.1 writes them, and decoded."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from odradek.coordinator.group.modern import records as r
from odradek.coordinator.group.modern.member import ClassicMember, Member, MemberState
from odradek.coordinator.group.records import Entry, from_record, to_record
from odradek.protocol.records.consumer_group_current_member_assignment import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from tests.support.classic_rig import GROUP
from tests.support.modern_rig import ModernRig

if TYPE_CHECKING:
    from odradek.runtime.shard import ShardRecord

T, U = bytes(7) + b"\1" + bytes(7) + b"\2", bytes(7) + b"\3" + bytes(7) + b"\4"
BARE = Member("m")
MEMBER = Member(
    "m",
    epoch=3,
    previous_epoch=2,
    state=MemberState.UNREVOKED_PARTITIONS,
    instance_id="i",
    rack_id="r",
    rebalance_timeout_ms=1_000,
    client_id="c",
    client_host="/127.0.0.1",
    topics=("a", "b"),
    regex="x.*",
    assignor="range",
    assigned={U: {5: 3}, T: {1: 3, 0: 2}},
    revoking={T: {7: 1}},
)
CLASSIC = replace(BARE, classic=ClassicMember(10, (("range", b"\1\2"),)))
NOW_MS = 1_700_000_000_000
TARGET = {U: frozenset({5}), T: frozenset({1, 0})}

RECORDS: dict[str, tuple[ShardRecord, str, str | None]] = {
    "a member": (
        r.member_record("g", MEMBER),
        "000500016700016d",
        "00000269027202630b2f3132372e302e302e31030261026204782e2a000003e80672616e676501000100",
    ),
    "a member that has said nothing": (
        r.member_record("g", BARE),
        "000500016700016d",
        "0000000001010101ffffffff0001000100",
    ),
    "a member of the classic protocol": (
        r.member_record("g", CLASSIC),
        "000500016700016d",
        "0000000001010101ffffffff00010011010000000a020672616e67650301020000",
    ),
    "no member": (
        r.member_tombstone("g", "m"),
        "000500016700016d",
        None,
    ),
    "a group": (
        r.group_record("g", 7, -5),
        "0003000167",
        "000000000007010008fffffffffffffffb",
    ),
    "a group without topics": (
        r.group_record("g", 7, 0),
        "0003000167",
        "00000000000700",
    ),
    "no group": (
        r.group_tombstone("g"),
        "0003000167",
        None,
    ),
    "no partitions": (
        r.partition_metadata_tombstone("g"),
        "0004000167",
        None,
    ),
    "a target": (
        r.target_assignment_record("g", "m", TARGET),
        "000700016700016d",
        "00000300000000000000010000000000000002030000000000000001000000000000000003000000000000000402000000050000",
    ),
    "no target": (
        r.target_assignment_tombstone("g", "m"),
        "000700016700016d",
        None,
    ),
    "the epoch of a target": (
        r.target_metadata_record("g", 7, NOW_MS),
        "0006000167",
        "0000000000070100080000018bcfe56800",
    ),
    "the epoch of a target of before 4.3": (
        r.target_metadata_record("g", 7, 0),
        "0006000167",
        "00000000000700",
    ),
    "no epoch of a target": (
        r.target_metadata_tombstone("g"),
        "0006000167",
        None,
    ),
    "what a member has": (
        r.current_assignment_record("g", MEMBER),
        "000800016700016d",
        "00000000000300000002010300000000000000010000000000000002030000000000000001010009030000000200000003000000000000000300000000000000040200000005010005020000000302000000000000000100000000000000020200000007010005020000000100",
    ),
    "a member that has nothing": (
        r.current_assignment_record("g", BARE),
        "000800016700016d",
        "000000000000ffffffff00010100",
    ),
    "nothing that a member has": (
        r.current_assignment_tombstone("g", "m"),
        "000800016700016d",
        None,
    ),
    "an expression": (
        r.regex_record("g", "x.*", ["xb", "xa"], 9, NOW_MS),
        "00100001670003782e2a",
        "00000303786103786200000000000000090000018bcfe5680000",
    ),
    "no expression": (
        r.regex_tombstone("g", "x.*"),
        "00100001670003782e2a",
        None,
    ),
}


@pytest.mark.parametrize("name", RECORDS)
def test_records_have_kafkas_bytes(name: str) -> None:
    record, key, value = RECORDS[name]
    assert record.key is not None
    assert (record.key.hex(), None if record.value is None else record.value.hex()) == (key, value)


@pytest.mark.parametrize("name", RECORDS)
def test_records_are_decoded(name: str) -> None:
    record = RECORDS[name][0]
    entry = from_record(replace(record, memo=None))
    assert isinstance(entry, Entry)
    assert (entry.key, entry.value) == (record.memo.key, record.memo.value)


@pytest.mark.parametrize("member", [MEMBER, BARE, CLASSIC])
def test_member_is_restored_from_its_records(member: Member) -> None:
    rig = ModernRig()
    rig.log += [r.member_record(GROUP, member), r.current_assignment_record(GROUP, member)]
    rig.crash()
    assert rig.modern.members == {"m": member}
    assert rig.modern.state_name in {"Stable", "Reconciling"}


def before_43(epochs: list[int] | None, member_epoch: int = 4) -> Member:
    """Return a member restored from a current assignment record with these partition epochs (None: no field)."""
    rig = ModernRig()
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id="m")
    partitions = TopicPartitions(topic_id=UUID(bytes=T), partitions=[0, 1], assignment_epochs=epochs)
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member_epoch, previous_member_epoch=3, assigned_partitions=[partitions]
    )
    rig.log.append(to_record(key, value))
    rig.crash()
    return rig.modern.members["m"]


def test_assignments_before_4_3_have_the_epoch_of_their_member() -> None:
    """A list of another length than the partitions, such as the schema's default, counts as no epochs."""
    assert before_43(None).assigned == {T: {0: 4, 1: 4}}
    assert before_43([]).assigned == {T: {0: 4, 1: 4}}
    assert before_43([2]).assigned == {T: {0: 4, 1: 4}}
    assert before_43([2, 3]).assigned == {T: {0: 2, 1: 3}}
    assert before_43(None, member_epoch=-2).assigned == {T: {0: 0, 1: 0}}


def test_member_state_of_a_newer_coordinator_is_unknown() -> None:
    rig = ModernRig()
    record = r.current_assignment_record(GROUP, MEMBER)
    record.memo.value.state = 9
    rig.log.append(to_record(record.memo.key, record.memo.value))
    rig.crash()
    assert rig.modern.members["m"].state is MemberState.UNKNOWN
