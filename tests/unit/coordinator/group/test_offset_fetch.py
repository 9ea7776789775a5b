"""OffsetFetch of one group."""

from __future__ import annotations

from uuid import UUID

import pytest

from odradek.coordinator.group.offset_store import NO_EPOCH
from odradek.coordinator.group.state import GroupKind
from odradek.protocol.errors import ErrorCode
from odradek.protocol.primitives import ZERO_UUID
from tests.support.offsets_rig import FakeGroup, OffsetsRig, commit, commit_in_transaction, fetch, fetched

T0, T1, U0 = ("t", 0), ("t", 1), ("u", 0)
UNSTABLE = "UNSTABLE_OFFSET_COMMIT"


@pytest.fixture
def rig() -> OffsetsRig:
    rig = OffsetsRig()
    rig.do(commit("g", {T0: 10, U0: 20}, epoch=3, metadata="mine"))
    return rig


def test_all_that_was_committed_is_told(rig: OffsetsRig) -> None:
    reply = rig.do(fetch("g", T0))
    (partition,) = reply.topics[0].partitions
    assert (reply.group_id, reply.error_code, reply.topics[0].name) == ("g", 0, "t")
    assert (partition.committed_offset, partition.committed_leader_epoch, partition.metadata) == (10, 3, "mine")


def test_what_was_never_committed_is_minus_one_and_no_error(rig: OffsetsRig) -> None:
    (partition,) = rig.do(fetch("g", T1)).topics[0].partitions
    assert (partition.committed_offset, partition.committed_leader_epoch) == (-1, NO_EPOCH)
    assert (partition.metadata, partition.error_code) == ("", 0)
    assert fetched(rig.do(fetch("nobody", T0, U0))) == {T0: -1, U0: -1}


def test_everything_may_be_asked_for(rig: OffsetsRig) -> None:
    reply = rig.do(fetch("g"))
    assert fetched(reply) == {T0: 10, U0: 20}
    assert {topic.topic_id for topic in reply.topics} == {ZERO_UUID}
    assert rig.do(fetch("nobody")).topics == []


def test_nothing_asked_for_is_nothing_answered(rig: OffsetsRig) -> None:
    command = fetch("g")
    command.request.topics = []
    assert rig.do(command).topics == []


def test_pending_offsets_make_their_partition_unstable_for_who_wants_to_know(rig: OffsetsRig) -> None:
    rig.do(commit_in_transaction(1, "g", {T0: 11, T1: 1}))
    assert fetched(rig.do(fetch("g", T0, T1, U0))) == {T0: 10, T1: -1, U0: 20}
    assert fetched(rig.do(fetch("g", T0, T1, U0, stable=True))) == {T0: UNSTABLE, T1: UNSTABLE, U0: 20}
    # As in Kafka, everything is everything that was ever committed.
    assert fetched(rig.do(fetch("g", stable=True))) == {T0: UNSTABLE, U0: 20}
    (partition,) = rig.do(fetch("g", T0, stable=True)).topics[0].partitions
    assert (partition.committed_offset, partition.committed_leader_epoch, partition.metadata) == (-1, -1, "")


@pytest.mark.parametrize(
    ("committed", "asked", "found"),
    [(1, 1, 5), (1, 2, -1), (0, 2, 5), (1, 0, 5), (0, 0, 5)],
)
def test_a_topic_made_anew_has_none_of_the_old_ones_offsets(committed: int, asked: int, found: int) -> None:
    rig = OffsetsRig()
    rig.do(commit("g", {T0: 5}, version=10, topic_id=UUID(int=committed)))
    reply = rig.do(fetch("g", T0, topic_id=UUID(int=asked)))
    assert fetched(reply) == {T0: found}
    assert reply.topics[0].topic_id == UUID(int=asked)


def test_the_group_decides_who_may_fetch(rig: OffsetsRig) -> None:
    group = rig.group(FakeGroup("g", kind=GroupKind.CONSUMER))
    assert fetched(rig.do(fetch("g", T0, member_id="m", member_epoch=4))) == {T0: 10}
    assert group.asked == [("fetch", "m", 4)]
    group.refuses["fetch"] = ErrorCode.STALE_MEMBER_EPOCH
    assert rig.do(fetch("g", T0, member_id="m", member_epoch=3)) == "STALE_MEMBER_EPOCH"
    assert rig.do(fetch("g", member_id="m", member_epoch=3)) == "STALE_MEMBER_EPOCH"


def test_a_dead_group_has_no_offsets(rig: OffsetsRig) -> None:
    rig.group(FakeGroup("g", refuses={"fetch": ErrorCode.GROUP_ID_NOT_FOUND}))
    assert fetched(rig.do(fetch("g", T0))) == {T0: -1}
    assert rig.do(fetch("g")).topics == []
