"""What the node's configuration says to its controller, and to the broker that registers with one."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from odradek.broker.config.properties import Config
from odradek.broker.dispatch.api import CONTROLLER
from odradek.broker.network.addresses import Voter
from odradek.broker.network.session import Listener
from odradek.broker.quorum.peers import Peers
from odradek.cluster.controller.port import ControllerRegistration
from odradek.cluster.controller.settings.features import SUPPORTED_FEATURES
from odradek.cluster.controller.state import ControllerConfig
from odradek.cluster.lifecycle import LifecycleConfig
from odradek.cluster.metadata.image import Endpoint
from odradek.cluster.raft.progress import majority
from odradek.runtime.clock import Clock

_SECOND_MS: Final = 1_000
LATELY_MS: Final = 3_000
"""So long does it count that something came from a node, or that it refused a connection."""


def controller_config(config: Config, cluster_id: str) -> ControllerConfig:
    interval_ms = config.leader_imbalance_check_interval_seconds * _SECOND_MS
    return ControllerConfig(
        config.node_id,
        cluster_id,
        session_timeout_ms=config.broker_session_timeout_ms,
        leader_balance_interval_ms=interval_ms if config.auto_leader_rebalance_enable else None,
        leader_imbalance_percentage=config.leader_imbalance_per_broker_percentage,
        unclean_election_interval_ms=config.unclean_leader_election_interval_ms,
    )


def lifecycle_config(config: Config) -> LifecycleConfig:
    """An answer is waited for half a session, as Kafka does; a session and a half show whether another broker lives."""
    session_ms = config.broker_session_timeout_ms
    return LifecycleConfig(
        heartbeat_interval_ms=config.broker_heartbeat_interval_ms,
        request_timeout_ms=max(session_ms // 2, 1),
        duplicate_limit_ms=session_ms + session_ms // 2,
    )


def answer_timeout_ms(config: Config) -> int:
    """How long a broker waits for a controller before it takes the connection for dead: two tries within half a session."""
    return max(config.broker_session_timeout_ms // 4, 1)


def own_controller(
    node_id: int, incarnation_id: UUID, voters: Sequence[Voter], listeners: Sequence[Listener]
) -> ControllerRegistration | None:
    """None for a node that does not vote."""
    if voters and node_id not in [voter.node_id for voter in voters]:
        return None
    endpoints = tuple(
        Endpoint(each.name, each.advertised_host, each.advertised_port)
        for each in listeners
        if CONTROLLER in each.roles
    )
    return ControllerRegistration(node_id, incarnation_id, endpoints, SUPPORTED_FEATURES)


def missing_controllers(node_id: int, voters: Sequence[Voter], peers: Peers, clock: Clock) -> str:
    """The other voters that nothing was heard of lately."""
    since_ms = clock.monotonic_ms() - LATELY_MS
    return ", ".join(
        f"{voter.node_id}@{voter.host}:{voter.port}"
        for voter in voters
        if voter.node_id != node_id and peers.heard_ms(voter.node_id) < since_ms
    )


def without_quorum(voters: Sequence[Voter], peers: Peers, clock: Clock) -> bool:
    """Do so many controllers not run that none can be elected? Their hosts have said so lately, and they have not since."""
    since_ms = clock.monotonic_ms() - LATELY_MS
    running = [
        voter for voter in voters if peers.refused_ms(voter.node_id) <= max(since_ms, peers.heard_ms(voter.node_id))
    ]
    return len(running) < majority(len(voters))
