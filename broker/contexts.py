"""Contexts of request handlers. A node makes them in this order; each is complete when it is made.

1. `NodeContext`: identity, settings, committed metadata, authorizer and quotas.
2. `QuorumContext`: this node in the metadata quorum. With it, the node votes and serves the controller's APIs.
3. `BrokerContext`: the registered broker with its partitions and coordinators. With it, the node serves all APIs.

A request carries contexts 1 and 2 in a `QuorumRequestContext`, and all three in a `BrokerRequestContext`.
"""

from dataclasses import dataclass

from odradek.broker.config.properties import Config
from odradek.broker.config.topics import TopicSettings
from odradek.broker.coordinators.hanging import HangingTransactions
from odradek.broker.coordinators.marker_writer import MarkerWriter
from odradek.broker.coordinators.txn_verification import TransactionVerifier
from odradek.broker.fetch.record_jobs import RecordJobs
from odradek.broker.fetch.sessions import FetchSessions
from odradek.broker.partition.registry import Partitions
from odradek.broker.quorum.network import PeerRaftNetwork
from odradek.broker.quorum.peers import Peers
from odradek.broker.quorum.suspected_leaders import SuspectedLeaders
from odradek.broker.quota.byte_budget import ByteBudget
from odradek.broker.quota.client_quotas import ClientQuotas
from odradek.broker.replication.leader_fetch import ReplicaFetches
from odradek.broker.requests.api import AnyApi
from odradek.broker.requests.context import Audit, RequestContext
from odradek.broker.security.authentication import Authentication
from odradek.broker.tls.certificates import Certificates
from odradek.broker.topics.auto_create import AutoTopicCreation
from odradek.cluster.authorizer import Authorizer
from odradek.cluster.controller.service import ControllerService
from odradek.cluster.metadata.cache import MetadataCache
from odradek.cluster.raft.driver import RaftDriver
from odradek.coordinator.group.service import GroupCoordinator
from odradek.coordinator.txn.service import TransactionCoordinator
from odradek.protocol.sasl.cluster_secret import ClusterSecret
from odradek.runtime.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeContext:
    """Identity and settings of the node, and the metadata of its cluster."""

    node_id: int
    cluster_id: str
    config: Config
    topic_settings: TopicSettings
    clock: Clock
    metadata: MetadataCache
    authorizer: Authorizer
    quotas: ClientQuotas
    authentication: Authentication
    apis: tuple[AnyApi, ...]
    """The APIs that the node serves when it is registered."""
    audit: Audit | None = None
    """Audit log; None without an authorizer."""
    secret: ClusterSecret | None = None
    """Secret by which the nodes authenticate to each other; None if they do not."""
    certificates: Certificates | None = None
    """Certificates of the listeners with TLS; None if there is no such listener."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumContext:
    """State of this node as a voter of the metadata quorum."""

    raft: RaftDriver
    network: PeerRaftNetwork
    controller: ControllerService
    """The controller of this node. At most one node of the cluster has the active controller."""
    peers: Peers


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerContext:
    """State of the registered broker."""

    budget: ByteBudget
    suspected_leaders: SuspectedLeaders
    partitions: Partitions
    record_jobs: RecordJobs
    fetch_sessions: FetchSessions
    replica_fetches: ReplicaFetches
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    verifier: TransactionVerifier
    markers: MarkerWriter
    hanging: HangingTransactions
    auto_topic_creation: AutoTopicCreation


@dataclass(slots=True)
class QuorumRequestContext(RequestContext):
    """Context of a request that is served before and after the broker is registered."""

    node: NodeContext
    quorum: QuorumContext


@dataclass(slots=True)
class BrokerRequestContext(QuorumRequestContext):
    """Context of a request to a registered broker."""

    broker: BrokerContext
