"""Requests of the supervisor and of the ListOffsets poller, sent with confluent-kafka's AdminClient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

if TYPE_CHECKING:
    from concurrent.futures import Future

    from odradek.pipeline.cluster.access import Access

REQUEST_SECONDS = 4.0
"""Time-out of one admin request and of a socket operation, in seconds."""


def quiet(error: Any) -> None:
    """Discard an error event of librdkafka. The calls themselves raise exceptions."""


def admin_client(access: Access, name: str) -> AdminClient:
    """Return an AdminClient. Keep a reference to it: its garbage collection cancels the requests in flight."""
    config: dict[str, Any] = {
        **access.confluent(),
        "client.id": name,
        "socket.timeout.ms": round(1000 * REQUEST_SECONDS),
        "metadata.max.age.ms": 1_000,  # requests contain the leader epoch of the cached metadata
        "reconnect.backoff.max.ms": 500,
        "log_level": 0,
        "error_cb": quiet,
    }
    return AdminClient(config)


def list_end_offsets(
    admin: AdminClient, partitions: list[tuple[str, int]], *, committed: bool
) -> dict[tuple[str, int], Future[Any]]:
    """Request the last stable offset of each partition if `committed`, else its high watermark."""
    latest: Any = OffsetSpec.latest
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    specs = {TopicPartition(topic, index): latest() for topic, index in partitions}
    futures = admin.list_offsets(specs, isolation_level=level, request_timeout=REQUEST_SECONDS)
    return {(partition.topic, partition.partition): future for partition, future in futures.items()}
