"""Assemble the partitions of this broker with their replication."""

from collections.abc import Callable

from odradek.broker.config.properties import PROPERTIES, Config
from odradek.broker.config.topics import TopicSettings
from odradek.broker.partition.leader_term import LeaderTerm
from odradek.broker.partition.partition import Partition
from odradek.broker.partition.registry import Partitions
from odradek.broker.process.env import Env
from odradek.broker.quorum.controller_client import ControllerClient
from odradek.broker.quorum.peers import Peers
from odradek.broker.quota.byte_budget import ByteBudget
from odradek.broker.replication.follower_session import BrokerIdentity
from odradek.broker.replication.leader_fetch import ReplicaFetches
from odradek.broker.replication.leader_sessions import ReplicaSessions
from odradek.broker.replication.log_start_check import LogStartChecks
from odradek.broker.replication.manager import DiskFailed, ReplicationManager
from odradek.broker.replication.throttle import ReplicaThrottles, Throttle
from odradek.cluster.metadata.cache import MetadataCache
from odradek.frozen import frozen_dataclass
from odradek.runtime.clock import Clock
from odradek.runtime.tasks import Spawn
from odradek.storage.data_directory.log_manager import LogManager


@frozen_dataclass(frozen=True, slots=True)
class HostedPartitions:
    """The partitions of this broker, and both sides of their replication."""

    partitions: Partitions
    replication: ReplicationManager
    """Fetches the partitions that this broker follows."""
    replica_fetches: ReplicaFetches
    """Responds to the fetches of followers."""


def host_partitions(
    config: Config,
    env: Env,
    spawn: Spawn,
    *,
    logs: LogManager,
    metadata: MetadataCache,
    topic_settings: TopicSettings,
    peers: Peers,
    controller: ControllerClient,
    budget: ByteBudget,
    broker_epoch: Callable[[], int],
    disk_failed: DiskFailed,
    log_start_checks: LogStartChecks,
    leader_term: type[LeaderTerm],
) -> HostedPartitions:
    """Create the registry of partitions, and their replication.

    It hosts no partition before `Partitions.on_metadata`.
    """
    throttles = _throttles(config.node_id, topic_settings, metadata, env.clock)
    replication = ReplicationManager(
        config,
        BrokerIdentity(config.node_id, broker_epoch),
        metadata=metadata,
        peers=peers,
        controller=controller,
        logs=logs,
        clock=env.clock,
        spawn=spawn,
        disk_failed=disk_failed,
        log_start_checks=log_start_checks,
        throttles=throttles,
    )
    partitions = Partitions(
        node_id=config.node_id,
        logs=logs,
        clock=env.clock,
        spawn=spawn,
        config_of=topic_settings.log_config,
        replication=replication,
        leader_term=leader_term,
    )
    sessions = ReplicaSessions(
        partitions, env.rng, eager=config.replica_selector_class is not None, throttles=throttles
    )
    partitions.on_elected(sessions.elected)
    replica_fetches = ReplicaFetches(sessions, env.clock, budget, spawn, config.fetch_max_bytes)
    return HostedPartitions(partitions, replication, replica_fetches)


def _throttles(node_id: int, settings: TopicSettings, metadata: MetadataCache, clock: Clock) -> ReplicaThrottles:
    leader, follower = (
        PROPERTIES["leader.replication.throttled.rate"],
        PROPERTIES["follower.replication.throttled.rate"],
    )

    def in_sync(partition: Partition) -> bool:
        image = metadata.image.partition(partition.topic, partition.index)
        return image is not None and node_id in image.isr

    return ReplicaThrottles(
        node_id,
        Throttle(lambda: int(settings.current(leader)), clock),
        Throttle(lambda: int(settings.current(follower)), clock),
        in_sync,
    )
