"""Limits of the groups of one partition, and of the memory of their members."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from odradek.coordinator import bounded_ids
from odradek.coordinator.group import commands as c
from odradek.coordinator.group import memory_accounting
from odradek.coordinator.group import state as group_state
from odradek.coordinator.group.draft import Draft
from odradek.coordinator.group.memory_accounting import (
    ASSIGNED_BYTES,
    MEMBER_BYTES,
    RECOUNT_INTERVAL_MS,
    RESERVED_FRACTION,
    MemoryAccounting,
    text_bytes,
)
from odradek.protocol.errors import ErrorCode
from tests.support.classic_rig import ClassicRig
from tests.support.modern_rig import Client, ModernRig

if TYPE_CHECKING:
    from odradek.coordinator.group.state import State

FULL = "COORDINATOR_NOT_AVAILABLE"


class Members:
    def __init__(self, members_bytes: int) -> None:
        self.members_bytes = members_bytes


class Accounts:
    """Memory accounting of one shard, changed as decisions change it."""

    def __init__(self) -> None:
        self.memory = MemoryAccounting()

    def reserve(self, group: Members, cost: int, now_ms: int, *, is_new_member: bool) -> bool:
        state = SimpleNamespace(memory=self.memory, groups={"g": group})
        draft: Draft[Any] = Draft(cast("Any", state), None, now_ms)
        admitted = draft.reserve(cost, is_new_member=is_new_member)
        for change in (draft.decision(None) if admitted else draft.refused(None)).soft:
            change()
        self.memory = state.memory
        return admitted


def test_members_are_counted_only_when_free_memory_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_accounting, "MEMBERS_BYTES_MAX", 100)
    accounts, group = Accounts(), Members(60)
    assert accounts.reserve(group, 30, 0, is_new_member=False)
    group.members_bytes = 0
    assert accounts.memory.free_bytes == 10
    assert accounts.reserve(group, 10, 1, is_new_member=False)
    assert not accounts.reserve(group, 1, 1, is_new_member=False), "no second count within the interval"
    assert accounts.reserve(group, 1, RECOUNT_INTERVAL_MS, is_new_member=False)
    assert accounts.memory.free_bytes == 99
    group.members_bytes = 100
    assert accounts.reserve(group, 0, 0, is_new_member=True), "no cost needs no count"
    assert not accounts.reserve(group, 100, -1_000_000, is_new_member=False), (
        "a clock set back does not prevent a count"
    )
    assert accounts.memory.counted_ms == -1_000_000


def test_new_members_leave_a_reserve_for_existing_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_accounting, "MEMBERS_BYTES_MAX", 100)
    accounts, group = Accounts(), Members(0)
    assert accounts.reserve(group, 75, 0, is_new_member=True)
    assert not accounts.reserve(group, 1, 0, is_new_member=True)
    assert accounts.reserve(group, 25, 0, is_new_member=False)
    assert not accounts.reserve(group, 1, 0, is_new_member=False)


def use_up_memory(monkeypatch: pytest.MonkeyPatch, state: State, free_bytes: int = 0) -> int:
    """Set the limit so that new members can take `free_bytes`. Return the bytes of the current members."""
    members_bytes = sum(group.members_bytes for group in state.groups.values())
    monkeypatch.setattr(
        memory_accounting,
        "MEMBERS_BYTES_MAX",
        (members_bytes + free_bytes) * RESERVED_FRACTION // (RESERVED_FRACTION - 1),
    )
    state.memory = MemoryAccounting()
    return members_bytes


def test_memory_of_classic_members_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = ClassicRig(group_initial_rebalance_delay_ms=0)
    metadata = [("range", b"x" * 100)]
    [member_id] = rig.stable(None, protocols=metadata)
    use_up_memory(monkeypatch, rig.core.state, free_bytes=2 * MEMBER_BYTES)
    refused = rig.join(version=3, group="other", protocols=[("range", bytes(2 * MEMBER_BYTES))])
    assert ErrorCode(refused.error_code).name == FULL
    assert rig.heartbeat(member_id, 1) == "NONE"
    assert isinstance(rig.join(version=3, protocols=metadata), int), (
        "a smaller member is accepted, and waits for the first"
    )
    full = rig.join(version=3, group="other", protocols=metadata)
    assert ErrorCode(full.error_code).name == FULL
    assert "other" not in rig.core.state.groups
    reply = rig.join(member_id, protocols=[("range", b"x" * 150)])
    assert not isinstance(reply, int)
    assert reply.error_code == ErrorCode.NONE, "a member may rejoin with larger metadata"


@pytest.mark.parametrize("length", [1, 10_000])
def test_pending_member_ids_count_as_members(monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    members_bytes = MEMBER_BYTES + text_bytes("range", "c" * length, "/10.0.0.1", f"{'c' * length}-m1")
    monkeypatch.setattr(memory_accounting, "MEMBERS_BYTES_MAX", 5 * members_bytes)
    rig = ClassicRig()
    errors = [ErrorCode(rig.join(group=f"g-{number}", client="c" * length).error_code).name for number in range(6)]
    assert errors[:3] == ["MEMBER_ID_REQUIRED"] * 3
    assert errors[-1] == FULL
    rig.wait(60_000)
    assert ErrorCode(rig.join(group="late").error_code) is ErrorCode.MEMBER_ID_REQUIRED, (
        "the pending ids have timed out"
    )


def test_memory_of_consumer_group_members_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = ModernRig()
    rig.topics.make("t", 4)
    assert isinstance(rig.enter("A", "t"), Client)
    assert isinstance(rig.enter("B", "t"), Client)
    members_bytes = use_up_memory(monkeypatch, rig.core.state)
    assert rig.enter("C", "t") == FULL
    assert rig.beat("D", 0, owned={}, group="other", rebalance_timeout_ms=1_000, subscribed_topic_names=["t"]) == FULL
    assert "other" not in rig.core.state.groups
    assert not isinstance(rig.follow("A"), str)
    assert rig.follow("A", subscribed_topic_names=["t", "u" * members_bytes]) == FULL
    assert not isinstance(rig.send_leave("B"), str)
    rig.wait(RECOUNT_INTERVAL_MS)
    assert isinstance(rig.enter("C", "t"), Client)


def test_long_instance_ids_count_as_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = ModernRig()
    rig.topics.make("t", 1)
    long = "x" * 10_000
    assert isinstance(rig.enter("A", "t", instance=f"i{long}"), Client)
    assert rig.modern.members_bytes > len(long)


def test_static_member_returns_when_memory_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = ModernRig()
    rig.topics.make("t", 1)
    assert isinstance(rig.enter("A", "t", instance="i"), Client)
    assert not isinstance(rig.send_leave("A", -2), str)
    use_up_memory(monkeypatch, rig.core.state)
    reply = rig.beat(
        "B", 0, owned={}, rebalance_timeout_ms=60_000, subscribed_topic_names=["t"], instance_id="i", client="c-2"
    )
    assert not isinstance(reply, str), reply


def test_text_bytes_count_the_widest_character() -> None:
    assert bounded_ids.text_bytes_max("abc") == 3
    assert text_bytes("a" * 99 + "\N{MONKEY}") == 4 * 100 + text_bytes("a") - 1, (
        "one wide character makes all of them wide"
    )


def test_long_group_ids_use_up_the_capacity_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_ids, "IDS_BYTES_MAX", 100)
    rig = ModernRig()
    rig.topics.make("t", 4)
    long = "g" * 60

    def enter(group: str) -> str:
        reply = rig.beat("A", 0, owned={}, group=group, rebalance_timeout_ms=1_000, subscribed_topic_names=["t"])
        return reply if isinstance(reply, str) else ErrorCode(reply.error_code).name

    assert [enter(long), enter("h" * 41), enter("h" * 40)] == ["NONE", FULL, "NONE"]
    assert rig.join(group="i").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.join(group=long, version=3, protocol_type="?") == "INCONSISTENT_GROUP_PROTOCOL", "the group exists"
    assert rig.beat("A", -1, group=long) != FULL
    assert rig.do(c.DeleteGroup(long)) is None
    assert enter("i") == "NONE"


def test_number_of_consumer_groups_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_state, "GROUPS_MAX", 2)
    rig = ModernRig()
    rig.topics.make("t", 4)

    def enter(group: str, member_id: str = "A") -> str:
        reply = rig.beat(member_id, 0, owned={}, group=group, rebalance_timeout_ms=1_000, subscribed_topic_names=["t"])
        return reply if isinstance(reply, str) else ErrorCode(reply.error_code).name

    assert [enter("a"), enter("b"), enter("c")] == ["NONE", "NONE", FULL]
    assert enter("b", "B") == "NONE", "an existing group can grow"
    assert list(rig.core.state.groups) == ["a", "b"]


def test_assigned_partitions_count_as_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The assignment is computed after the check, so the limit affects only the next member."""
    rig = ModernRig()
    rig.topics.make("t", 10)
    assert isinstance(rig.enter("A", "t"), Client)
    [member] = rig.modern.members.values()
    assert rig.modern.members_bytes == member.size + 10 * ASSIGNED_BYTES
    use_up_memory(monkeypatch, rig.core.state)
    assert rig.enter("B", "t") == FULL
    assert not isinstance(rig.follow("A"), str)
    assert not isinstance(rig.send_leave("A"), str)
    rig.wait(RECOUNT_INTERVAL_MS)
    assert isinstance(rig.enter("B", "t"), Client)
