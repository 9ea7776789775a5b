"""Find the voters and the cluster id at a bootstrap server of the controllers (controller.quorum.bootstrap.servers)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Final

import structlog

from odradek.broker.config.addresses import in_brackets
from odradek.broker.quorum.peer_connection import Address
from odradek.broker.quorum.peers import Channel, Peers
from odradek.cluster.lifecycle.pause import sleep
from odradek.protocol.errors import ErrorCode
from odradek.protocol.internal_topics import CLUSTER_METADATA
from odradek.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from odradek.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
)
from odradek.runtime.clock import Clock
from odradek.runtime.tasks import Tasks

CONTROLLERS: Final = 2
"""Endpoint type of a description of controllers."""
DESCRIBE_CLUSTER_VERSION: Final = 1
DESCRIBE_QUORUM_VERSION: Final = 2
"""The first version with the addresses of the voters (KIP-853)."""
REQUEST_TIMEOUT_MS: Final = 2_000
"""Maximum milliseconds for a response, as Kafka's controller.quorum.request.timeout.ms."""
BACKOFF_MS: Final = 100
"""Milliseconds between two requests after a failed one."""
NOTICE_ATTEMPTS: Final = 50
"""Failed requests between two log events: 5 s."""
_logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Quorum:
    """The voters of the metadata log, as in controller.quorum.voters, and the id of their cluster."""

    cluster_id: str
    voters: tuple[str, ...]


async def find_quorum(node_id: int, servers: Sequence[Address], clock: Clock, tasks: Tasks) -> Quorum:
    """Request the voters from the servers, one after the other, until one of them knows the leader."""
    peers = Peers(node_id, lambda index, _: servers[index], clock, tasks)
    try:
        for attempt, index in enumerate(cycle(range(len(servers))), 1):
            try:
                return await _request(peers, index, servers[index])
            except (OSError, _NotKnown) as error:
                if attempt % NOTICE_ATTEMPTS == 0:
                    _logger.info("waiting for controllers", servers=servers, reason=str(error) or "no response")
            await sleep(BACKOFF_MS)
        raise AssertionError("there is at least one server")
    finally:
        peers.close()


class _NotKnown(Exception):
    """The controller does not know the leader of the metadata log."""


async def _request(peers: Peers, index: int, server: Address) -> Quorum:
    cluster: DescribeClusterResponse = await peers.request(
        index,
        Channel.CONTROLLER,
        DescribeClusterRequest(endpoint_type=CONTROLLERS),
        DESCRIBE_CLUSTER_VERSION,
        timeout_ms=REQUEST_TIMEOUT_MS,
    )
    quorum: DescribeQuorumResponse = await peers.request(
        index,
        Channel.CONTROLLER,
        DescribeQuorumRequest([RequestTopicData(CLUSTER_METADATA, [RequestPartitionData(0)])]),
        DESCRIBE_QUORUM_VERSION,
        timeout_ms=REQUEST_TIMEOUT_MS,
    )
    errors = [cluster.error_code, quorum.error_code]
    partitions = [partition for topic in quorum.topics for partition in topic.partitions]
    errors += [partition.error_code for partition in partitions]
    if any(errors) or not partitions:
        raise _NotKnown(", ".join(ErrorCode(code).name for code in errors if code))
    addresses = {
        node.node_id: (listener.host, listener.port) for node in quorum.nodes for listener in node.listeners[:1]
    }
    ids = [voter.replica_id for voter in partitions[0].current_voters]
    if not addresses and len(ids) == 1:  # a controller that is the only voter does not configure its own address
        addresses[ids[0]] = server
    if any(voter not in addresses for voter in ids):
        raise _NotKnown("addresses of voters are unknown")
    voters = tuple(f"{voter}@{in_brackets(addresses[voter][0])}:{addresses[voter][1]}" for voter in ids)
    return Quorum(cluster.cluster_id, voters)
