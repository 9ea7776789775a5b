"""Rules of classic groups that the transcripts in tests/scenarios/classic_group do not cover."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.coordinator.group import commands as c
from odradek.coordinator.group import state as group_state
from odradek.coordinator.group.classic import join, subscriptions
from odradek.coordinator.group.classic.commands import JoinTimeout, join_key, join_refused
from odradek.coordinator.group.classic.conversion import members_of, release_waiters
from odradek.coordinator.group.classic.draft import ClassicDraft
from odradek.coordinator.group.classic.rebalance import RESTART_MS_MIN
from odradek.coordinator.group.classic.state import ClassicGroup, simple_group
from odradek.coordinator.group.classic.subscriptions import subscribed_topics
from odradek.coordinator.group.classic_requests import PROTOCOLS_MAX
from odradek.coordinator.group.state import GroupKind
from odradek.protocol import codec
from odradek.protocol.codec import encode
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.heartbeat import HeartbeatRequest
from odradek.protocol.messages.join_group import JoinGroupRequestProtocol
from odradek.protocol.messages.leave_group import LeaveGroupRequest
from odradek.protocol.messages.sync_group import SyncGroupRequest
from odradek.protocol.records.consumer_protocol_subscription import ConsumerProtocolSubscription
from tests.support.classic_rig import GROUP, ClassicRig, caller, join_request


def topics(*names: str, version: int = 3) -> bytes:
    return version.to_bytes(2, "big") + encode(ConsumerProtocolSubscription(topics=list(names)), version)


# ---- join requests --------------------------------------------------------------------------------------------------


def test_empty_group_id_is_refused() -> None:
    rig = ClassicRig()
    assert rig.join("x", group="").error_code == ErrorCode.INVALID_GROUP_ID
    assert rig.join("x", group="").member_id == "x"
    assert rig.do(c.SyncGroup(SyncGroupRequest(), caller(5), 1)) == "INVALID_GROUP_ID"
    assert rig.do(c.Heartbeat(HeartbeatRequest(), caller(4))) == "INVALID_GROUP_ID"
    assert rig.do(c.LeaveGroup(LeaveGroupRequest(), caller(5))) == "INVALID_GROUP_ID"


def test_duplicate_protocol_names_count_once() -> None:
    rig = ClassicRig(group_initial_rebalance_delay_ms=0)
    waiter = rig.join(version=3, protocols=[("range", b"first"), ("range", b"second")])
    rig.wait(0)
    assert [member.metadata for member in rig.responses[waiter].members] == [b"first"]
    assert rig.group.protocol_counts == {"range": 1}


def test_metadata_is_copied_from_the_network_buffer() -> None:
    buffer = bytearray(b"abc")
    request = join_request()
    request.protocols = [JoinGroupRequestProtocol("range", memoryview(buffer))]
    rig = ClassicRig()
    rig.do(c.JoinGroup(request, caller(3), 1))
    buffer[:] = b"xyz"
    assert rig.group.members["c-1"].metadata("range") == b"abc"


def test_pending_member_ids_per_group_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join, "PENDING_MAX", 3)
    rig = ClassicRig()
    replies = [rig.join() for _ in range(4)]
    assert [reply.error_code for reply in replies] == [ErrorCode.MEMBER_ID_REQUIRED] * 3 + [
        ErrorCode.COORDINATOR_NOT_AVAILABLE
    ]
    assert replies[3].member_id == ""
    rig.wait(10_000)
    assert rig.group.pending_ids == {}
    assert rig.join().error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_selected_protocol_is_the_one_that_most_members_prefer() -> None:
    rig = ClassicRig()
    protocols = [("range", b""), ("sticky", b"")]
    first = rig.join(version=3, protocols=[*protocols, ("only here", b"")])
    rig.join(version=3, protocols=protocols[::-1])
    rig.join(version=3, protocols=protocols[::-1])
    rig.wait(6_000)
    assert rig.responses[first].protocol_name == "sticky"


def test_number_of_groups_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_state, "GROUPS_MAX", 2)
    rig = ClassicRig()
    errors = [rig.join(group=name).error_code for name in ("a", "b", "c", "a")]
    assert errors == [
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.MEMBER_ID_REQUIRED,
    ]
    assert list(rig.core.state.groups) == ["a", "b"]


# ---- descriptions and kinds of groups -------------------------------------------------------------------------------


def test_describe_groups_response() -> None:
    rig = ClassicRig(group_initial_rebalance_delay_ms=0)
    (member,) = rig.stable("i", protocols=[("range", b"meta")])
    description = rig.describe()
    assert (description.group_state, description.protocol_type, description.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    (described,) = description.members
    assert (described.member_id, described.group_instance_id, described.client_id, described.client_host) == (
        member,
        "i",
        "c",
        "/127.0.0.1",
    )
    assert (described.member_metadata, described.member_assignment) == (b"meta", member.encode())
    rig.join(member, instance="i", protocols=[("range", b"new")])
    description = rig.describe()
    assert (description.group_state, description.protocol_data) == ("CompletingRebalance", "")
    assert description.members[0].member_metadata == b""
    assert description.authorized_operations == -2147483648


class Foreign:
    """Fake of a consumer group, with the attributes that classic requests use."""

    group_id = GROUP
    kind = GroupKind.CONSUMER
    members_bytes = 0

    def __init__(self, is_empty: bool) -> None:
        self.is_empty = is_empty

    def tombstones(self) -> tuple[Any, ...]:
        return simple_group(GROUP).tombstones()


def test_describe_groups_of_a_consumer_group_returns_group_id_not_found() -> None:
    rig = ClassicRig()
    rig.core.state.groups[GROUP] = Foreign(is_empty=False)  # type: ignore[assignment]
    description = rig.describe()
    assert (description.group_state, description.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)
    assert description.error_message == "Group g is not a classic group."
    assert rig.describe(version=5).error_code == ErrorCode.NONE


def test_classic_join_replaces_an_empty_consumer_group() -> None:
    rig = ClassicRig()
    rig.core.state.groups[GROUP] = Foreign(is_empty=True)  # type: ignore[assignment]
    assert rig.join("x").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.sync("x", 1).startswith("UNKNOWN")
    assert rig.log == []
    assert rig.join().error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert [record.value is None for record in rig.log] == [True, False]
    assert isinstance(rig.core.state.groups[GROUP], ClassicGroup)


def test_simple_group_has_only_offsets() -> None:
    group = simple_group("g")
    assert (group.is_empty, group.is_simple, group.protocol_type, group.state_name) == (True, True, "", "Empty")
    assert group.offsets_expire_from_ms(5) == 5
    assert not group.is_subscribed_to("t")
    group.check_delete()
    group.check_offset_delete()
    group.check_offset_fetch(None, -1)
    group.check_offset_commit("", None, -1, in_transaction=False, api_version=9)
    assert group.commit_timers("") == ()
    group.pending_ids["x"] = None
    assert not group.is_simple


# ---- offsets --------------------------------------------------------------------------------------------------------


def test_offsets_of_an_empty_group_expire_from_when_it_became_empty() -> None:
    rig = ClassicRig(group_initial_rebalance_delay_ms=0)
    (member,) = rig.stable(None)
    rig.wait(1_000)
    rig.leave(member)
    assert rig.group.offsets_expire_from_ms(5) == rig.now_ms
    rig.group.state_ms = None  # records of Kafka before 2.1 have no timestamp
    assert rig.group.offsets_expire_from_ms(5) == 5


def test_offsets_of_subscribed_topics_do_not_expire() -> None:
    rig = ClassicRig(group_initial_rebalance_delay_ms=0)
    (member,) = rig.stable(None, protocols=[("range", topics("t", "u"))])
    group = rig.group
    assert group.topics == frozenset({"t", "u"})
    assert group.is_subscribed_to("t")
    assert not group.is_subscribed_to("v")
    assert group.offsets_expire_from_ms(5) == 5
    rig.join(member, protocols=[("range", topics("v"))])
    assert rig.state == "CompletingRebalance"
    assert group.offsets_expire_from_ms(5) is None
    assert group.is_subscribed_to("v")
    rig.leave(member)
    assert group.topics == frozenset()
    assert not group.is_subscribed_to("v")


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\0\1\0\0\0\5", b"\0\0\xff\xff\xff\xf0"])
def test_invalid_metadata_counts_as_subscription_to_all_topics(metadata: bytes) -> None:
    rig = ClassicRig(group_initial_rebalance_delay_ms=0)
    rig.stable(None, protocols=[("range", metadata)])
    assert rig.group.topics is None
    assert rig.group.is_subscribed_to("t")
    assert rig.group.offsets_expire_from_ms(5) is None


def test_topics_are_decoded_from_every_subscription_version() -> None:
    assert subscribed_topics(topics("t", version=version) for version in range(4)) == frozenset({"t"})
    assert subscribed_topics([(99).to_bytes(2, "big") + topics("t")[2:]]) == frozenset({"t"})
    assert subscribed_topics([topics("t"), b""]) is None


def test_equal_topics_of_members_are_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []

    def counted(cls: Any, version: int, data: bytes, *limits: int) -> Any:
        decoded.append(data)
        return codec.decode_charged(cls, version, data, *limits)

    monkeypatch.setattr(subscriptions, "decode_charged", counted)
    same = [topics("t", "ü") + bytes([number]) for number in range(50)]
    assert subscribed_topics([*same, topics("t"), topics("t", "u")]) == frozenset({"t", "u", "ü"})
    assert len(decoded) == 3


def test_too_many_topics_count_as_subscription_to_all_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "CHARGE_BYTES_MAX", 10_000)
    assert subscribed_topics([topics(*(f"t{number}" for number in range(200)))]) is None
    parts = [topics(*(f"t{number}" for number in range(first, first + 20))) for first in range(0, 200, 20)]
    assert subscribed_topics(parts[:2]) == frozenset(f"t{number}" for number in range(40))
    assert subscribed_topics(parts) is None


def test_offsets_of_other_protocol_types_do_not_expire() -> None:
    rig = ClassicRig(group_initial_rebalance_delay_ms=0)
    rig.stable(None, protocol_type="connect")
    assert rig.group.offsets_expire_from_ms(5) is None
    assert not rig.group.is_subscribed_to("t")
    with pytest.raises(Refusal, match="NON_EMPTY_GROUP"):
        rig.group.check_offset_delete()


def test_offset_commit_extends_the_session() -> None:
    rig = ClassicRig(group_initial_rebalance_delay_ms=0)
    (member,) = rig.stable(None, session_ms=6_000)
    (timer,) = rig.group.commit_timers(member)
    assert (timer.delay_ms, timer.command.member_id) == (6_000, member)


# ---- timers ---------------------------------------------------------------------------------------------------------


def test_stable_group_has_only_session_timers() -> None:
    rig = ClassicRig(group_initial_rebalance_delay_ms=0)
    members = rig.stable(None, None)
    assert sorted(rig.timers) == sorted(("classic session", GROUP, member) for member in members)


def test_empty_group_has_no_timers() -> None:
    rig = ClassicRig(group_initial_rebalance_delay_ms=0)
    rig.leave(*rig.stable(None, None, "i"))
    assert rig.state == "Empty"
    assert rig.timers == {}


def test_replaced_static_member_has_no_session_timer() -> None:
    rig = ClassicRig(group_initial_rebalance_delay_ms=0)
    rig.stable("i")
    rejoined = rig.join(instance="i")
    assert list(rig.timers) == [("classic session", GROUP, rejoined.member_id)]


# ---- conversion -----------------------------------------------------------------------------------------------------


def test_conversion_completes_waiting_requests() -> None:
    rig = ClassicRig(group_initial_rebalance_delay_ms=0)
    first, second = rig.stable(None, None)
    third = rig.join(version=3)
    waiting = rig.join(first)
    rig.join()
    draft = ClassicDraft(rig.core.state, rig.group, rig.now_ms)
    release_waiters(draft, rig.group)
    assert [(effect.waiter, effect.response) for effect in draft.effects] == [
        (waiting, join_refused(ErrorCode.REBALANCE_IN_PROGRESS, first)),
        (third, join_refused(ErrorCode.REBALANCE_IN_PROGRESS, "c-3")),
    ]
    assert {timer.key for timer in draft.timers} >= set(rig.timers)
    assert all(timer.delay_ms is None for timer in draft.timers)
    assert [view.member_id for view in members_of(rig.group)] == [first, second, "c-3"]
    assert members_of(rig.group)[0].protocols == (("range", b"topics"),)


def test_member_with_too_many_protocols_or_a_long_instance_id_is_refused() -> None:
    rig = ClassicRig(group_initial_rebalance_delay_ms=0)
    many = [(f"p{number}", b"") for number in range(PROTOCOLS_MAX + 1)]
    assert rig.join("", protocols=many).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert rig.join("", instance="i" * 2_001).error_code == ErrorCode.INVALID_REQUEST
    assert GROUP not in rig.core.state.groups


def test_repeated_join_phase_without_joining_members_does_not_spin() -> None:
    """Static members may have a rebalance time-out of 0. The timer would be due in each iteration of the event loop."""
    rig = ClassicRig(group_initial_rebalance_delay_ms=0)
    rig.stable("i")
    member_id = rig.join("", instance="i", rebalance_ms=0).member_id
    assert rig.state == "Stable"
    pending = rig.join("", version=4)
    assert pending.error_code == ErrorCode.MEMBER_ID_REQUIRED
    rig.leave(pending.member_id)
    assert rig.state == "PreparingRebalance"
    rig.do(JoinTimeout(GROUP))
    due_ms, command = rig.timers[join_key(GROUP)]
    assert (due_ms - rig.now_ms, command) == (RESTART_MS_MIN, JoinTimeout(GROUP))
    rig.heartbeat(member_id, rig.group.generation, instance="i")
    assert rig.state == "PreparingRebalance"
