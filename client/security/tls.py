"""TLS of connections: the context for a client, and the reason of a failed handshake with its remedy."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from odradek.client.errors import AuthenticationFailed, ClientError, ProtocolError
from odradek.memory_files import memory_file
from odradek.protocol.tls_suites import CIPHER_SUITES, SuitesUnusable, set_suites

if TYPE_CHECKING:
    from odradek.protocol.tls_stores import KeyStore

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
"""Supported versions, in ascending order."""
CONTEXTS_MAX: Final = 16
"""Maximum TLS contexts that a process remembers. A process has few clients with different settings."""

_NAME_MISMATCHES: Final = frozenset({62, 64})
"""OpenSSL's verification errors for a wrong host name and a wrong address."""
_UNKNOWN_ISSUERS: Final = frozenset({2, 18, 19, 20, 21})
"""OpenSSL's verification errors for a certificate that leads to no trusted one."""
_TIME_ERRORS: Final = {9: "is not valid yet", 10: "has expired"}
_NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"})
"""OpenSSL's reasons for bytes that are no TLS records."""
_CERTIFICATE_ALERTS: Final = (
    "BAD_CERTIFICATE", "CERTIFICATE_REQUIRED", "CERTIFICATE_UNKNOWN", "CERTIFICATE_EXPIRED", "HANDSHAKE_FAILURE",
    "UNKNOWN_CA", "UNSUPPORTED_CERTIFICATE", "ACCESS_DENIED",
)  # fmt: skip
"""Ends of OpenSSL's reasons for alerts of a broker that refuses the certificate of a client."""
REMEDY_PLAIN_LISTENER: Final = "if the listener has no TLS, set security.protocol=PLAINTEXT or SASL_PLAINTEXT"
REMEDY_CERTIFICATE: Final = "if the listener requires client certificates, set ssl.keystore.* to one that it trusts"


@dataclass(frozen=True, slots=True)
class Tls:
    """Settings of TLS.

    Attributes:
        trusted: Trusted certificates in PEM. None selects those of the operating system.
        key_store: Private key and certificate of the client, for listeners that require one.
        verifies_host: Require that the certificate of a broker is valid for the host name of the connection.
        versions: Names of the versions to offer.
        suites: IANA names of the cipher suites to offer. Empty: those of OpenSSL.
    """

    trusted: bytes | None = None
    key_store: KeyStore | None = None
    verifies_host: bool = True
    versions: tuple[str, ...] = tuple(VERSIONS)
    suites: tuple[str, ...] = ()


@lru_cache(maxsize=CONTEXTS_MAX)
def context_of(tls: Tls) -> ssl.SSLContext:
    """Return the context of a client with these settings. Raise SuitesUnusable."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    versions = [VERSIONS[name] for name in tls.versions]
    if tls.suites:
        versions = set_suites(context, tls.suites, versions)
    if not versions:
        raise SuitesUnusable(f"{CIPHER_SUITES}: no suite is one of {' or '.join(tls.versions)}; name one, or none")
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.check_hostname = tls.verifies_host
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as in Java, a trusted certificate needs no issuer
    if tls.trusted is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(cadata=tls.trusted.decode())
    if tls.key_store is not None:
        with memory_file(tls.key_store.key + tls.key_store.chain) as path:
            context.load_cert_chain(path)
    return context


def failure(error: ssl.SSLError, endpoint: str, host: str) -> ClientError:
    """Return the exception for a failed handshake with the broker at `endpoint`, or for an alert after it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _verification_failure(error, endpoint, host)
    reason = error.reason or ""
    if reason in _NO_TLS:
        return ProtocolError(f"the peer at {endpoint} does not speak TLS", REMEDY_PLAIN_LISTENER)
    text = reason_of(error)
    if reason.endswith(_CERTIFICATE_ALERTS):
        return AuthenticationFailed(
            f"the broker at {endpoint} refused the TLS handshake ({text})",
            REMEDY_CERTIFICATE,
        )
    return ProtocolError(f"the TLS handshake with {endpoint} failed ({text})")


def reason_of(error: ssl.SSLError) -> str:
    """Return the reason of OpenSSL as words."""
    return (error.reason or "").lower().replace("_", " ") or str(error)


def _verification_failure(error: ssl.SSLCertVerificationError, endpoint: str, host: str) -> AuthenticationFailed:
    subject = f"the certificate of the broker at {endpoint}"
    if error.verify_code in _NAME_MISMATCHES:
        return AuthenticationFailed(
            f"{subject} is not valid for {host!r}",
            "connect by a name in the certificate, or issue a certificate that has this name",
        )
    if error.verify_code in _UNKNOWN_ISSUERS:
        return AuthenticationFailed(
            f"{subject} is signed by an unknown authority",
            "set ssl.truststore.* to the certificate of the authority",
        )
    if error.verify_code in _TIME_ERRORS:
        return AuthenticationFailed(f"{subject} {_TIME_ERRORS[error.verify_code]}", "renew it, or correct the clock")
    return AuthenticationFailed(f"{subject} is not valid ({error.verify_message})")
