"""Move leaders of partitions, and so coordinators, between the brokers of a cluster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from odradek.client.errors import check
from odradek.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

if TYPE_CHECKING:
    from odradek import client
    from odradek.client.network.metadata import Partition

PREFERRED: Final = 0
"""Election type of a preferred leader election."""
MOVE_TIMEOUT_S: Final = 30.0
"""Maximum seconds until the new leader leads. A partition with one replica is copied before."""
INTERVAL_S: Final = 0.02
"""Seconds between two checks. No request of Kafka's protocol waits for a leader."""
HASH_VALUES: Final = 2**32
HASH_FACTOR: Final = 31


def partition_of(name: str, partitions: int) -> int:
    """Return the partition of `__transaction_state` or `__consumer_offsets` for a transactional id or a group id.

    It is the absolute value of Java's hash code (UTF-16), modulo the number of partitions. As in Kafka's Utils.abs,
    the absolute value of the smallest number is 0.
    """
    code = 0
    encoded = name.encode("utf-16-be")
    for index in range(0, len(encoded), 2):
        code = (HASH_FACTOR * code + int.from_bytes(encoded[index : index + 2], "big")) % HASH_VALUES
    return (min(code, HASH_VALUES - code) % (HASH_VALUES // 2)) % partitions


def new_replicas(replicas: list[int], target: int) -> list[int]:
    """Return the replicas with `target` as the first, which is the preferred leader. Their number is unchanged."""
    return [target, *(each for each in replicas if each != target)][: len(replicas)]


async def move_leader(cluster: client.Cluster, topic: str, partition: int, to: int | None) -> int:
    """Move the leader of a partition, and return its node id. None: to the next in-sync replica.

    Raises:
        ValueError: No other replica is in sync, and `to` is None.
        Refused: The controller refused the move.
        TimeoutError: The target does not lead in time.
    """
    before = await _partition(cluster, topic, partition)
    candidates = [each for each in before.isr if each != before.leader]
    if to is None and not candidates:
        raise ValueError(f"{topic}-{partition} has no other in-sync replica than {before.leader}; name one with to=")
    target = candidates[0] if to is None else to
    if target == before.leader:
        return target
    async with asyncio.timeout(MOVE_TIMEOUT_S):
        replicas = new_replicas(list(before.replicas), target)
        row = ReassignablePartition(partition_index=partition, replicas=replicas)
        response = await cluster.request_controller(
            AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=[row])])
        )
        for result in (response, *(row for each in response.responses for row in each.partitions)):
            check(result.error_code, f"{topic}-{partition} was not moved to broker {target}", result.error_message)
        while True:
            now = await _partition(cluster, topic, partition)
            if now.leader == target:
                return target
            if list(now.replicas) == replicas and target in now.isr:
                named = TopicPartitions(topic=topic, partitions=[partition])
                await cluster.request_controller(
                    ElectLeadersRequest(election_type=PREFERRED, topic_partitions=[named], timeout_ms=5_000)
                )
            await asyncio.sleep(INTERVAL_S)


async def _partition(cluster: client.Cluster, topic: str, partition: int) -> Partition:
    return (await cluster.topic(topic, refresh=True)).partition(partition)
