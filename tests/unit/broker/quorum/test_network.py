"""PeerRaftNetwork: detection of a second process with the same node id."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from odradek.broker.quorum import network as raft_network
from odradek.broker.quorum.network import REPORTED_MAX, DuplicateNodeId, PeerRaftNetwork
from odradek.cluster.raft import messages as core
from odradek.protocol.messages.vote import ResponsePartitionData, ResponseTopicData, VoteResponse


class FakePeers:
    """Responds to each request immediately: node `leader` is the leader."""

    def __init__(self) -> None:
        self.leader = -1
        self.contacts: list[int] = []
        self.note_contact = self.contacts.append

    def request(self, *_: Any, **__: Any) -> "asyncio.Future[Any]":
        response: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        partition = ResponsePartitionData(leader_id=self.leader, leader_epoch=1)
        response.set_result(VoteResponse(topics=[ResponseTopicData("__cluster_metadata", [partition])]))
        return response


async def failures_of_votes(monkeypatch: pytest.MonkeyPatch, *leaders: int, limit_s: float) -> list[BaseException]:
    """Return the failures of node 2 if the responses to its Vote requests name these leaders."""
    monkeypatch.setattr(raft_network, "DUPLICATE_AFTER_S", limit_s)
    peers = FakePeers()
    failures: list[BaseException] = []
    network = PeerRaftNetwork(
        2,
        "cluster",
        peers,  # type: ignore[arg-type]  # the method that is used
        voters=[1, 2, 3],
        on_failure=lambda _, failure: failures.append(failure),
        request_timeout_ms=1_000,
        fetch_wait_ms=500,
    )
    network.connect(lambda _: None)
    for leader in leaders:
        peers.leader = leader
        network.send(core.VoteRequest(2, 1, 1, 0, 0, True))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    return failures


async def test_node_that_other_nodes_follow_although_it_does_not_lead_fails_with_duplicate_node_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [failure] = await failures_of_votes(monkeypatch, 2, 2, limit_s=-1.0)
    assert isinstance(failure, DuplicateNodeId)
    assert str(failure) == (
        "node 1 follows another process with node.id 2 as its controller: every node needs an id of its own"
    )


async def test_brief_responses_about_the_previous_incarnation_are_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await failures_of_votes(monkeypatch, 2, 3, 2, limit_s=-1.0) == []
    assert await failures_of_votes(monkeypatch, 2, 2, 2, limit_s=1_000.0) == []


async def test_vote_requests_of_unknown_nodes_are_logged_for_a_bounded_number_of_nodes() -> None:
    peers = FakePeers()
    network = PeerRaftNetwork(
        2,
        "cluster",
        peers,  # type: ignore[arg-type]  # the methods that are used
        voters=[1, 2, 3],
        on_failure=lambda _name, _failure: None,
        request_timeout_ms=1_000,
        fetch_wait_ms=500,
    )

    def refuse(message: core.Message) -> None:
        assert isinstance(message, core.VoteRequest)
        network.send(core.VoteReply(2, message.source, 1, -1, False, True, request_id=message.request_id))

    network.connect(refuse)
    with capture_logs() as logs:
        for source in range(10, 1_010):
            await network.receive(core.VoteRequest(source, 2, 1, 0, 0, True))
    assert len(logs) == len(network._reported) == REPORTED_MAX
    assert not network._pending
