"""Forged quorum requests with far epochs at all brokers of a cluster: it serves afterwards, and after a restart."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from odradek import LocalCluster
from odradek.broker.quorum import wire
from odradek.cluster.raft import messages as core
from odradek.protocol.errors import ErrorCode
from odradek.protocol.internal_topics import CLUSTER_METADATA
from odradek.protocol.messages import describe_quorum as describe
from tests.support.local_clusters import commit, read
from tests.support.raw_client import RawClient

if TYPE_CHECKING:
    from pathlib import Path

VOTERS: Final = (1, 2, 3)
INT32_MAX: Final = 2**31 - 1
SHARED_LISTENER: Final = {
    "inter.broker.listener.name": "PLAINTEXT",
    "cluster.secret.file": "",
    "odradek.inter.broker.authentication": "none",
}
"""One listener without authentication serves clients, brokers and voters, as by default in a broker."""
EPOCH_MAX: Final = 10_000
"""Far more epochs than the elections of this test."""


async def send_forged_epochs(cluster: LocalCluster, cluster_id: str) -> None:
    """Send each request that claims a far epoch in the name of each other voter, to each voter."""
    for target in VOTERS:
        host, port = cluster.endpoint(target).split(":")
        client = await RawClient.connect(host, int(port))
        try:
            for source in VOTERS:
                for epoch in (INT32_MAX, INT32_MAX - 1, 2**31 - 2**20, 2_000_000):
                    vote = core.VoteRequest(source, target, epoch, epoch - 1, 10**9, pre_vote=False)
                    pre_vote = core.VoteRequest(source, target, epoch, epoch - 1, 10**9, pre_vote=True)
                    begin = core.BeginQuorumEpochRequest(source, target, epoch)
                    end = core.EndQuorumEpochRequest(source, target, epoch, VOTERS)
                    fetch = core.FetchRequest(source, target, epoch, 0, epoch, 0)
                    snapshot = core.FetchSnapshotRequest(source, target, epoch, core.EpochEnd(epoch, 1), 0, 1_000)
                    requests: list[tuple[Any, int]] = [
                        (wire.vote_request(vote, cluster_id), wire.VOTE_VERSION),
                        (wire.vote_request(pre_vote, cluster_id), wire.VOTE_VERSION),
                        (wire.begin_request(begin, cluster_id), wire.BEGIN_VERSION),
                        (wire.end_request(end, cluster_id), wire.END_VERSION),
                        (wire.fetch_request(fetch, cluster_id, 10), wire.FETCH_VERSION),
                        (wire.snapshot_request(snapshot, cluster_id), wire.FETCH_SNAPSHOT_VERSION),
                    ]
                    for request, version in requests:
                        await client.call(request, version)
        finally:
            client.close()


async def quorum_epoch(cluster: LocalCluster) -> int:
    """Return the epoch of the metadata log."""
    host, port = cluster.endpoint(1).split(":")
    client = await RawClient.connect(host, int(port))
    try:
        request = describe.DescribeQuorumRequest(
            [describe.RequestTopicData(CLUSTER_METADATA, [describe.RequestPartitionData(0)])]
        )
        response: Any = await client.call(request, 2)
        assert ErrorCode(response.error_code) is ErrorCode.NONE
        return int(response.topics[0].partitions[0].leader_epoch)
    finally:
        client.close()


def test_cluster_serves_after_forged_epochs_and_after_a_restart(tmp_path: Path) -> None:
    with LocalCluster(len(VOTERS), directory=tmp_path, settings=SHARED_LISTENER) as cluster:
        commit(cluster.bootstrap, "before", b"1")
        asyncio.run(send_forged_epochs(cluster, cluster.plan.cluster_id))
        assert all(cluster.is_running(node) for node in VOTERS)
        commit(cluster.bootstrap, "between", b"2")
        for node in VOTERS:
            cluster.restart(node)
        commit(cluster.bootstrap, "after", b"3")
        assert read(cluster.bootstrap, "before", 1) == [b"1"]
        assert asyncio.run(quorum_epoch(cluster)) < EPOCH_MAX
