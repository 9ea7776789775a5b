"""What the node's configuration says to its controller."""

from typing import Final

from broker.config import Config
from cluster.controller.state import ControllerConfig

_SECOND_MS: Final = 1_000


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
