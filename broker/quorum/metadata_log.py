"""Opens the log of `__cluster_metadata-0` for the Raft driver, and follows it."""

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
from odradek.runtime.shard import FailureHandler
from odradek.runtime.tasks import Tasks
from odradek.storage.config import LONG_MAX, LogConfig
from odradek.storage.data_directory.log_manager import LogManager


def metadata_log_config(config: Config) -> LogConfig:
    """Nothing of the metadata log is deleted by age or size: it is the only copy of what it says."""
    return replace(
        LogConfig(),
        segment_bytes=config.metadata_log_segment_bytes,
        segment_ms=LONG_MAX,
        retention_ms=-1,
        retention_bytes=-1,
    )


def open_metadata_log(logs: LogManager, config: Config, env: Env, voters: Sequence[int]) -> RaftStorage:
    """The node's replica, made if it is not there; to be opened yet. Raises OSError."""
    log = logs.create(CLUSTER_METADATA, 0, METADATA_TOPIC_ID, metadata_log_config(config), env.clock.wall_ms())
    return PartitionRaftStorage(logs, log, env.disk, voters, env.clock, alone=is_alone(config.node_id, voters))


def follow_metadata(
    raft: RaftDriver, metadata: MetadataCache, config: Config, env: Env, tasks: Tasks, on_failure: FailureHandler
) -> None:
    """Publish what is committed, and keep the log short. Before the start."""
    raft.on_committed(metadata.on_committed)
    raft.on_snapshot(metadata.on_snapshot)
    limits = SnapshotConfig(
        config.metadata_log_max_record_bytes_between_snapshots, config.metadata_log_max_snapshot_interval_ms
    )
    Snapshotter(raft, metadata, env.clock, tasks, on_failure, limits)


def is_alone(node_id: int, voters: Sequence[int]) -> bool:
    """Is this node the only one that has the metadata?"""
    return list(voters) == [node_id]
