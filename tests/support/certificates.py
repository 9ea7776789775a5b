"""Certificates of tests: an authority that signs, with validity around a given time, and elliptic-curve keys."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Sequence

VALIDITY = timedelta(days=2)


@dataclass(frozen=True)
class Issued:
    """A certificate with its key and the certificates of its issuers."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    issuers: Sequence[x509.Certificate] = ()

    @property
    def pem(self) -> str:
        """The certificate in PEM."""
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def chain_pem(self) -> str:
        """The certificate and those of its issuers in PEM."""
        return self.pem + "".join(each.public_bytes(Encoding.PEM).decode() for each in self.issuers)

    def key_pem(self, password: str | None = None) -> str:
        """Return the private key in PEM."""
        encryption = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    def pkcs12(self, password: str) -> bytes:
        """Return a PKCS12 file with the key and all certificates, those of issuers in reverse order."""
        encryption = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(
            b"entry", self.key, self.certificate, list(reversed(self.issuers)), encryption
        )


def issue(
    name: str,
    issuer: Issued | None = None,
    *,
    hosts: Sequence[str] = (),
    now: datetime | None = None,
    ca: bool = False,
    curve: type[ec.EllipticCurve] = ec.SECP256R1,
) -> Issued:
    """Return a certificate for the common name `name`, signed by `issuer` or self-signed, and valid around `now`."""
    now = now or datetime.now(UTC)
    key = ec.generate_private_key(curve())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - VALIDITY)
        .not_valid_after(now + VALIDITY)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )
    if hosts:
        names = [_general_name(host) for host in hosts]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    certificate = builder.sign(key if issuer is None else issuer.key, hashes.SHA256())
    return Issued(certificate, key, () if issuer is None else (issuer.certificate, *issuer.issuers))


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
