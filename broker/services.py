"""What handlers reach: one field per part of the node. Built by `node.py`, in two stages.

The first fields are there as soon as the node votes; the others before it serves clients (see `broker.api` Api.early).
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.api import AnyApi
    from broker.config import Config
    from broker.controller_client import ControllerClient
    from broker.dispatch import Dispatcher
    from broker.doubts import Doubts
    from broker.fetch_sessions import FetchSessions
    from broker.forwarding import Forwarding
    from broker.limits import ByteBudget
    from broker.marker_writer import MarkerWriter
    from broker.partitions import Partitions
    from broker.peers import Peers
    from broker.ports import Authorizer, Quotas
    from broker.raft_network import PeerRaftNetwork
    from broker.replica_fetch import ReplicaFetches
    from broker.topic_config import TopicSettings
    from broker.topics import TopicMaker
    from broker.txn_verification import TransactionVerifier
    from cluster.controller.service import ControllerService
    from cluster.metadata import MetadataCache
    from cluster.raft.driver import RaftDriver
    from coordinator.group.service import GroupCoordinator
    from coordinator.txn.service import TransactionCoordinator
    from runtime.clock import Clock


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
    quotas: "Quotas"
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
