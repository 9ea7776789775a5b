"""Identity of nodes at each other's listeners: the credential of this node, and the principals of all nodes.

A node that has a principal at a listener does not log in there with the cluster secret.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from odradek.broker.config.addresses import (
    ListenerAddress,
    controller_listener,
    has_other_voters,
    inter_broker_listener,
    parse_listeners,
    parse_voters,
    remote_listeners,
)
from odradek.broker.config.authentication import MODE, MOVE, PRINCIPAL, PRINCIPAL_MOVE
from odradek.broker.config.authorization import super_users
from odradek.broker.config.properties import PROPERTIES, Config
from odradek.broker.config.property import INT_MAX, ConfigError
from odradek.broker.config.sasl import jaas_label, login_module_of
from odradek.broker.requests.listener import CLIENT, CONTROLLER
from odradek.cluster.authorizer import ANONYMOUS, Principal
from odradek.protocol.sasl.mechanism import OAUTHBEARER, PLAIN
from odradek.protocol.sasl.scram import SCRAM_MECHANISMS
from odradek.protocol.security_protocol import SecurityProtocol

_MAPPING: Final = "odradek.node.principals"
_ENTRY: Final = re.compile(rf"(?P<id>\d{{1,10}})\s*=\s*(?P<kind>{ANONYMOUS.kind}):(?P<name>.+)")
_BROKERS: Final = "sasl.mechanism.inter.broker.protocol"
_CONTROLLERS: Final = "sasl.mechanism.controller.protocol"
_SUPPORTED: Final = (PLAIN, *SCRAM_MECHANISMS)


@dataclass(frozen=True, slots=True)
class NodeCredential:
    """The SASL credential of this node at the listeners of one name."""

    mechanism: str
    user: str
    password: str = field(repr=False)

    @property
    def principal(self) -> Principal:
        """Return the principal of a session with this credential."""
        return Principal(ANONYMOUS.kind, self.user)


def uses_principal(config: Config, address: ListenerAddress) -> bool:
    """Return True if this node has its own principal at the listeners of this name, instead of the cluster secret."""
    explicit = config.odradek_inter_broker_authentication in {PRINCIPAL, PRINCIPAL_MOVE}
    if address.security_protocol.uses_sasl:
        named = _mechanism_property(config, address.name) in config.given
        return named and (explicit or MODE not in config.given) and address.roles != (CLIENT,)
    return explicit and address.security_protocol is SecurityProtocol.SSL and address.roles != (CLIENT,)


def serves_principals(config: Config, address: ListenerAddress) -> bool:
    """Return True if the listener serves nodes by their principals."""
    if address.roles == (CLIENT,) or address.security_protocol is SecurityProtocol.PLAINTEXT:
        return False
    mode = config.odradek_inter_broker_authentication
    return mode == PRINCIPAL_MOVE or (mode == MOVE and bool(node_principals(config))) or uses_principal(config, address)


def serves_principals_alone(config: Config, address: ListenerAddress) -> bool:
    """Return True if the listener serves no node by the cluster secret."""
    return config.odradek_inter_broker_authentication != PRINCIPAL_MOVE and uses_principal(config, address)


def node_principals(config: Config) -> dict[Principal, frozenset[int]]:
    """Return the ids of the nodes that each principal may act as. Raise ConfigError."""
    ids: dict[Principal, frozenset[int]] = {}
    for entry in (text for each in config.odradek_node_principals.split(";") if (text := each.strip())):
        match = _ENTRY.fullmatch(entry)
        if match is None or int(match["id"]) > INT_MAX:
            raise ConfigError(f"{_MAPPING}: {entry!r} is not of the form id=User:name")
        principal = Principal(match["kind"], match["name"])
        if principal == ANONYMOUS:
            raise ConfigError(f"{_MAPPING}: {principal} has not authenticated; name the principals of nodes alone")
        ids[principal] = ids.get(principal, frozenset()) | {int(match["id"])}
    return ids


def node_credentials(config: Config) -> dict[str, NodeCredential]:
    """Return the credentials of this node by the names of the listeners that it connects to. Raise ConfigError."""
    return {
        address.name: _credential(config, address)
        for address in _dialed(config)
        if address.security_protocol.uses_sasl and uses_principal(config, address)
    }


def check_identity(config: Config) -> None:
    """Raise ConfigError if the nodes could not authenticate to each other as the configuration requires."""
    ids, mode = node_principals(config), config.odradek_inter_broker_authentication
    credentials = node_credentials(config)
    for address in _dialed(config):
        _check_dialed(config, address)
    served = [address for address in parse_listeners(config) if serves_principals(config, address)]
    has_principal = any(uses_principal(config, address) for address in _dialed(config))
    if ids and not served and not has_principal and mode not in {MOVE, PRINCIPAL_MOVE}:
        raise ConfigError(f"{_MAPPING}: without effect, because nodes use the cluster secret; set {MODE}=principal")
    if ids and served and not any(config.node_id in nodes for nodes in ids.values()):
        raise ConfigError(f"{_MAPPING}: node {config.node_id} is missing; add the principal of this node")
    controllers = {address.name for address in served if CONTROLLER in address.roles}
    if served and not ids and not config.authorizer_class_name and not all(each.name in credentials for each in served):
        raise ConfigError(f"{_MAPPING}: not set, so that clients could act as nodes; name the principal of each node")
    if controllers and has_other_voters(config):
        _check_voters(config, ids, {each.principal for name, each in credentials.items() if name in controllers})


def identity_warnings(config: Config) -> list[tuple[str, str]]:
    """Return warnings and their remedies: what the identity of nodes does not prevent."""
    found: list[tuple[str, str]] = []
    dialed = [address for address in _dialed(config) if uses_principal(config, address)]
    if not dialed or not has_other_voters(config):
        return found
    if not node_principals(config):
        remedy = f"give each node an own principal, and set {_MAPPING}"
        found.append(("each principal with CLUSTER_ACTION can act as any node", remedy))
    for address in dialed:
        if not address.security_protocol.uses_tls:
            found.append(("passwords of nodes and their requests are not encrypted", "use SASL_SSL between nodes"))
        elif not config.on_listener(address.name).ssl_endpoint_identification_algorithm:
            remedy = "remove ssl.endpoint.identification.algorithm"
            found.append(("certificates of nodes are accepted for other hosts", remedy))
    return list(dict.fromkeys(found))


def _dialed(config: Config) -> list[ListenerAddress]:
    """Return the listeners by whose names this node connects to others: its own ones, and those of other roles."""
    names = {inter_broker_listener(config), controller_listener(config)}
    own = [address for address in parse_listeners(config) if address.name in names]
    return [*own, *remote_listeners(config)]


def _mechanism_property(config: Config, listener: str) -> str:
    of_controllers = listener in (name.upper() for name in config.controller_listener_names)
    return _CONTROLLERS if of_controllers else _BROKERS


def _check_dialed(config: Config, address: ListenerAddress) -> None:
    mode, name, protocol = config.odradek_inter_broker_authentication, address.name, address.security_protocol
    label = _mechanism_property(config, name)
    allowed = mode in {MOVE, PRINCIPAL, PRINCIPAL_MOVE} or MODE not in config.given
    if protocol.uses_sasl and label in config.given and not allowed:
        raise ConfigError(f"{label}: set, but {MODE}={mode} uses the cluster secret; set {PRINCIPAL}")
    if mode not in {PRINCIPAL, PRINCIPAL_MOVE}:
        return
    if protocol is SecurityProtocol.PLAINTEXT:
        raise ConfigError(f"{MODE}: {mode}, but the listener of nodes {name} has PLAINTEXT; use SASL_SSL or SSL")
    if protocol.uses_sasl and label not in config.given:
        raise ConfigError(f"{label}: not set, but nodes use the listener {name}, which has SASL; name a mechanism")
    is_own = address not in remote_listeners(config)
    if not protocol.uses_sasl and is_own and config.on_listener(name).ssl_client_auth == "none":
        raise ConfigError(
            f"listener.name.{name.lower()}.ssl.client.auth: not set, but certificates are the identity of nodes; "
            "set it to required"
        )


def _credential(config: Config, address: ListenerAddress) -> NodeCredential:
    name, label = address.name, _mechanism_property(config, address.name)
    mechanism: str = getattr(config, PROPERTIES[label].attribute)
    if mechanism == OAUTHBEARER:
        raise ConfigError(f"{label}: nodes cannot request tokens of {mechanism}; use PLAIN, SCRAM or certificates")
    if mechanism not in _SUPPORTED:
        raise ConfigError(f"{label}: {mechanism} is not supported; use one of {', '.join(_SUPPORTED)}")
    if mechanism in SCRAM_MECHANISMS and CONTROLLER in address.roles and has_other_voters(config):
        raise ConfigError(
            f"{label}: {mechanism} is not possible on the listener {name} for controllers; use PLAIN, or SSL with "
            f"{MODE}=principal. Credentials of SCRAM are in the metadata, which voters have only after an election. "
            "If brokers use it, name another listener in controller.listener.names"
        )
    is_own = address not in remote_listeners(config)
    if is_own and mechanism not in config.on_listener(name).sasl_enabled_mechanisms:
        raise ConfigError(f"{label}: {mechanism} is not in sasl.enabled.mechanisms of the listener {name}; add it")
    module = login_module_of(config.on_listener(name, mechanism), name, mechanism)
    options: Mapping[str, str] = {} if module is None else module.options
    user, password = options.get("username"), options.get("password")
    if not user or not password:
        raise ConfigError(f"{jaas_label(name, mechanism)}: nodes log in with it; add the options username and password")
    return NodeCredential(mechanism, user, password)


def _check_voters(config: Config, ids: Mapping[Principal, frozenset[int]], own: set[Principal]) -> None:
    """Raise ConfigError if voters would not serve each other before they have the metadata, which has the ACLs."""
    voters = {voter.node_id for voter in parse_voters(config)}
    missing = voters.difference(*ids.values()) if ids else set()
    if missing:
        raise ConfigError(f"{_MAPPING}: node {min(missing)} of controller.quorum.voters is missing; add its principal")
    if not config.authorizer_class_name:
        return
    users = super_users(config)
    needed = [principal for principal, nodes in ids.items() if nodes & voters] if ids else sorted(own)
    for principal in needed:
        if str(principal) not in users:
            raise ConfigError(f"super.users: {principal} is missing; voters need it before they have the ACLs")
