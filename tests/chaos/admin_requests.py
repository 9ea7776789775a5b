"""What the supervisor and the poller ask a cluster by confluent-kafka's AdminClient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

if TYPE_CHECKING:
    from concurrent.futures import Future

REQUEST_SECONDS = 4.0


def quiet(error: Any) -> None:
    """Lost connections are the normal case here: whoever asks gets them as exceptions."""


def admin_client(bootstrap: str, name: str) -> AdminClient:
    """Keep it in a name: it gives its calls up when it goes."""
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "client.id": name,
        "socket.timeout.ms": round(1000 * REQUEST_SECONDS),
        "metadata.max.age.ms": 1_000,  # it would ask with the old leader epoch until then
        "reconnect.backoff.max.ms": 500,
        "log_level": 0,
        "error_cb": quiet,
    }
    return AdminClient(config)


def ask_ends(
    admin: AdminClient, places: list[tuple[str, int]], *, committed: bool
) -> dict[tuple[str, int], Future[Any]]:
    """The last stable offsets if `committed`, else the high watermarks."""
    latest: Any = OffsetSpec.latest
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    asked = {TopicPartition(topic, index): latest() for topic, index in places}
    found = admin.list_offsets(asked, isolation_level=level, request_timeout=REQUEST_SECONDS)
    return {(partition.topic, partition.partition): future for partition, future in found.items()}
