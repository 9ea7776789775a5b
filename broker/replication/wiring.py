"""The partitions of a broker with all that keeps their replicas alike, put together."""

from collections.abc import Callable

from odradek.broker.config.properties import PROPERTIES
from odradek.broker.dispatch.services import Services
from odradek.broker.partition.leader_term import LeaderTerm
from odradek.broker.partition.partition import Partition
from odradek.broker.partition.registry import Partitions
from odradek.broker.process.env import Env
from odradek.broker.replication.leader_fetch import ReplicaFetches
from odradek.broker.replication.leader_sessions import ReplicaSessions
from odradek.broker.replication.log_start_check import LostHeads
from odradek.broker.replication.manager import DiskFailed, Replication, Self
from odradek.broker.replication.throttle import ReplicaThrottles, Throttle
from odradek.runtime.tasks import Spawn
from odradek.storage.data_directory.log_manager import LogManager


def host_partitions(
    services: Services,
    env: Env,
    logs: LogManager,
    spawn: Spawn,
    *,
    broker_epoch: Callable[[], int],
    disk_failed: DiskFailed,
    lost_heads: LostHeads,
    leader_term: type[LeaderTerm],
) -> tuple[Partitions, Replication]:
    """What `services` reaches partitions and followers by; nothing is hosted before the first `on_metadata`."""
    config = services.config
    throttles = _throttles(services)
    replication = Replication(
        config,
        Self(config.node_id, broker_epoch),
        metadata=services.metadata,
        peers=services.peers,
        controller=services.controller_client,
        logs=logs,
        clock=env.clock,
        spawn=spawn,
        disk_failed=disk_failed,
        lost_heads=lost_heads,
        throttles=throttles,
    )
    partitions = Partitions(
        node_id=config.node_id,
        logs=logs,
        clock=env.clock,
        spawn=spawn,
        config_of=services.topic_settings.log_config,
        replication=replication,
        leader_term=leader_term,
    )
    replication.sessions = ReplicaSessions(
        partitions, env.rng, eager=config.replica_selector_class is not None, throttles=throttles
    )
    services.partitions = partitions
    services.replica_fetches = ReplicaFetches(
        replication.sessions, env.clock, services.budget, spawn, config.fetch_max_bytes
    )
    return partitions, replication


def _throttles(services: Services) -> ReplicaThrottles:
    settings, clock = services.topic_settings, services.clock
    leader, follower = (
        PROPERTIES["leader.replication.throttled.rate"],
        PROPERTIES["follower.replication.throttled.rate"],
    )

    def in_sync(partition: Partition) -> bool:
        image = services.metadata.image.partition(partition.topic, partition.index)
        return image is not None and services.node_id in image.isr

    return ReplicaThrottles(
        services.node_id,
        Throttle(lambda: int(settings.current(leader)), clock),
        Throttle(lambda: int(settings.current(follower)), clock),
        in_sync,
    )
