"""The part of the node that serves clients and followers: partitions, coordinators and background jobs."""

from collections.abc import Callable

import structlog

from odradek.broker.contexts import BrokerContext, NodeContext
from odradek.broker.coordinators.groups import Groups
from odradek.broker.coordinators.transactions import Transactions
from odradek.broker.fetch.record_jobs import RecordJobs
from odradek.broker.fetch.sessions import FetchSessions
from odradek.broker.partition.background_jobs import BackgroundJobs
from odradek.broker.partition.leader_term import LeaderTerm
from odradek.broker.process.env import Env
from odradek.broker.quota.byte_budget import ByteBudget
from odradek.broker.replication.wiring import HostedPartitions, host_partitions
from odradek.broker.server.disk_space import DiskSpace
from odradek.broker.server.quorum_server import QuorumServer
from odradek.broker.server.registration import Registration
from odradek.broker.topics.auto_create import AutoTopicCreation
from odradek.protocol.internal_topics import CLUSTER_METADATA
from odradek.runtime.tasks import Spawn, Tasks
from odradek.storage.data_directory.log_manager import LogManager

_logger = structlog.get_logger(__name__)


class BrokerServer:
    """Host the partitions that the metadata assigns to this broker, and coordinate transactions and groups.

    This broker coordinates the partitions of `__transaction_state` and `__consumer_offsets` that it leads.
    """

    def __init__(
        self,
        node: NodeContext,
        env: Env,
        logs: LogManager,
        quorum: QuorumServer,
        registration: Registration,
        *,
        budget: ByteBudget,
        voters: int,
        leader_term: type[LeaderTerm],
        tasks: Tasks,
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        """Subscribe to the metadata. `on_failure` receives bugs and disk failures of the coordinators."""
        config, metadata, spawn = node.config, node.metadata, tasks.spawn
        hosted = _host(node, env, logs, quorum, registration, budget, leader_term, spawn)
        self.partitions, self._replication = hosted.partitions, hosted.replication
        transactions = Transactions(
            config,
            env.clock,
            spawn,
            metadata=metadata,
            partitions=self.partitions,
            peers=quorum.peers,
            controller=quorum.controller_client,
            broker_epoch=lambda: registration.broker_epoch,
            on_failure=on_failure,
        )
        self.transactions = transactions.coordinator
        groups = Groups(
            config,
            env,
            spawn,
            metadata=metadata,
            topic_settings=node.topic_settings,
            partitions=self.partitions,
            markers=transactions.markers,
            on_failure=on_failure,
        )
        self.groups = groups.coordinator
        metadata.subscribe_from_start(self.partitions.on_metadata)
        metadata.subscribe(self._replication.on_metadata)
        metadata.subscribe(transactions.on_metadata)
        metadata.subscribe(groups.on_metadata)
        _warn_of_unassigned_logs(node, logs)
        BackgroundJobs(config, env.clock, self.partitions, logs, tasks, node.topic_settings).start()
        DiskSpace(env.disk, config.log_dirs, registration.lifecycle).start(spawn)
        self.context = BrokerContext(
            budget=budget,
            suspected_leaders=quorum.suspected_leaders,
            partitions=self.partitions,
            record_jobs=RecordJobs(budget),
            fetch_sessions=FetchSessions(config.max_incremental_fetch_session_cache_slots, env.rng),
            replica_fetches=hosted.replica_fetches,
            groups=self.groups,
            transactions=self.transactions,
            verifier=transactions.verifier,
            markers=transactions.markers,
            hanging=transactions.hanging,
            auto_topic_creation=AutoTopicCreation(config, metadata, quorum.controller_client, voters=voters),
        )

    async def stop(self) -> None:
        """Stop the coordinators; fail the requests that wait for partitions; stop fetching from leaders."""
        self.groups.stop()
        self.transactions.stop()
        await self.partitions.close()
        self._replication.close()


def _warn_of_unassigned_logs(node: NodeContext, logs: LogManager) -> None:
    """Log a warning for each log that the metadata does not assign to this broker.

    The log is kept: if the metadata is wrong, it can be the only copy. The check uses the metadata image, because the
    registry creates a large number of partitions in several steps and may still lack some.
    """
    image = node.metadata.image
    for log in logs:
        placed = image.partition(log.topic, log.partition)
        if log.topic != CLUSTER_METADATA and (placed is None or node.node_id not in placed.replicas):
            _logger.warning("log of an unassigned partition kept", directory=log.directory)


def _host(
    node: NodeContext,
    env: Env,
    logs: LogManager,
    quorum: QuorumServer,
    registration: Registration,
    budget: ByteBudget,
    leader_term: type[LeaderTerm],
    spawn: Spawn,
) -> HostedPartitions:
    return host_partitions(
        node.config,
        env,
        spawn,
        logs=logs,
        metadata=node.metadata,
        topic_settings=node.topic_settings,
        peers=quorum.peers,
        controller=quorum.controller_client,
        budget=budget,
        broker_epoch=lambda: registration.broker_epoch,
        disk_failed=registration.disk_failed,
        log_start_checks=registration.log_start_checks,
        leader_term=leader_term,
    )
