"""Derive the configuration of the controller and of the broker lifecycle from the node's properties."""

from typing import Final

from odradek.broker.config.properties import Config
from odradek.cluster.controller.messages.tokens import TokenRules
from odradek.cluster.controller.state import ControllerConfig
from odradek.cluster.lifecycle.driver import LifecycleConfig

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
        tokens=token_rules(config),
    )


def token_rules(config: Config) -> TokenRules:
    """Return the rules of delegation tokens."""
    key = config.delegation_token_secret_key
    return TokenRules(
        b"" if key is None else key.value.encode(),
        config.delegation_token_max_lifetime_ms,
        config.delegation_token_expiry_time_ms,
        config.delegation_token_expiry_check_interval_ms,
    )


def lifecycle_config(config: Config) -> LifecycleConfig:
    """Derive the timing of the broker lifecycle from broker.session.timeout.ms.

    A broker waits half a session for a heartbeat response, as Kafka's does. After a session and a half, a registration
    that is still refused belongs to a second broker with the same node id.
    """
    session_ms = config.broker_session_timeout_ms
    return LifecycleConfig(
        heartbeat_interval_ms=config.broker_heartbeat_interval_ms,
        request_timeout_ms=max(session_ms // 2, 1),
        duplicate_limit_ms=session_ms + session_ms // 2,
    )


def controller_response_timeout_ms(config: Config) -> int:
    """Return the milliseconds after which a broker closes a connection to a silent controller.

    A quarter of broker.session.timeout.ms, so a broker can send a heartbeat twice within half a session.
    """
    return max(config.broker_session_timeout_ms // 4, 1)
