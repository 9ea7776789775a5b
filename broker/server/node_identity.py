"""Identity of nodes, as the configuration selects it: principals that listeners serve as nodes, and own logins."""

from collections.abc import Callable
from functools import lru_cache

from odradek.broker.config.addresses import parse_listeners, remote_listeners
from odradek.broker.config.authentication import logs_in
from odradek.broker.config.node_identity import (
    NodeCredential,
    node_credentials,
    node_principals,
    serves_principals,
    serves_principals_alone,
    uses_principal,
)
from odradek.broker.config.properties import Config
from odradek.broker.quorum.peer_login import PeerLogin, by_credential, by_secret
from odradek.broker.quorum.peers import Channel, LoginOf
from odradek.broker.requests.node_principals import NodePrincipals
from odradek.cluster.authorizer import Authorizer
from odradek.protocol.sasl.cluster_secret import ClusterSecret
from odradek.protocol.sasl.login import Login
from odradek.protocol.sasl.mechanism import PLAIN
from odradek.protocol.sasl.plain import PlainClient
from odradek.protocol.sasl.scram import NONCE_BITS, SCRAM_MECHANISMS
from odradek.protocol.sasl.scram_client import ScramClient

ListenerOf = Callable[[int, Channel], str]
"""Return the name of the listener of a node for a purpose."""
MakeLogin = Callable[[], Login]


def principals_of_listeners(config: Config, authorizer: Authorizer) -> dict[str, NodePrincipals]:
    """Return the principals that listeners serve as nodes, by the names of the listeners that do so."""
    ids, credentials = node_principals(config), node_credentials(config)
    return {
        address.name: NodePrincipals(
            ids,
            credentials[address.name].principal if address.name in credentials else None,
            authorizer,
            serves_principals_alone(config, address),
        )
        for address in parse_listeners(config)
        if serves_principals(config, address)
    }


def logins_of(
    config: Config, secret: ClusterSecret | None, listener_of: ListenerOf, random_bits: Callable[[int], int]
) -> LoginOf:
    """Return the logins of this node at other nodes: by its SASL credential, none with a certificate, or by the secret.

    `random_bits` returns an integer with that number of unpredictable bits, for nonces.
    """
    of_node = secret if logs_in(config) else None
    addresses = (*parse_listeners(config), *remote_listeners(config))
    certified = {each.name for each in addresses if uses_principal(config, each)}
    made = {name: _maker(credential, random_bits) for name, credential in node_credentials(config).items()}

    def login_of(node_id: int, channel: Channel) -> PeerLogin | None:
        name = listener_of(node_id, channel)
        if name in made:
            return by_credential(made[name]())
        if of_node is None or name in certified:
            return None
        return by_secret(of_node, config.node_id, node_id)

    return login_of


def _maker(credential: NodeCredential, random_bits: Callable[[int], int]) -> MakeLogin:
    if credential.mechanism == PLAIN:
        return lambda: Login(PlainClient(credential.user, credential.password))
    mechanism = SCRAM_MECHANISMS[credential.mechanism]
    password = credential.password.encode()

    @lru_cache(maxsize=1)
    def salted(salt: bytes, iterations: int) -> bytes:
        """Return the salted password. All nodes have the same salt, so one computation serves all logins."""
        return mechanism.salted(password, salt, iterations)

    return lambda: Login(ScramClient(mechanism, credential.user, salted, f"{random_bits(NONCE_BITS):x}"))
