"""What handlers reach: one field per part of the node. Built by `node.py`, in two stages.

The first fields are there as soon as the node votes; the others before it serves clients (see `odradek.broker.requests.api` Api.early).
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.broker.config.properties import Config
    from odradek.broker.config.topics import TopicSettings
    from odradek.broker.coordinators.marker_writer import MarkerWriter
    from odradek.broker.coordinators.txn_verification import TransactionVerifier
    from odradek.broker.dispatch.dispatcher import Dispatcher
    from odradek.broker.fetch.sessions import FetchSessions
    from odradek.broker.partition.registry import Partitions
    from odradek.broker.quorum.controller_client import ControllerClient
    from odradek.broker.quorum.forwarding import Forwarding
    from odradek.broker.quorum.network import PeerRaftNetwork
    from odradek.broker.quorum.peers import Peers
    from odradek.broker.quorum.suspected_leaders import Doubts
    from odradek.broker.quota.byte_budget import ByteBudget
    from odradek.broker.quota.client_quotas import ClientQuotas
    from odradek.broker.replication.leader_fetch import ReplicaFetches
    from odradek.broker.requests.api import AnyApi
    from odradek.broker.topics.auto_create import TopicMaker
    from odradek.cluster.authorizer import Authorizer
    from odradek.cluster.controller.service import ControllerService
    from odradek.cluster.metadata.cache import MetadataCache
    from odradek.cluster.raft.driver import RaftDriver
    from odradek.coordinator.group.service import GroupCoordinator
    from odradek.coordinator.txn.service import TransactionCoordinator
    from odradek.runtime.clock import Clock


@dataclass(slots=True, kw_only=True)
class Services:
    config: "Config"
    clock: "Clock"
    budget: "ByteBudget"
    metadata: "MetadataCache"
    raft: "RaftDriver"
    raft_network: "PeerRaftNetwork"
    controller: "ControllerService"
    """This node's; active on one node of the cluster at a time."""
    controller_client: "ControllerClient"
    """The way to the active one."""
    forwarding: "Forwarding"
    peers: "Peers"
    doubts: "Doubts"
    authorizer: "Authorizer"
    quotas: "ClientQuotas"
    topic_settings: "TopicSettings"
    apis: "tuple[AnyApi, ...]"
    cluster_id: str
    node_id: int

    dispatcher: "Dispatcher" = field(init=False)
    partitions: "Partitions" = field(init=False)
    replica_fetches: "ReplicaFetches" = field(init=False)
    transactions: "TransactionCoordinator" = field(init=False)
    groups: "GroupCoordinator" = field(init=False)
    verification: "TransactionVerifier" = field(init=False)
    fetch_sessions: "FetchSessions" = field(init=False)
    markers: "MarkerWriter" = field(init=False)
    topic_maker: "TopicMaker" = field(init=False)
