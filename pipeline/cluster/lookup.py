"""Lookups of a partition's leader and of a transaction coordinator, through any broker that responds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from odradek.client import ClientError, CoordinatorType, RetryPolicy, Settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from odradek.client import Cluster
    from odradek.pipeline.cluster.access import Access

TIMEOUT_S = 2.0
"""Seconds for a connection and for a response. The caller repeats a lookup that fails."""

T = TypeVar("T")


def leader(access: Access, topic: str, partition: int) -> int:
    """Return the node id of the leader of a partition. Raise ConnectionError if there is none or no broker responds."""

    async def find(cluster: Cluster) -> int:
        return (await cluster.topic(topic)).partition(partition).leader

    node_id = _run(access, find)
    if node_id < 0:
        raise ConnectionError(f"{topic}-{partition} has no leader")
    return node_id


def coordinator(access: Access, transactional_id: str) -> int:
    """Return the node id of the coordinator of a transactional id. Raise ConnectionError if none is known."""
    return _run(access, lambda cluster: cluster.coordinator(CoordinatorType.TRANSACTION, transactional_id))


def _run(access: Access, find: Callable[[Cluster], Awaitable[T]]) -> T:
    settings = Settings(connect_timeout_s=TIMEOUT_S, request_timeout_s=TIMEOUT_S, retry=RetryPolicy(deadline_s=0))

    async def connected() -> T:
        async with access.cluster(settings) as cluster:
            return await find(cluster)

    try:
        return asyncio.run(connected())
    except ClientError as error:
        raise ConnectionError(str(error)) from error
