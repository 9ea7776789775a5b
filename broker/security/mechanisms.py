"""The SASL mechanisms of each listener, and the servers of their exchanges.

A listener with SASL authenticates clients. A listener for brokers or controllers also authenticates nodes of the
cluster by the cluster secret. The first message of a node names the node that it has dialed, and that of a client does
not (`odradek.protocol.sasl.cluster_secret`).
"""

from asyncio import Event
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from odradek.broker.requests.listener import Listener
from odradek.broker.security.sasl_settings import SaslSettings
from odradek.broker.security.token_credentials import TokenCredentials
from odradek.cluster.metadata.cache import MetadataCache
from odradek.protocol.sasl.cluster_secret import MECHANISM, ClusterSecret, is_node_login
from odradek.protocol.sasl.mechanism import OAUTHBEARER, PLAIN, AuthenticationFailed, Identity, Reply, SaslServer
from odradek.protocol.sasl.oauthbearer import OAuthBearerServer, Validate
from odradek.protocol.sasl.plain import PlainServer
from odradek.protocol.sasl.scram import NONCE_BITS, SCRAM_MECHANISMS, Decoys, ScramMechanism
from odradek.protocol.sasl.scram_server import Account, ClientFirst, ScramServer, parse_client_first

DECOY_KEY_BITS: Final = 256
"""Random bits of the key of the decoys in a cluster without a secret. Each node has its own key there."""
AccountOf = Callable[[ScramMechanism, ClientFirst], Account | None]
"""Return the SCRAM credential of the user that a first message names, or None if there is none."""


@dataclass(slots=True, kw_only=True)
class Mechanisms:
    """The mechanisms of all listeners of a node."""

    node_id: int
    random_bits: Callable[[int], int]
    account_of: AccountOf
    settings: Mapping[str, SaslSettings] = field(default_factory=dict)
    """Settings of the listeners with SASL, by their names."""
    validators: dict[str, Validate] = field(default_factory=dict)
    """Validation of the tokens of OAUTHBEARER, by listener."""
    secret: ClusterSecret | None = None
    tokens: TokenCredentials | None = None
    """Credentials of delegation tokens; None if the cluster has no tokens."""
    decoys: Decoys = field(init=False)
    """Credentials of unknown users and tokens."""

    def __post_init__(self) -> None:
        if self.secret is not None:
            self.decoys = self.secret.decoys
        else:
            self.decoys = Decoys(self.random_bits(DECOY_KEY_BITS).to_bytes(DECOY_KEY_BITS // 8))

    @property
    def scram(self) -> list[ScramMechanism]:
        """The SCRAM mechanisms that at least one listener has for clients."""
        enabled = {name for settings in self.settings.values() for name in settings.mechanisms}
        return [mechanism for name, mechanism in SCRAM_MECHANISMS.items() if name in enabled]

    def names(self, listener: Listener) -> list[str]:
        """Return the mechanisms that SaslHandshake lists: those for clients, or that of nodes if clients have none."""
        settings = self.settings.get(listener.name)
        if settings is not None:
            return list(settings.mechanisms)
        return [MECHANISM.name] if listener.accepts_secret else []

    def max_session_ms(self, listener: Listener, mechanism: str) -> int:
        """Return the maximum milliseconds of a session (connections.max.reauth.ms). 0: no limit."""
        settings = self.settings.get(listener.name)
        return 0 if settings is None else settings.max_reauth_ms.get(mechanism, 0)

    def server(self, listener: Listener, mechanism: str) -> SaslServer | None:
        """Return the server of a new exchange, or None if the listener does not support the mechanism."""
        settings = self.settings.get(listener.name)
        client = None
        if settings is not None and mechanism in settings.mechanisms:
            client = self._client_server(settings, listener, mechanism)
        if self.secret is None or mechanism != MECHANISM.name or not listener.accepts_secret:
            return client
        node = self.secret.server(self.node_id)
        return node if settings is None else NodeOrClientServer(node, client)

    def _client_server(self, settings: SaslSettings, listener: Listener, mechanism: str) -> SaslServer:
        if mechanism == PLAIN:
            return PlainServer(settings.passwords.get)
        if mechanism == OAUTHBEARER:
            return OAuthBearerServer(self.validators[listener.name])
        scram = SCRAM_MECHANISMS[mechanism]
        nonce = f"{self.random_bits(NONCE_BITS):x}"
        return ScramServer(scram, partial(self._account, scram), self.decoys, nonce)

    def _account(self, mechanism: ScramMechanism, first: ClientFirst) -> Account | None:
        if not first.by_token:
            return self.account_of(mechanism, first)
        return None if self.tokens is None else self.tokens.account(mechanism, first.user)

    def preparation(self, mechanism: str, message: bytes) -> Event | None:
        """Return the event that the credential of the token in a first message is complete; None if it is complete."""
        if self.tokens is None or mechanism not in SCRAM_MECHANISMS:
            return None
        try:
            first = parse_client_first(message)
        except AuthenticationFailed:
            return None
        return self.tokens.preparation(first.user) if first.by_token else None


def scram_account(metadata: MetadataCache, mechanism: ScramMechanism, first: ClientFirst) -> Account | None:
    """Return the SCRAM credential of the user that a first message names, from the metadata of the cluster."""
    credential = metadata.image.scram.get((first.user, mechanism.code))
    return None if credential is None else Account(credential, Identity(first.user))


class NodeOrClientServer:
    """Server of SCRAM-SHA-256 on a listener that serves clients and nodes. The first message decides between them."""

    def __init__(self, node: SaslServer, client: SaslServer | None) -> None:
        """`client` is None if clients cannot use the mechanism."""
        self._node = node
        self._client = client
        self._chosen: SaslServer | None = None

    def next(self, message: bytes) -> Reply:
        """Return the response to the next message of the client. Raise AuthenticationFailed."""
        if self._chosen is None:
            self._chosen = self._node if is_node_login(parse_client_first(message)) else self._client
        if self._chosen is None:
            raise AuthenticationFailed(
                "the mechanism is for nodes alone",
                public=f"SASL mechanism '{MECHANISM.name}' is not in sasl.enabled.mechanisms",
            )
        return self._chosen.next(message)
