"""The conditions that involve several properties of a node, or the syntax of one."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from odradek.broker.config.addresses import (
    has_other_voters,
    is_on_one_machine,
    parse_listeners,
    parse_metrics_listener,
    parse_roles,
    parse_voters,
    require_inter_broker_listener,
)
from odradek.broker.config.authentication import require_consistent
from odradek.broker.config.authorization import require_identity_of_nodes, super_users
from odradek.broker.config.connections import OVERRIDES, parse_overrides
from odradek.broker.config.groups import contradictions
from odradek.broker.config.node_identity import check_identity
from odradek.broker.config.properties import Config
from odradek.broker.config.property import ConfigError
from odradek.broker.config.sasl import parse_sasl

_CLUSTER_ID: Final = re.compile("[A-Za-z0-9_-]{22}")
ADDRESSES: Final = (
    "listeners",
    "advertised.listeners",
    "listener.security.protocol.map",
    "inter.broker.listener.name",
    "security.inter.broker.protocol",
    "controller.listener.names",
    "process.roles",
)
"""Properties that determine the listeners of a node."""

_NODES: Final = ("odradek.inter.broker.authentication", "cluster.secret.file", "controller.quorum.", "node.id")


@dataclass(frozen=True, slots=True)
class Check:
    """A condition. `messages` yields a line for each violation."""

    reads: tuple[str, ...]
    """Begins of the names of the properties that the condition involves."""
    messages: Callable[[Config], Iterable[str]]


def raising(function: Callable[[Config], Any], *reads: str) -> Check:
    """Return the check of a function that raises ConfigError."""

    def messages(config: Config) -> Iterator[str]:
        try:
            function(config)
        except ConfigError as error:
            yield str(error)

    return Check(reads, messages)


def violations(config: Config, checks: Iterable[Check], faulty: Iterable[str] = ()) -> Iterator[str]:
    """Yield a line for each violated condition, each line once.

    Conditions that involve a property in `faulty`, which has no valid value, are skipped.
    """
    invalid = tuple(faulty)
    seen: set[str] = set()
    for check in checks:
        if any(name.startswith(check.reads) for name in invalid):
            continue
        for message in check.messages(config):
            if message not in seen:
                seen.add(message)
                yield message


def _log_dirs(config: Config) -> Iterator[str]:
    if not config.log_dirs:
        yield "log.dirs: not set; set it to the data directory"
    elif "," in config.log_dirs:
        yield (
            f"log.dirs: {config.log_dirs!r} names more than one directory; keep one. A node stores all logs in one "
            "directory; to use several disks, combine them to one file system, or run one node per disk"
        )


def _metrics_listener(config: Config) -> None:
    if config.odradek_metrics_listener is not None:
        parse_metrics_listener(config.odradek_metrics_listener)


def _cluster_id(config: Config) -> Iterator[str]:
    if config.odradek_cluster_id is not None and not _CLUSTER_ID.fullmatch(config.odradek_cluster_id):
        yield f"odradek.cluster.id: {config.odradek_cluster_id!r} is not 22 characters of base64url"


def _request_bytes(config: Config) -> Iterator[str]:
    if config.queued_max_request_bytes == 0:
        yield "queued.max.request.bytes: with 0 the broker would read no request; -1 is the default limit"
    elif config.byte_budget < config.socket_request_max_bytes:
        yield (
            f"queued.max.request.bytes: {config.byte_budget} is less than the maximum size of one request"
            f" (socket.request.max.bytes={config.socket_request_max_bytes})"
        )


def _heartbeats(config: Config) -> Iterator[str]:
    if config.broker_heartbeat_interval_ms >= config.broker_session_timeout_ms:
        yield "broker.heartbeat.interval.ms: must be less than broker.session.timeout.ms"


CHECKS: Final[tuple[Check, ...]] = (
    Check(("log.dirs",), _log_dirs),
    raising(parse_listeners, *ADDRESSES, "odradek.inter.broker.authentication"),
    raising(parse_voters, "controller.quorum.voters"),
    raising(parse_roles, *ADDRESSES, "controller.quorum.", "node.id", "cluster.secret.file"),
    raising(parse_sasl, *ADDRESSES, "sasl.", "listener.name."),
    raising(check_identity, *ADDRESSES, *_NODES, "sasl.", "ssl.", "listener.name.", "super.users", "authorizer."),
    raising(_metrics_listener, "odradek.metrics.listener"),
    Check(("odradek.cluster.id",), _cluster_id),
    Check(("queued.max.request.bytes", "socket.request.max.bytes"), _request_bytes),
    Check(("broker.heartbeat.interval.ms", "broker.session.timeout.ms"), _heartbeats),
    raising(super_users, "super.users"),
    raising(lambda config: parse_overrides(config.max_connections_per_ip_overrides), OVERRIDES),
    Check(("group.",), contradictions),
)


def _secret(config: Config) -> None:
    has_other_nodes = has_other_voters(config) and not is_on_one_machine(config)
    require_consistent(config, has_secret=bool(config.cluster_secret_file), has_other_nodes=has_other_nodes)


CHECKS_OF_PROCESSES: Final[tuple[Check, ...]] = (
    raising(require_inter_broker_listener, *ADDRESSES),
    raising(require_identity_of_nodes, *ADDRESSES, *_NODES, "authorizer.class.name"),
    raising(_secret, *ADDRESSES, *_NODES),
)
"""Further conditions of a node that runs as a process of its own."""
