"""Ports of the group coordinator: metadata, feature levels and configuration."""

from collections.abc import Sequence
from typing import Protocol

from odradek.frozen import frozen_dataclass


@frozen_dataclass(frozen=True, slots=True)
class TopicInfo:
    """Metadata of one topic. `racks[p]` are the racks of the replicas of partition p, without unknown racks."""

    topic_id: bytes
    name: str
    partitions: int
    racks: tuple[tuple[str, ...], ...] = ()


class Topics(Protocol):
    """Topics in the metadata image. Each call reads the newest image."""

    def version(self) -> int:
        """Return a number that increases when a topic is created or deleted, or gets more partitions."""

    def by_name(self, name: str) -> TopicInfo | None:
        """Return the topic, or None if it does not exist."""

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        """Return the topic, or None if it does not exist."""

    def names(self) -> Sequence[str]:
        """Return the names of all topics, including internal ones, in a fixed order."""


class FeatureLevels(Protocol):
    """Finalized feature levels of the cluster."""

    def group_version(self) -> int:
        """Return the finalized level of `group.version`: 0 or 1 (KIP-848)."""


@frozen_dataclass(frozen=True, slots=True)
class GroupConfig:
    """Kafka's broker properties of the group coordinator, in milliseconds and bytes.

    Properties that a group can override (KIP-848's `consumer.session.timeout.ms` ...) are methods of `GroupConfigs`.
    """

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 2_147_483_647
    group_initial_rebalance_delay_ms: int = 3_000
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    offsets_retention_check_interval_ms: int = 600_000
    offset_commit_timeout_ms: int = 5_000
    new_member_join_timeout_ms: int = 300_000
    record_batch_bytes_max: int = 1_048_588
    consumer_session_timeout_ms: int = 45_000
    consumer_min_session_timeout_ms: int = 45_000
    consumer_max_session_timeout_ms: int = 60_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_min_heartbeat_interval_ms: int = 5_000
    consumer_max_heartbeat_interval_ms: int = 15_000
    consumer_max_size: int = 2_147_483_647
    consumer_assignment_interval_ms: int = 1_000
    consumer_min_assignment_interval_ms: int = 0
    consumer_max_assignment_interval_ms: int = 15_000
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_migration_policy: str = "bidirectional"
    consumer_regex_refresh_interval_ms: int = 600_000
    authorizes_topics: bool = False
    """True if a regular expression matches only topics that its member may describe."""


class GroupConfigs(Protocol):
    """Properties that are in force now, including dynamic configuration."""

    def broker(self) -> GroupConfig:
        """Return the properties of this broker."""

    def session_timeout_ms(self, group_id: str) -> int:
        """Return `consumer.session.timeout.ms` of a group of the consumer protocol."""

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Return `consumer.heartbeat.interval.ms` of a group of the consumer protocol."""

    def assignment_interval_ms(self, group_id: str) -> int:
        """Return `consumer.assignment.interval.ms` of a group of the consumer protocol."""
