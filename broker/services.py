"""What handlers reach: one field per part of the node. Built once, by `node.py`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.api import AnyApi
    from broker.config import Config
    from broker.fetch_sessions import FetchSessions
    from broker.limits import ByteBudget
    from broker.marker_writer import MarkerWriter
    from broker.partitions import Partitions
    from broker.ports import Authorizer, Quotas
    from broker.topic_config import TopicSettings
    from broker.topics import TopicMaker
    from broker.txn_verification import TransactionVerifier
    from cluster.controller.port import ControllerPort
    from cluster.metadata import MetadataCache
    from coordinator.txn.service import TransactionCoordinator
    from runtime.clock import Clock


@dataclass(slots=True)
class Services:
    config: "Config"
    clock: "Clock"
    budget: "ByteBudget"
    metadata: "MetadataCache"
    controller: "ControllerPort"
    partitions: "Partitions"
    transactions: "TransactionCoordinator"
    verification: "TransactionVerifier"
    fetch_sessions: "FetchSessions"
    markers: "MarkerWriter"
    topic_maker: "TopicMaker"
    topic_settings: "TopicSettings"
    authorizer: "Authorizer"
    quotas: "Quotas"
    apis: "tuple[AnyApi, ...]"
    cluster_id: str
    node_id: int
