"""What bounds the groups of one partition and their members, whoever asks and however often."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.group import census
from coordinator.group.census import ASSIGNED_BYTES, MEMBER_BYTES, RECOUNT_PAUSE_MS, Census
from coordinator.group.modern import finding
from protocol.errors import ErrorCode
from tests.support.classic_rig import ClassicRig
from tests.support.modern_rig import Client, ModernRig

if TYPE_CHECKING:
    import pytest

FULL = "COORDINATOR_NOT_AVAILABLE"


class Members:
    def __init__(self, members_bytes: int) -> None:
        self.members_bytes = members_bytes


def test_members_are_counted_only_when_what_was_free_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(census, "MEMBERS_BYTES_MAX", 100)
    kept, group = Census(), Members(60)
    assert kept.has_room([group], 30, 0)
    group.members_bytes = 0
    assert kept.left == 10
    assert kept.has_room([group], 10, 1)
    assert not kept.has_room([group], 1, 1), "not so soon again"
    assert kept.has_room([group], 1, RECOUNT_PAUSE_MS)
    assert kept.left == 99
    group.members_bytes = 100
    assert kept.has_room([group], 0, 0), "who wants no more than it has is not asked"
    assert not kept.has_room([group], 100, -1_000_000), "a clock that was set back does not stop the counting"
    assert kept.counted_ms == -1_000_000


def test_members_of_classic_groups_take_a_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(census, "MEMBERS_BYTES_MAX", 3 * MEMBER_BYTES)
    rig = ClassicRig(group_initial_rebalance_delay_ms=0)
    metadata = [("range", b"x" * 100)]
    [member_id] = rig.stable(None, protocols=metadata)
    refused = rig.join(version=3, group="other", protocols=[("range", bytes(2 * MEMBER_BYTES))])
    assert ErrorCode(refused.error_code).name == FULL
    assert rig.heartbeat(member_id, 1) == "NONE"
    assert isinstance(rig.join(version=3, protocols=metadata), int), "a smaller one finds room, and waits for the first"
    full = rig.join(version=3, group="other", protocols=metadata)
    assert ErrorCode(full.error_code).name == FULL
    assert "other" not in rig.core.state.groups
    again = rig.join(member_id, protocols=metadata)
    assert not isinstance(again, int)
    assert again.error_code == ErrorCode.NONE, "who is a member may join again"


def test_ids_that_were_given_out_count_as_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(census, "MEMBERS_BYTES_MAX", 4 * MEMBER_BYTES)
    rig = ClassicRig()
    errors = [ErrorCode(rig.join(group=f"g-{number}").error_code).name for number in range(5)]
    assert errors == ["MEMBER_ID_REQUIRED"] * 3 + [FULL] * 2
    rig.wait(60_000)
    assert ErrorCode(rig.join(group="late").error_code) is ErrorCode.MEMBER_ID_REQUIRED, "they have gone meanwhile"


def test_members_of_consumer_groups_take_a_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(census, "MEMBERS_BYTES_MAX", 2 * MEMBER_BYTES + 4 * ASSIGNED_BYTES + 100)
    rig = ModernRig()
    rig.topics.make("t", 4)
    assert isinstance(rig.enter("A", "t"), Client)
    assert isinstance(rig.enter("B", "t"), Client)
    assert rig.enter("C", "t") == FULL
    assert rig.beat("D", 0, owned={}, group="other", rebalance_timeout_ms=1_000, subscribed_topic_names=["t"]) == FULL
    assert "other" not in rig.core.state.groups
    assert not isinstance(rig.follow("A"), str)
    assert rig.follow("A", subscribed_topic_names=["t", "u" * 2_000]) == FULL
    assert not isinstance(rig.quit("B"), str)
    rig.wait(RECOUNT_PAUSE_MS)
    assert isinstance(rig.enter("C", "t"), Client)


def test_groups_of_the_consumer_protocol_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "GROUPS_MAX", 2)
    rig = ModernRig()
    rig.topics.make("t", 4)

    def enter(group: str, member_id: str = "A") -> str:
        reply = rig.beat(member_id, 0, owned={}, group=group, rebalance_timeout_ms=1_000, subscribed_topic_names=["t"])
        return reply if isinstance(reply, str) else ErrorCode(reply.error_code).name

    assert [enter("a"), enter("b"), enter("c")] == ["NONE", "NONE", FULL]
    assert enter("b", "B") == "NONE", "a group that is there may grow"
    assert list(rig.core.state.groups) == ["a", "b"]


def test_what_members_are_assigned_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot be known beforehand: who asks next is refused."""
    monkeypatch.setattr(census, "MEMBERS_BYTES_MAX", 3 * MEMBER_BYTES)
    rig = ModernRig()
    rig.topics.make("t", 10)
    assert isinstance(rig.enter("A", "t"), Client)
    assert rig.modern.members_bytes == MEMBER_BYTES + len("t") + 10 * ASSIGNED_BYTES
    assert rig.enter("B", "t") == FULL
    assert not isinstance(rig.follow("A"), str)
    assert not isinstance(rig.quit("A"), str)
    rig.wait(RECOUNT_PAUSE_MS)
    assert isinstance(rig.enter("B", "t"), Client)
