"""Certificate authority of a local cluster: certificates of its brokers and of its users, in the cluster's directory.

- DIR/certificates/authority.pem: certificate of the authority, for the trust stores of clients.
- DIR/certificates/authority.key: private key of the authority.
- DIR/certificates/broker-1.pem, user-alice.pem: private key, certificate.

Only the user of this process can read the directory. All functions take the time as an argument.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from odradek.private_files import make_private_directory, replace_private

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from pathlib import Path

AUTHORITY_VALIDITY: Final = timedelta(days=3_650)
"""Validity of the authority. Clients trust its certificate, so that its renewal changes their trust stores."""
CERTIFICATE_VALIDITY: Final = timedelta(days=397)
"""Validity of other certificates. Some TLS libraries refuse a server certificate that is valid for longer."""
RENEWAL_BEFORE_EXPIRY: Final = timedelta(days=30)
"""Remaining validity at which a start of the cluster renews a certificate."""
CLOCK_TOLERANCE: Final = timedelta(hours=1)
"""Time before the issue from which a certificate is valid, for clients whose clock is slow."""
LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1")
"""Names and addresses of a broker for clients on the same machine."""
AUTHORITY_NAME: Final = "Odradek local authority"


@dataclass(frozen=True)
class Authority:
    """Certificate authority with its files in `directory`."""

    directory: Path
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def in_directory(cls, directory: Path, now: datetime) -> Authority:
        """Return the authority of a directory. Create it if there is none, and renew it before it expires.

        A renewed certificate has the same key, so that certificates that it signed before stay valid.
        """
        make_private_directory(directory)
        key_file, certificate_file = directory / "authority.key", directory / "authority.pem"
        key = _read_key(key_file)
        if key is None:
            key = ec.generate_private_key(ec.SECP256R1())
            replace_private(key_file, _key_pem(key))
            certificate_file.unlink(missing_ok=True)
        certificate = _read_certificate(certificate_file)
        if certificate is None or _expires_soon(certificate, now) or not _belongs(certificate, key):
            certificate = _authority_certificate(key, now)
            replace_private(certificate_file, certificate.public_bytes(Encoding.PEM).decode())
        return cls(directory, certificate, key)

    @property
    def certificate_file(self) -> Path:
        """File with the certificate of the authority."""
        return self.directory / "authority.pem"

    def broker(self, node_id: int, hosts: Iterable[str], now: datetime) -> Path:
        """Return the file with key and certificate of a broker, for `hosts` and the local names.

        Make the file if it does not exist, its certificate expires soon, or the names have changed.
        """
        names = tuple(dict.fromkeys((*LOCAL_NAMES, *map(_canonical, hosts))))
        # A broker is the client of other brokers, too.
        usages = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
        return self._issued(f"broker-{node_id}", f"broker-{node_id}", names, usages, now)

    def user(self, name: str, now: datetime) -> Path:
        """Return the file with key and certificate of a user. Make it if it does not exist or expires soon."""
        return self._issued(f"user-{name}", name, (), (ExtendedKeyUsageOID.CLIENT_AUTH,), now)

    def _issued(
        self, file: str, name: str, hosts: tuple[str, ...], usages: tuple[x509.ObjectIdentifier, ...], now: datetime
    ) -> Path:
        path = self.directory / f"{file}.pem"
        certificate, key = _read_certificate(path), _read_key(path)
        if certificate is None or key is None or not self._is_usable(certificate, key, hosts, now):
            key = ec.generate_private_key(ec.SECP256R1())
            builder = _builder(name, self.certificate.subject, key, now, CERTIFICATE_VALIDITY)
            builder = (
                builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
                .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
                .add_extension(
                    x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False
                )
            )
            if hosts:
                names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
                builder = builder.add_extension(names, critical=False)
            certificate = builder.sign(self.key, hashes.SHA256())
            replace_private(path, _key_pem(key) + certificate.public_bytes(Encoding.PEM).decode())
        return path

    def _is_usable(
        self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey, hosts: tuple[str, ...], now: datetime
    ) -> bool:
        """Return True if a certificate is of this authority, for these hosts, and does not expire soon."""
        try:
            certificate.verify_directly_issued_by(self.certificate)
        except (ValueError, TypeError, InvalidSignature):
            return False
        return not _expires_soon(certificate, now) and _belongs(certificate, key) and _hosts(certificate) == set(hosts)


def _authority_certificate(key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, AUTHORITY_NAME)])
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        _builder(AUTHORITY_NAME, subject, key, now, AUTHORITY_VALIDITY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )


def _builder(
    name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, validity: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_TOLERANCE)
        .not_valid_after(now + validity)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _canonical(host: str) -> str:
    """Return an address in its usual form, and a name unchanged."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host


def _hosts(certificate: x509.Certificate) -> set[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {str(each) for kind in (x509.DNSName, x509.IPAddress) for each in names.get_values_for_type(kind)}


def _expires_soon(certificate: x509.Certificate, now: datetime) -> bool:
    """Return True if a certificate expires soon, or is not valid yet because the clock was set back."""
    return certificate.not_valid_after_utc - now < RENEWAL_BEFORE_EXPIRY or certificate.not_valid_before_utc > now


def _belongs(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> bool:
    encoding, form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    return certificate.public_key().public_bytes(encoding, form) == key.public_key().public_bytes(encoding, form)


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey | None:
    """Return the private key in a file, or None if the file does not exist or has none."""
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except (FileNotFoundError, ValueError):
        return None
    return key if isinstance(key, ec.EllipticCurvePrivateKey) else None


def _read_certificate(path: Path) -> x509.Certificate | None:
    """Return the certificate in a file, or None if the file does not exist or has none."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
