"""Certificate of a relay, which ends TLS between a client and its brokers."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from odradek.memory_files import memory_file

VALIDITY: Final = timedelta(days=7)
"""Validity of a certificate. The longest run of a demo takes hours."""
CLOCK_TOLERANCE: Final = timedelta(hours=1)
"""Time before the issue from which a certificate is valid, for clients whose clock is slow."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate that signs itself, so that its text is also what a client trusts. The key stays in memory."""

    trusted: str
    key: bytes = field(repr=False)

    def server_context(self) -> ssl.SSLContext:
        """Return the TLS context of a server with this certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with memory_file(self.key + self.trusted.encode()) as path:
            context.load_cert_chain(path)
        return context


def make_certificate(address: str) -> Certificate:
    """Return a new certificate for an IP address."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Odradek relay")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_TOLERANCE)
        .not_valid_after(now + VALIDITY)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Certificate(
        certificate.public_bytes(Encoding.PEM).decode(),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )
