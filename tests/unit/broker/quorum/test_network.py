"""What the answers of other nodes say about this node itself."""

import asyncio
from typing import Any

import pytest

from odradek.broker.quorum import network as raft_network
from odradek.broker.quorum.network import DuplicateNodeId, PeerRaftNetwork
from odradek.cluster.raft import messages as core
from odradek.protocol.messages.vote import ResponsePartitionData, ResponseTopicData, VoteResponse


class PeersOf:
    """Answers every request at once: node `leader` leads."""

    def __init__(self) -> None:
        self.leader = -1

    def request(self, *_: Any, **__: Any) -> "asyncio.Future[Any]":
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        partition = ResponsePartitionData(leader_id=self.leader, leader_epoch=1)
        answer.set_result(VoteResponse(topics=[ResponseTopicData("__cluster_metadata", [partition])]))
        return answer


async def asked(monkeypatch: pytest.MonkeyPatch, *leaders: int, patience_s: float) -> list[BaseException]:
    """What node 2 fails with when its requests for votes are answered with these leaders."""
    monkeypatch.setattr(raft_network, "DUPLICATE_AFTER_S", patience_s)
    peers = PeersOf()
    failures: list[BaseException] = []
    network = PeerRaftNetwork(
        2,
        "cluster",
        peers,  # type: ignore[arg-type]  # what is needed of them
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


async def test_who_is_told_again_and_again_that_it_leads_though_it_does_not_has_a_twin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [failure] = await asked(monkeypatch, 2, 2, patience_s=-1.0)
    assert isinstance(failure, DuplicateNodeId)
    assert str(failure) == (
        "node 1 follows another process with node.id 2 as its controller: every node needs an id of its own"
    )


async def test_an_earlier_life_of_this_node_is_no_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await asked(monkeypatch, 2, 3, 2, patience_s=-1.0) == []
    assert await asked(monkeypatch, 2, 2, 2, patience_s=1_000.0) == []
