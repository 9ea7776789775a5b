"""Create, extend and delete topics on a running cluster through confluent-kafka's admin client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from odradek.pipeline.cluster.access import Access

RESPONSE_SECONDS_MAX = 30.0
"""Maximum seconds for the response to one CreateTopics or DeleteTopics request."""
DEFAULT_REPLICATION_FACTOR = -1
"""Value of CreateTopics that selects the property `default.replication.factor` of the cluster (KIP-464)."""
LOG_LEVEL = 5
"""Level of librdkafka's messages: notices and worse. At level 6, an AdminClient may print a line when it is closed."""


def create_topics(access: Access, partitions: Mapping[str, int]) -> None:
    """Create topics with the default replication factor. `partitions` maps names to partition counts.

    Raise KafkaException if the cluster refuses a topic or does not respond in time.
    """
    admin = _admin_client(access)
    topics = [NewTopic(name, count, DEFAULT_REPLICATION_FACTOR) for name, count in partitions.items()]
    for future in admin.create_topics(topics, operation_timeout=RESPONSE_SECONDS_MAX).values():
        future.result(RESPONSE_SECONDS_MAX)


def add_partitions(access: Access, partitions: Mapping[str, int]) -> None:
    """Raise the partition counts of topics. `partitions` maps names to new counts.

    Raise KafkaException if the cluster refuses a topic or does not respond in time.
    """
    admin = _admin_client(access)
    added = [NewPartitions(name, count) for name, count in partitions.items()]
    for future in admin.create_partitions(added, operation_timeout=RESPONSE_SECONDS_MAX).values():
        future.result(RESPONSE_SECONDS_MAX)


def delete_topics(access: Access, names: list[str]) -> None:
    """Delete topics. Raise KafkaException if the cluster refuses one or does not respond in time."""
    admin = _admin_client(access)
    for future in admin.delete_topics(names, operation_timeout=RESPONSE_SECONDS_MAX).values():
        future.result(RESPONSE_SECONDS_MAX)


def _admin_client(access: Access) -> AdminClient:
    return AdminClient({**access.confluent(), "log_level": LOG_LEVEL})
