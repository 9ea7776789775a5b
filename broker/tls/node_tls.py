"""TLS of a node: the contexts of its listeners and of its connections to other nodes, and their replacement."""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass

from odradek.broker.config.addresses import ListenerAddress, has_other_voters
from odradek.broker.config.properties import Config
from odradek.broker.config.property import ConfigError
from odradek.broker.requests.listener import CLIENT
from odradek.broker.tls.contexts import ReadFile, client_context, server_context, verify_handshake
from odradek.broker.tls.distinguished_name import subject_name
from odradek.broker.tls.principal_mapping import PrincipalMapping
from odradek.cluster.authorizer import ANONYMOUS, Principal


class NoPrincipal(Exception):
    """Error of a client certificate that no rule maps to a principal. The message is complete for the operator."""


@dataclass(frozen=True, slots=True)
class _Contexts:
    server: ssl.SSLContext
    client: ssl.SSLContext


class ListenerTls:
    """TLS of one listener."""

    def __init__(self, config: Config, address: ListenerAddress, read_file: ReadFile) -> None:
        """`config` is that of the node. Raise ConfigError."""
        self._address = address
        self._mapping = PrincipalMapping(config.on_listener(address.name).ssl_principal_mapping_rules)
        self._contexts = self._build(config, read_file)

    @property
    def server(self) -> ssl.SSLContext:
        """The context for connections that the listener accepts from now on."""
        return self._contexts.server

    @property
    def client(self) -> ssl.SSLContext:
        """The context for connections of this node to this listener of other nodes."""
        return self._contexts.client

    def replace(self, config: Config, read_file: ReadFile) -> None:
        """Use the certificates of `config` for new connections. Raise ConfigError without a change."""
        self._contexts = self._build(config, read_file)

    def principal(self, certificate: bytes | None) -> Principal:
        """Return the principal of a client with this certificate in DER, or without one. Raise NoPrincipal."""
        if certificate is None:
            return ANONYMOUS
        try:
            subject = subject_name(certificate)
        except ValueError as error:
            raise NoPrincipal(f"the subject of the client certificate cannot be read: {error}") from None
        name = self._mapping.name_of(subject)
        if name is None:
            raise NoPrincipal(f"no rule of ssl.principal.mapping.rules matches the subject {subject!r}")
        return Principal(ANONYMOUS.kind, name)

    def _build(self, config: Config, read_file: ReadFile) -> _Contexts:
        address = self._address
        own = config.on_listener(address.name)
        try:
            authentication = own.ssl_client_auth
            if address.security_protocol.uses_sasl:  # as in Kafka, a value for all listeners does not apply
                authentication = config.overrides.get(address.name, {}).get("ssl_client_auth", "none")
            contexts = _Contexts(server_context(own, authentication, read_file), client_context(own, read_file))
            if address.roles != (CLIENT,) and has_other_voters(config):
                verify_handshake(contexts.server, contexts.client)
        except ConfigError as error:
            raise ConfigError(f"{error} (listener {address.name})") from None
        return contexts


class NodeTls:
    """TLS of all listeners of a node."""

    def __init__(self, config: Config, addresses: Sequence[ListenerAddress], read_file: ReadFile) -> None:
        """Read the certificates and private keys. Raise ConfigError."""
        self._by_listener = {
            address.name: ListenerTls(config, address, read_file)
            for address in addresses
            if address.security_protocol.uses_tls
        }

    def listener(self, name: str) -> ListenerTls | None:
        """Return the TLS of a listener; None if its connections are not encrypted."""
        return self._by_listener.get(name)
