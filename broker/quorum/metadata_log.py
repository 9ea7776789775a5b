"""Open the log of `__cluster_metadata-0` for the Raft driver, and publish its committed entries."""

from collections.abc import Sequence
from dataclasses import replace

from odradek.broker.config.properties import Config
from odradek.broker.process.env import Env
from odradek.broker.quorum.storage import PartitionRaftStorage
from odradek.cluster.metadata.cache import MetadataCache
from odradek.cluster.metadata.image import METADATA_TOPIC_ID
from odradek.cluster.metadata.snapshotter import SnapshotConfig, Snapshotter
from odradek.cluster.raft.driver import RaftDriver
from odradek.cluster.raft.ports import RaftStorage
from odradek.protocol.internal_topics import CLUSTER_METADATA
from odradek.protocol.primitives import INT64_MAX
from odradek.runtime.shard import FailureHandler
from odradek.runtime.tasks import Tasks
from odradek.storage.config import LogConfig
from odradek.storage.data_directory.log_manager import LogManager


def metadata_log_config(config: Config) -> LogConfig:
    """Return the configuration of the metadata log. Age and size delete no segment of it; snapshots do (KIP-630)."""
    return replace(
        LogConfig(),
        segment_bytes=config.metadata_log_segment_bytes,
        segment_ms=INT64_MAX,
        retention_ms=-1,
        retention_bytes=-1,
    )


def open_metadata_log(logs: LogManager, config: Config, env: Env, voters: Sequence[int]) -> RaftStorage:
    """Return this node's replica, created if it does not exist. The caller opens it. Raise OSError."""
    log = logs.create(CLUSTER_METADATA, 0, METADATA_TOPIC_ID, metadata_log_config(config), env.clock.wall_ms())
    return PartitionRaftStorage(logs, log, voters, env.clock, sole_voter=is_sole_voter(config.node_id, voters))


def follow_metadata(
    raft: RaftDriver, metadata: MetadataCache, config: Config, env: Env, tasks: Tasks, on_failure: FailureHandler
) -> None:
    """Subscribe `metadata` to committed entries, and take snapshots of it. Call it before the driver starts."""
    raft.on_committed(metadata.on_committed, metadata.prepare)
    raft.on_snapshot(metadata.on_snapshot)
    limits = SnapshotConfig(
        config.metadata_log_max_record_bytes_between_snapshots, config.metadata_log_max_snapshot_interval_ms
    )
    Snapshotter(raft, metadata, env.clock, tasks, on_failure, limits)


def is_sole_voter(node_id: int, voters: Sequence[int]) -> bool:
    """Return True if this node is the only voter, so no other node has the metadata."""
    return list(voters) == [node_id]
