"""Each test breaks one invariant of a Raft replica, and the next transition detects it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from odradek.cluster.raft.log_view import LogView
from odradek.cluster.raft.messages import EndQuorumEpochReply, Entry, EpochEnd, FetchReply, SnapshotPart
from odradek.cluster.raft.outbox import Outbox
from odradek.cluster.raft.roles import leader
from odradek.cluster.raft.roles.follower import FollowerState
from odradek.invariants.raft import (
    RAFT_COMMIT_DURABLE,
    RAFT_COMMITTED,
    RAFT_ELECTED_LEADER,
    RAFT_EPOCH,
    RAFT_EPOCH_RANGE,
    RAFT_FETCH_POSITION,
    RAFT_LOG_APPEND,
    RAFT_LOG_TRUNCATION,
    RAFT_MESSAGE_TARGET,
    RAFT_ONE_LEADER,
    RAFT_ONE_VOTE,
    RAFT_READY_ORDER,
    RAFT_SNAPSHOT_INSTALL,
    RAFT_SNAPSHOT_ORDER,
    RAFT_SNAPSHOT_PART,
    RAFT_VOTERS_CAMPAIGN,
)
from tests.support.invariants import breaks
from tests.support.raft_node import NOW, a_node, elect

if TYPE_CHECKING:
    import pytest

NO_NODE = -1


# ---- epoch, vote and leader -----------------------------------------------------------------------------------------


@breaks(RAFT_EPOCH)
def test_lower_epoch_is_a_violation() -> None:
    a_node(1, epoch=2).replica.set_epoch(1, leader_id=NO_NODE, voted_id=NO_NODE)


@breaks(RAFT_EPOCH_RANGE)
def test_epoch_beyond_the_last_one_is_a_violation() -> None:
    a_node(1, epoch=2).replica.set_epoch(2**31 - 1, leader_id=NO_NODE, voted_id=NO_NODE)


@breaks(RAFT_ONE_VOTE)
def test_second_vote_in_an_epoch_is_a_violation() -> None:
    core = a_node(1, epoch=2)
    core.become_unattached(3, NOW, voted_id=2)
    core.become_unattached(3, NOW, voted_id=3)


@breaks(RAFT_ONE_LEADER)
def test_second_leader_in_an_epoch_is_a_violation() -> None:
    core = a_node(1, epoch=2)
    core.become_follower(3, 2, NOW)
    core.become_follower(3, 3, NOW)


@breaks(RAFT_VOTERS_CAMPAIGN)
def test_election_of_an_observer_is_a_violation() -> None:
    core = a_node(1, epoch=2)
    core.replica.voters = (2, 3)
    core.become_candidate(NOW)


@breaks(RAFT_ELECTED_LEADER)
def test_leader_without_an_election_is_a_violation() -> None:
    a_node(1, epoch=2).become_leader(NOW)


@breaks(RAFT_MESSAGE_TARGET)
def test_message_to_another_replica_is_a_violation() -> None:
    a_node(1, epoch=2).step(EndQuorumEpochReply(2, 3, 2, NO_NODE), NOW)


# ---- log and commit -------------------------------------------------------------------------------------------------


@breaks(RAFT_LOG_APPEND)
def test_entry_above_the_log_end_offset_is_a_violation() -> None:
    LogView(end_offset=5).append(Entry(6, 6, 1, b"entry"))


@breaks(RAFT_LOG_TRUNCATION)
def test_truncation_above_the_log_end_offset_is_a_violation() -> None:
    LogView(end_offset=5).truncate_to(6)


@breaks(RAFT_COMMITTED)
def test_commit_above_the_log_end_offset_is_a_violation() -> None:
    core = a_node(1, epoch=2)
    core.replica.commit(core.log.end_offset + 1)


@breaks(RAFT_COMMIT_DURABLE)
def test_commit_of_entries_that_only_the_leader_has_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    core = elect(a_node(1, epoch=2))
    core.propose(b"entry", 1)
    core.take_ready()
    monkeypatch.setattr(leader, "committed_offset", max)
    core.advance(NOW)


@breaks(RAFT_SNAPSHOT_ORDER)
def test_snapshot_that_ends_above_the_durable_log_is_a_violation() -> None:
    LogView(end_offset=5).add_snapshot(EpochEnd(1, 6))


@breaks(RAFT_SNAPSHOT_INSTALL)
def test_snapshot_of_the_leader_during_a_write_is_a_violation() -> None:
    log = LogView(end_offset=5)
    log.append(Entry(5, 5, 1, b"entry"))
    log.restart_at(EpochEnd(1, 9))


@breaks(RAFT_FETCH_POSITION)
def test_fetch_response_for_another_offset_is_a_violation() -> None:
    core = a_node(1, epoch=2)
    core.become_follower(3, 2, NOW)
    assert isinstance(core.state, FollowerState)
    reply = FetchReply(2, 1, 3, 2, core.log.end_offset)
    core.state._append(replace(reply, fetch_offset=reply.fetch_offset + 1))


# ---- output ---------------------------------------------------------------------------------------------------------


@breaks(RAFT_READY_ORDER)
def test_second_ready_before_the_first_is_carried_out_is_a_violation() -> None:
    core = elect(a_node(1, epoch=2))
    core.propose(b"entry", 1)
    core.take_ready()
    core.take_ready()


@breaks(RAFT_SNAPSHOT_PART)
def test_second_snapshot_part_before_the_first_is_written_is_a_violation() -> None:
    outbox = Outbox(0)
    for position in (0, 1):
        outbox.write(SnapshotPart(EpochEnd(1, 5), position, b"x", last=False))
