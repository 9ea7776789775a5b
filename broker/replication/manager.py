"""Manage the replication of this broker: one fetcher per leader, ISR changes, and reports of failed disks."""

from collections.abc import Callable

from odradek.broker.config.properties import Config
from odradek.broker.partition.isr_changes import IsrChanges
from odradek.broker.partition.partition import Partition
from odradek.broker.quorum.controller_client import ControllerClient
from odradek.broker.quorum.peers import Peers
from odradek.broker.replication.follower_fetcher import ReplicaFetcher
from odradek.broker.replication.follower_session import BrokerIdentity, FetchSettings
from odradek.broker.replication.follower_truncation import FollowerTruncation
from odradek.broker.replication.log_start_check import LogStartChecks
from odradek.broker.replication.throttle import ReplicaThrottles
from odradek.cluster.metadata.cache import MetadataCache
from odradek.cluster.metadata.delta import MetadataDelta
from odradek.cluster.metadata.image import MetadataImage
from odradek.cluster.replication.leader import PendingIsrChange
from odradek.protocol.special_values import NO_LEADER
from odradek.runtime.clock import Clock
from odradek.runtime.repeated_tasks import keep_running
from odradek.runtime.tasks import Spawn
from odradek.storage.data_directory.log_manager import LogManager

DiskFailed = Callable[[str, bool], None]
"""Called with a description of the failed operation, and True if other brokers have replicas that can take over."""


class ReplicationManager:
    """Fetch from the leaders of followed partitions, and send ISR changes of led partitions to the controller.

    It implements `odradek.broker.partition.ports.Replication`.
    """

    def __init__(
        self,
        config: Config,
        identity: BrokerIdentity,
        *,
        metadata: MetadataCache,
        peers: Peers,
        controller: ControllerClient,
        logs: LogManager,
        clock: Clock,
        spawn: Spawn,
        disk_failed: DiskFailed,
        log_start_checks: LogStartChecks,
        throttles: ReplicaThrottles,
    ) -> None:
        self.lag_max_ms = config.replica_lag_time_max_ms
        self.fetch_wait_max_ms = config.replica_fetch_wait_max_ms
        self._identity = identity
        self._metadata = metadata
        self._peers = peers
        self._clock = clock
        self._spawn = spawn
        self._disk_failed = disk_failed
        self._throttles = throttles
        self._log_start_checks = log_start_checks
        self._changes = IsrChanges(identity.node_id, identity.epoch, controller, spawn)
        self._truncation = FollowerTruncation(
            identity.node_id, logs, peers, clock, config.request_timeout_ms, log_start_checks
        )
        self._settings = FetchSettings(
            config.replica_fetch_wait_max_ms,
            config.replica_fetch_min_bytes,
            config.replica_fetch_max_bytes,
            config.replica_fetch_response_max_bytes,
            config.replica_fetch_backoff_ms,
        )
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._leaders: dict[Partition, int] = {}
        self._closed = False

    def close(self) -> None:
        """Stop all fetchers."""
        self._closed = True
        for fetcher in self._fetchers.values():
            fetcher.close()

    # ---- calls of partitions ----------------------------------------------------------------------------------------

    def broker_epoch_of(self, broker_id: int) -> int | None:
        """Return the broker epoch of a broker that may join an ISR; None for other brokers."""
        broker = self._metadata.image.brokers.get(broker_id)
        return broker.epoch if broker is not None and broker.is_active else None

    def went_offline(self, topic: str, index: int, error: OSError) -> None:
        """Report a disk error of a partition."""
        image = self._metadata.image.partition(topic, index)
        self._disk_failed(f"{topic}-{index}: {error}", image is not None and len(image.replicas) > 1)

    def change_isr(self, partition: Partition, change: PendingIsrChange) -> None:
        """Send `change` to the controller."""
        self._changes.send(partition, change)

    def elected(self, partition: Partition) -> None:
        """Complete the log start check of `partition`: a leader has no other log to compare with."""
        self._log_start_checks.complete(partition.topic, partition.index)

    def follow(self, partition: Partition, leader: int) -> None:
        """Fetch `partition` from `leader` in the partition's leader epoch, and from no other broker."""
        if self._leaders.get(partition, NO_LEADER) != leader:
            self.stop_following(partition)
        if leader == NO_LEADER or self._closed:
            return
        self._leaders[partition] = leader
        self._fetcher(leader).add(partition, partition.leader_epoch)

    def stop_following(self, partition: Partition) -> None:
        """Stop the fetches of `partition`."""
        leader = self._leaders.pop(partition, NO_LEADER)
        if leader != NO_LEADER:
            self._fetchers[leader].remove(partition)

    def _fetcher(self, leader: int) -> ReplicaFetcher:
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = ReplicaFetcher(
                leader,
                self._identity,
                self._peers,
                self._truncation,
                self._clock,
                self._spawn,
                self._settings,
                self._throttles,
            )
            name = f"fetch from {leader}"
            self._spawn(keep_running(fetcher.run, self._spawn, name), name)
        return fetcher

    # ---- metadata ---------------------------------------------------------------------------------------------------

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Retry leaders that registered again, perhaps with another address; drop the checks of removed partitions."""
        self._log_start_checks.complete_removed(image, self._identity.node_id)
        for broker_id in delta.changed_brokers():
            fetcher = self._fetchers.get(broker_id)
            if fetcher is not None:
                fetcher.wake()
