"""OffsetFetch of one group."""

from __future__ import annotations

from uuid import UUID

import pytest

from odradek.coordinator.group.state import GroupKind
from odradek.protocol.errors import ErrorCode
from odradek.protocol.primitives import ZERO_UUID
from odradek.protocol.special_values import NO_LEADER_EPOCH
from tests.support.offsets_rig import FakeGroup, OffsetsRig, commit, commit_in_transaction, fetch, fetched

T0, T1, U0 = ("t", 0), ("t", 1), ("u", 0)
UNSTABLE = "UNSTABLE_OFFSET_COMMIT"


@pytest.fixture
def rig() -> OffsetsRig:
    rig = OffsetsRig()
    rig.do(commit("g", {T0: 10, U0: 20}, epoch=3, metadata="mine"))
    return rig


def test_fetch_returns_offset_epoch_and_metadata(rig: OffsetsRig) -> None:
    reply = rig.do(fetch("g", T0))
    (partition,) = reply.topics[0].partitions
    assert (reply.group_id, reply.error_code, reply.topics[0].name) == ("g", 0, "t")
    assert (partition.committed_offset, partition.committed_leader_epoch, partition.metadata) == (10, 3, "mine")


def test_partition_without_offset_is_minus_one_without_error(rig: OffsetsRig) -> None:
    (partition,) = rig.do(fetch("g", T1)).topics[0].partitions
    assert (partition.committed_offset, partition.committed_leader_epoch) == (-1, NO_LEADER_EPOCH)
    assert (partition.metadata, partition.error_code) == ("", 0)
    assert fetched(rig.do(fetch("unknown-group", T0, U0))) == {T0: -1, U0: -1}


def test_fetch_of_null_topics_returns_all_offsets(rig: OffsetsRig) -> None:
    reply = rig.do(fetch("g"))
    assert fetched(reply) == {T0: 10, U0: 20}
    assert {topic.topic_id for topic in reply.topics} == {ZERO_UUID}
    assert rig.do(fetch("unknown-group")).topics == []


def test_fetch_of_no_topics_is_empty(rig: OffsetsRig) -> None:
    command = fetch("g")
    command.request.topics = []
    assert rig.do(command).topics == []


def test_pending_offsets_are_unstable_with_require_stable(rig: OffsetsRig) -> None:
    rig.do(commit_in_transaction(1, "g", {T0: 11, T1: 1}))
    assert fetched(rig.do(fetch("g", T0, T1, U0))) == {T0: 10, T1: -1, U0: 20}
    assert fetched(rig.do(fetch("g", T0, T1, U0, stable=True))) == {T0: UNSTABLE, T1: UNSTABLE, U0: 20}
    # As in Kafka, a fetch of all topics returns only committed offsets.
    assert fetched(rig.do(fetch("g", stable=True))) == {T0: UNSTABLE, U0: 20}
    (partition,) = rig.do(fetch("g", T0, stable=True)).topics[0].partitions
    assert (partition.committed_offset, partition.committed_leader_epoch, partition.metadata) == (-1, -1, "")


@pytest.mark.parametrize(
    ("committed_id", "requested_id", "expected"),
    [(1, 1, 5), (1, 2, -1), (0, 2, 5), (1, 0, 5), (0, 0, 5)],
)
def test_recreated_topic_has_no_offsets_of_the_old_one(committed_id: int, requested_id: int, expected: int) -> None:
    rig = OffsetsRig()
    rig.do(commit("g", {T0: 5}, version=10, topic_id=UUID(int=committed_id)))
    reply = rig.do(fetch("g", T0, topic_id=UUID(int=requested_id)))
    assert fetched(reply) == {T0: expected}
    assert reply.topics[0].topic_id == UUID(int=requested_id)


def test_group_checks_the_fetching_member(rig: OffsetsRig) -> None:
    group = rig.group(FakeGroup("g", kind=GroupKind.CONSUMER))
    assert fetched(rig.do(fetch("g", T0, member_id="m", member_epoch=4))) == {T0: 10}
    assert group.recorded_checks == [("fetch", "m", 4)]
    group.refuses["fetch"] = ErrorCode.STALE_MEMBER_EPOCH
    assert rig.do(fetch("g", T0, member_id="m", member_epoch=3)) == "STALE_MEMBER_EPOCH"
    assert rig.do(fetch("g", member_id="m", member_epoch=3)) == "STALE_MEMBER_EPOCH"


def test_dead_group_has_no_offsets(rig: OffsetsRig) -> None:
    rig.group(FakeGroup("g", refuses={"fetch": ErrorCode.GROUP_ID_NOT_FOUND}))
    assert fetched(rig.do(fetch("g", T0))) == {T0: -1}
    assert rig.do(fetch("g")).topics == []
