"""A hanging transaction: a transactional batch without a transaction in the coordinator. No marker ever ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.protocol.batch import build_batch
from odradek.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

if TYPE_CHECKING:
    from tests.support.raw_client import RawClient

UNVERIFIED_PRODUCE_VERSION: Final = 11
"""Last Produce version in which the broker does not add partitions to the transaction (KIP-890)."""
TIMEOUT_MS: Final = 10_000


async def leave_hanging(client: RawClient, topic: str, producer_id: int, written_ms: int) -> None:
    """Append a hanging batch to partition 0. It requires transaction.partition.verification.enable=false."""
    records = build_batch(
        [(None, b"hanging", written_ms, ())],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(0, records)])]
    response = await client.call(ProduceRequest("hanging-id", -1, TIMEOUT_MS, data), UNVERIFIED_PRODUCE_VERSION)
    assert response.responses[0].partition_responses[0].error_code == 0
