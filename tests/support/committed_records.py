"""Records of a topic after the end of a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.client import Cluster, Consumer, NotFound, describe_transaction
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.client import ConsumerRecord


async def committed_records(bootstrap: str, topic: str, *transactional_ids: str) -> list[ConsumerRecord]:
    """Return the records for read_committed in the order of their values, after the markers of decided transactions.

    Apache Kafka responds to EndTxn before it writes the markers.
    """
    async with Cluster(bootstrap) as cluster:
        await await_markers(cluster, *transactional_ids)
        found = [record async for batch in Consumer(cluster, topic).batches() for record in batch]
    return sorted(found, key=lambda record: record.value or b"")


async def await_markers(cluster: Cluster, *transactional_ids: str) -> None:
    """Wait for the markers of decided transactions."""
    for transactional_id in transactional_ids:
        attempts = cluster.attempts()
        try:
            while (await describe_transaction(cluster, transactional_id)).state.startswith("Prepare"):
                assert await attempts.prepare(ErrorCode.CONCURRENT_TRANSACTIONS), "the markers are missing"
        except NotFound:
            pass  # no transaction began
