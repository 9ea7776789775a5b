"""Configuration of a partition log: topic properties, and the broker properties that a log needs.

Names and defaults are Kafka's, with underscores instead of dots. `odradek.broker.config.topics` creates one object per
topic. The objects are immutable: a changed property creates a new one (`PartitionLog.update_config`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from odradek.protocol.compression import GZIP_LEVEL, LZ4_LEVEL, ZSTD_LEVEL
from odradek.protocol.primitives import INT64_MAX

DAY_MS = 24 * 60 * 60 * 1000

CLEANUP_DELETE = "delete"
CLEANUP_COMPACT = "compact"
CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"
COMPRESSION_AS_PRODUCED = "producer"
UNCOMPRESSED = "uncompressed"


@dataclass(frozen=True)
class LogConfig:
    """Configuration of one log. Times are in ms, sizes in bytes."""

    segment_bytes: int = 1_073_741_824
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10_485_760
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = -1
    max_message_bytes: int = 1_048_588
    message_timestamp_type: str = CREATE_TIME
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_after_max_ms: int = 60 * 60 * 1000
    cleanup_policy: tuple[str, ...] = (CLEANUP_DELETE,)
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    delete_retention_ms: int = DAY_MS
    compression_type: str = COMPRESSION_AS_PRODUCED
    compression_gzip_level: int = GZIP_LEVEL
    compression_lz4_level: int = LZ4_LEVEL
    compression_zstd_level: int = ZSTD_LEVEL
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    file_delete_delay_ms: int = 60_000
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    leader_replication_throttled_replicas: frozenset[str] = frozenset()
    follower_replication_throttled_replicas: frozenset[str] = frozenset()

    # broker properties
    producer_id_expiration_ms: int = DAY_MS
    verification_enabled: bool = True  # transaction.partition.verification.enable
    validate_records_all: bool = False  # odradek.validate.records=all (docs/decisions/0002-record-validation.md)

    @cached_property
    def compression_level(self) -> int | None:
        """Compression level for `compression_type`; None if that codec has no levels or the producer chooses it."""
        level: int | None = getattr(self, f"compression_{self.compression_type}_level", None)
        return level

    @cached_property
    def compacted(self) -> bool:
        """True if the topic is compacted."""
        return CLEANUP_COMPACT in self.cleanup_policy

    @cached_property
    def converts(self) -> bool:
        """True if `compression.type` names a codec: batches in other codecs are converted."""
        return self.compression_type != COMPRESSION_AS_PRODUCED

    @cached_property
    def checks_records(self) -> bool:
        """True if the records of each client batch are decoded: their keys or timestamps matter, or all are checked."""
        bounded_below = self.message_timestamp_before_max_ms != INT64_MAX and not self.log_append_time
        return self.compacted or self.validate_records_all or bounded_below

    @cached_property
    def roll_ms(self) -> int:
        """Maximum age of the active segment. On a compacted topic, max.compaction.lag.ms limits it too.

        Compaction never cleans the active segment.
        """
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacted else self.segment_ms

    @property
    def deletes(self) -> bool:
        """True if retention deletes segments of the topic."""
        return CLEANUP_DELETE in self.cleanup_policy

    @cached_property
    def log_append_time(self) -> bool:
        """True if the broker sets the timestamps of records."""
        return self.message_timestamp_type == LOG_APPEND_TIME
