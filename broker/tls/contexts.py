"""Contexts of TLS for the listeners of a node, and for its connections to other nodes, from Kafka's properties.

Private keys are not written to a disk: the TLS library reads them from a file in memory.
"""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import (
    Certificate,
    DuplicateExtension,
    ExtensionNotFound,
    SubjectAlternativeName,
    load_pem_x509_certificate,
)

from odradek.broker.config.properties import PROPERTIES, Config
from odradek.broker.config.property import ConfigError, Password
from odradek.broker.tls.distinguished_name import subject_name
from odradek.memory_files import memory_file
from odradek.protocol.tls_stores import KeyStore, StoreUnusable, key_store, trust_store
from odradek.protocol.tls_suites import SuitesUnusable, set_suites

ReadFile = Callable[[str], bytes]
"""Return the content of a file. Raise OSError."""
TLS_ATTRIBUTES: Final = tuple(prop.attribute for prop in PROPERTIES.values() if prop.name.startswith("ssl."))
"""The attributes of a configuration that TLS of a listener depends on."""
_STORE_PREFIXES: Final = ("ssl.key.", "ssl.keystore.", "ssl.truststore.")

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTHENTICATION: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST")
"""Errors of the TLS library for a first message that is not TLS."""
HANDSHAKE_STEPS_MAX: Final = 10
"""Maximum steps of each side in a handshake in memory. TLS 1.2 and 1.3 need at most three."""


@dataclass(frozen=True, slots=True)
class Stores:
    """Private key and certificates of a node, and the certificates that it trusts; None for those that are not set."""

    keys: KeyStore | None
    trusted: bytes | None

    @property
    def expires_ms(self) -> int | None:
        """The end of the validity of the node's certificate, in ms since 1970."""
        if self.keys is None:
            return None
        return int(load_pem_x509_certificate(self.keys.chain).not_valid_after_utc.timestamp() * 1000)

    @property
    def names(self) -> "Names | None":
        """The names in the node's certificate. Raise ConfigError if they are malformed, which OpenSSL permits."""
        if self.keys is None:
            return None
        try:
            return Names.of(load_pem_x509_certificate(self.keys.chain))
        except (ValueError, DuplicateExtension) as error:
            raise ConfigError(
                f"ssl.keystore: the names in the certificate cannot be read ({error}); issue it again"
            ) from None


@dataclass(frozen=True, slots=True)
class Names:
    """The subject of a certificate in the form of RFC 2253, and its host names and addresses."""

    subject: str
    hosts: frozenset[str]

    @classmethod
    def of(cls, certificate: Certificate) -> "Names":
        """Return the names in a certificate. Raise ValueError or DuplicateExtension if they are malformed."""
        try:
            hosts = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
        except ExtensionNotFound:
            hosts = SubjectAlternativeName([])
        subject = subject_name(certificate.public_bytes(Encoding.DER))
        return cls(subject, frozenset(str(host.value) for host in hosts))

    def check_replacement(self, new: "Names", config: Config) -> None:
        """Raise ConfigError if a certificate with the names `new` must not replace one with these, as in Kafka."""
        if not config.ssl_allow_dn_changes and new.subject.casefold() != self.subject.casefold():
            raise ConfigError(
                f"ssl.keystore: the new certificate has the subject {new.subject} instead of {self.subject}; set "
                "ssl.allow.dn.changes=true to permit it"
            )
        if not config.ssl_allow_san_changes and not self.hosts <= new.hosts:
            raise ConfigError(
                f"ssl.keystore: the new certificate lacks {', '.join(sorted(self.hosts - new.hosts))}; set "
                "ssl.allow.san.changes=true to permit it"
            )


def server_context(config: Config, client_authentication: str, stores: Stores) -> ssl.SSLContext:
    """Return the context of a listener. Raise ConfigError.

    `config` has the values of the listener. `client_authentication` is one of the values of ssl.client.auth.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _set_versions(context, config)
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    if stores.keys is None:
        raise ConfigError("ssl.keystore.location: not set; a listener with TLS needs a certificate and a private key")
    _load(context, stores.keys)
    if stores.trusted is not None:
        _trust(context, stores.trusted)
    elif client_authentication != "none":
        raise ConfigError(f"ssl.truststore.location: not set; ssl.client.auth={client_authentication} needs it")
    context.verify_mode = _CLIENT_AUTHENTICATION[client_authentication]
    return context


def client_context(config: Config, stores: Stores) -> ssl.SSLContext:
    """Return the context for connections to other nodes. Raise ConfigError.

    Without a truststore, the certificate authorities of the system are trusted, as in Kafka.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _set_versions(context, config)
    context.check_hostname = config.ssl_endpoint_identification_algorithm == "https"
    if stores.keys is not None:
        _load(context, stores.keys)
    if stores.trusted is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _trust(context, stores.trusted)
    return context


def verify_handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost") -> None:
    """Perform a handshake in memory. Raise ConfigError if one context refuses the other's certificate.

    The host name is not verified.
    """
    checks, client.check_hostname = client.check_hostname, False
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    client.check_hostname = checks
    for _ in range(HANDSHAKE_STEPS_MAX):
        waiting = False
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                waiting = True
            except ssl.SSLError as error:
                raise ConfigError(f"ssl.keystore: the node refuses its own certificate: {reason_of(error)}") from None
        if not waiting:
            return
    raise ConfigError("ssl.keystore: a handshake of the node with itself does not end")


def reason_of(error: ssl.SSLError) -> str:
    """Return the reason of a failure of TLS as one line, without the position in the source of the TLS library."""
    if error.reason in _NO_TLS:
        return "the other side does not use TLS; set security.protocol=SSL there"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verification failed: {error.verify_message}"
    return (error.reason or error.strerror or str(error)).replace("_", " ").lower()


def _set_versions(context: ssl.SSLContext, config: Config) -> None:
    """Set the versions of TLS and the cipher suites."""
    highest = _VERSIONS[config.ssl_protocol]
    versions = [_VERSIONS[name] for name in config.ssl_enabled_protocols if _VERSIONS[name] <= highest]
    if config.ssl_cipher_suites:
        try:
            versions = set_suites(context, config.ssl_cipher_suites, versions)
        except SuitesUnusable as error:
            raise ConfigError(str(error)) from None
    if not versions:
        raise ConfigError("ssl.enabled.protocols: no version is left; check ssl.protocol and ssl.cipher.suites")
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # each certificate in a truststore is trusted, as in Java


def files_of(config: Config) -> tuple[str, ...]:
    """Return the paths of the files with certificates and private keys."""
    return tuple(path for path in (config.ssl_keystore_location, config.ssl_truststore_location) if path is not None)


def load_stores(config: Config, read_file: ReadFile) -> Stores:
    """Return the private key with its certificates, and the trusted certificates. Raise ConfigError."""
    values = {}
    for name, prop in PROPERTIES.items():
        value = getattr(config, prop.attribute)
        if name.startswith(_STORE_PREFIXES) and value is not None:
            values[name] = value.value if isinstance(value, Password) else value
    try:
        return Stores(key_store(values, read_file), trust_store(values, read_file))
    except StoreUnusable as error:
        raise ConfigError(str(error)) from None


def _load(context: ssl.SSLContext, keys: KeyStore) -> None:
    """Load a private key and its certificates. Raise ConfigError."""
    with memory_file(keys.key + keys.chain) as path:
        try:
            context.load_cert_chain(path)
        except ssl.SSLError as error:
            raise ConfigError(f"ssl.keystore: the TLS library refuses the certificate: {reason_of(error)}") from None


def _trust(context: ssl.SSLContext, certificates: bytes) -> None:
    try:
        context.load_verify_locations(cadata=certificates.decode())
    except ssl.SSLError as error:
        raise ConfigError(f"ssl.truststore: the TLS library refuses the certificates: {reason_of(error)}") from None
