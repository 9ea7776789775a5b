"""GroupMetadata records: encoded as Kafka's, and restored."""

from __future__ import annotations

from dataclasses import replace

from odradek.coordinator.group.classic.member import Member
from odradek.coordinator.group.classic.records import VERSION, group_record, new_group_record, restored_group
from odradek.coordinator.group.classic.state import ClassicGroup
from odradek.coordinator.group.classic.transitions import ClassicState
from odradek.coordinator.group.records import from_record, to_record
from odradek.protocol.records.group_metadata import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from tests.support.classic_rig import GROUP, ClassicRig

NOW_MS = 1_700_000_000_000


def test_record_of_an_empty_group_has_kafkas_bytes() -> None:
    group = ClassicGroup("g", protocol_type="consumer", generation=1, state_ms=NOW_MS)
    record = group_record(group, detail=None)
    assert record.key is not None
    assert record.value is not None
    assert record.key.hex() == "0002000167"
    assert record.value.hex() == "00030008636f6e73756d657200000001ffffffff0000018bcfe5680000000000"


def test_record_of_a_new_group_has_only_its_timestamp() -> None:
    group = ClassicGroup("g", protocol_type="consumer", generation=7, leader="x", state_ms=1)
    record = new_group_record(group, NOW_MS)
    assert record.value is not None
    assert record.value.hex() == "00030000" + "00000000" + "ffff" + "ffff" + "0000018bcfe56800" + "00000000"
    assert record.memo.detail is group


def test_tombstone_has_no_value() -> None:
    (record,) = ClassicGroup("g").tombstones()
    assert record.key is not None
    assert (record.key.hex(), record.value) == ("0002000167", None)


def test_restored_members_have_the_selected_protocol() -> None:
    group = ClassicGroup("g", state_ms=5)
    for name, instance in (("a", None), ("b", "i")):
        protocols = (("range", b"r" + name.encode()), ("sticky", b"s"))
        group.add(Member(name, instance, "c", "/1.2.3.4", 60, 50, protocols, assignment=b"!"), "consumer")
    group.protocol_name, group.generation, group.state = "range", 4, ClassicState.STABLE
    entry = from_record(replace(group_record(group, {"a": b"x"}, detail=None), memo=None))
    assert entry is not None
    group = restored_group("g", entry.value)
    assert (group.state, group.generation, group.leader, group.protocol_name) == (ClassicState.STABLE, 4, "a", "range")
    assert (group.protocol_type, group.state_ms, group.instances) == ("consumer", 5, {"i": "b"})
    assert [(m.member_id, m.protocols, m.assignment) for m in group.members.values()] == [
        ("a", (("range", b"ra"),), b"x"),
        ("b", (("range", b"rb"),), b""),
    ]
    assert (group.members["b"].rebalance_timeout_ms, group.members["b"].session_timeout_ms) == (60, 50)


def test_records_of_old_brokers_have_one_timeout_and_no_leader() -> None:
    member = MemberMetadata(member_id="a", session_timeout=50)
    value = GroupMetadataValue(protocol_type="consumer", protocol="range", leader=None, members=[member])
    group = restored_group("g", value)
    assert group.members["a"].rebalance_timeout_ms == 50
    assert group.leader == "a"
    assert group.state_ms is None
    assert group.topics is None


def test_loaded_group_with_members_and_no_leader_rebalances() -> None:
    rig = ClassicRig()
    group = ClassicGroup(GROUP, protocol_type="consumer", protocol_name="range", generation=3, state_ms=5)
    protocols = (("range", b"r"),)
    group.add(Member("a", None, "c", "/1.2.3.4", 60_000, 90_000, protocols, assignment=b"!"), "consumer")
    group.leader = None
    rig.log.append(replace(group_record(group, detail=None), memo=None))
    rig.crash()
    assert rig.heartbeat("a", 3) == "REBALANCE_IN_PROGRESS"
    rig.wait(60_000)  # no member has joined
    assert rig.heartbeat("a", 3) == "UNKNOWN_MEMBER_ID"


def test_tombstone_removes_the_group() -> None:
    rig = ClassicRig()
    rig.join()
    assert rig.state == "Empty"
    rig.core.apply(9, to_record(GroupMetadataKey(group=GROUP), None), 7)
    rig.core.apply(10, to_record(GroupMetadataKey(group="other"), None), 7)
    assert rig.state == "Dead"


def test_written_records_have_version_3() -> None:
    rig = ClassicRig(group_initial_rebalance_delay_ms=0)
    rig.stable(None)
    rig.leave(next(iter(rig.group.members)))
    values = [record.value[:2] for record in rig.log if record.value is not None]
    assert values == [VERSION.to_bytes(2, "big")] * 3
