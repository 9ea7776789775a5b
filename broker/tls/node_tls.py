"""TLS of a node: the contexts of its listeners and of its connections to other nodes, and their replacement."""

import ssl
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from hashlib import sha256

from odradek.broker.config.addresses import ListenerAddress, has_other_voters
from odradek.broker.config.properties import Config
from odradek.broker.config.property import ConfigError
from odradek.broker.requests.listener import CLIENT
from odradek.broker.tls.contexts import (
    TLS_ATTRIBUTES,
    Names,
    ReadFile,
    client_context,
    files_of,
    load_stores,
    server_context,
    verify_handshake,
)
from odradek.broker.tls.distinguished_name import subject_name
from odradek.broker.tls.principal_mapping import PrincipalMapping
from odradek.cluster.authorizer import ANONYMOUS, Principal


class NoPrincipal(Exception):
    """Error of a client certificate that no rule maps to a principal. The message is complete for the operator."""


@dataclass(frozen=True, slots=True)
class Contexts:
    """Contexts of one listener, and the source that they were made from."""

    server: ssl.SSLContext
    client: ssl.SSLContext
    mapping: PrincipalMapping
    expires_ms: int | None
    """The end of the validity of the node's certificate, in ms since 1970."""
    names: Names | None
    """The names in the node's certificate."""
    source: Hashable
    """The values of the properties, and digests of the files."""


class ListenerTls:
    """TLS of one listener."""

    def __init__(self, config: Config, address: ListenerAddress, read_file: ReadFile) -> None:
        """`config` is that of the node. Raise ConfigError."""
        self.name = address.name
        self._address = address
        self._contexts = self._make(config, read_file)

    @property
    def server(self) -> ssl.SSLContext:
        """The context for connections that the listener accepts from now on."""
        return self._contexts.server

    @property
    def client(self) -> ssl.SSLContext:
        """The context for connections of this node to this listener of other nodes."""
        return self._contexts.client

    @property
    def expires_ms(self) -> int | None:
        """The end of the validity of the certificate in use, in ms since 1970."""
        return self._contexts.expires_ms

    def changed(self, config: Config, read_file: ReadFile) -> Contexts | None:
        """Return new contexts if the properties or the files have changed, otherwise None.

        Raise ConfigError if no contexts can be made, or if the certificate has other names that are not permitted.
        It reads files, and the decryption of keys can take tens of milliseconds: call it in a thread.
        """
        used = self._contexts
        made = self._make(config, read_file, unless=used.source)
        if used.names is not None and made.names is not None:
            try:
                used.names.check_replacement(made.names, config)
            except ConfigError as error:
                raise ConfigError(f"{error} (listener {self.name})") from None
        return None if made is used else made

    def use(self, contexts: Contexts) -> None:
        """Use `contexts` for new connections. Existing connections are not affected."""
        self._contexts = contexts

    def principal(self, certificate: bytes | None) -> Principal:
        """Return the principal of a client with this certificate in DER, or without one. Raise NoPrincipal."""
        if certificate is None:
            return ANONYMOUS
        try:
            subject = subject_name(certificate)
        except ValueError as error:
            raise NoPrincipal(f"the subject of the client certificate cannot be read: {error}") from None
        name = self._contexts.mapping.name_of(subject)
        if name is None:
            raise NoPrincipal(f"no rule of ssl.principal.mapping.rules matches the subject {subject!r}")
        return Principal(ANONYMOUS.kind, name)

    def _make(self, config: Config, read_file: ReadFile, *, unless: Hashable = None) -> Contexts:
        """Return contexts for the present files. Return the contexts in use if their source is `unless`."""
        address = self._address
        own = config.on_listener(address.name)
        files = {path: _content(path, read_file) for path in files_of(own)}
        authentication = own.ssl_client_auth
        if address.security_protocol.uses_sasl:  # as in Kafka, a value for all listeners does not apply
            authentication = config.overrides.get(address.name, {}).get("ssl_client_auth", "none")
        values = (authentication, *(getattr(own, name) for name in TLS_ATTRIBUTES))
        source = (values, tuple((path, _digest(content)) for path, content in files.items()))
        if unless is not None and unless == source:
            return self._contexts

        def read(path: str) -> bytes:
            content = files[path]
            if isinstance(content, OSError):
                raise content
            return content

        try:
            stores = load_stores(own, read)
            contexts = Contexts(
                server_context(own, authentication, stores),
                client_context(own, stores),
                PrincipalMapping(own.ssl_principal_mapping_rules),
                stores.expires_ms,
                stores.names,
                source,
            )
            if address.roles != (CLIENT,) and has_other_voters(config):
                verify_handshake(contexts.server, contexts.client)
        except ConfigError as error:
            raise ConfigError(f"{error} (listener {address.name})") from None
        return contexts


def _content(path: str, read_file: ReadFile) -> bytes | OSError:
    try:
        return read_file(path)
    except OSError as error:
        return error


def _digest(content: bytes | OSError) -> bytes | None:
    return None if isinstance(content, OSError) else sha256(content).digest()


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

    @property
    def listeners(self) -> Sequence[ListenerTls]:
        """The TLS of each listener that uses it."""
        return tuple(self._by_listener.values())
