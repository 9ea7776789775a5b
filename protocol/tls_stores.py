"""Key stores and trust stores of TLS, from the values of Kafka's properties to PEM texts.

Clients and brokers have the same properties. The caller passes a function that reads a file, so that this module has no
input or output. Certificates leave as PEM, because Python's `ssl` module reads this format alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.hazmat.primitives.serialization import pkcs12
    from cryptography.x509 import Certificate

KEY_STORE_TYPE: Final = "ssl.keystore.type"
KEY_STORE_LOCATION: Final = "ssl.keystore.location"
KEY_STORE_PASSWORD: Final = "ssl.keystore.password"  # noqa: S105  the name of a property
KEY_STORE_CHAIN: Final = "ssl.keystore.certificate.chain"
KEY_STORE_KEY: Final = "ssl.keystore.key"
KEY_PASSWORD: Final = "ssl.key.password"  # noqa: S105  the name of a property
TRUST_STORE_TYPE: Final = "ssl.truststore.type"
TRUST_STORE_LOCATION: Final = "ssl.truststore.location"
TRUST_STORE_PASSWORD: Final = "ssl.truststore.password"  # noqa: S105  the name of a property
TRUST_STORE_CERTIFICATES: Final = "ssl.truststore.certificates"

PEM, PKCS12, JKS = "PEM", "PKCS12", "JKS"
TYPES: Final = (PEM, PKCS12, JKS)
"""Accepted types. JKS is Kafka's default. Java reads PKCS12 files under this type, too, and so does this module."""
JKS_MAGIC: Final = bytes.fromhex("feedfeed")
CERTIFICATE_PATTERN: Final = re.compile(rb"-----BEGIN ((?:X509 )?CERTIFICATE)-----.+?-----END \1-----", re.DOTALL)
KEY_PATTERN: Final = re.compile(rb"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.+?-----END \1-----", re.DOTALL)
CERTIFICATES_MAX: Final = 1_000
"""Maximum certificates of one store. The trust store of a Java installation has about 150."""


class StoreUnusable(ValueError):
    """A store cannot be used. The message names the property, the problem and the remedy, and contains no secret."""


@dataclass(frozen=True, slots=True)
class KeyStore:
    """Private key and certificate chain of one process, in PEM.

    Attributes:
        chain: Certificates; the certificate of the key is the first.
        key: Private key in PKCS #8 without encryption. It does not appear in the representation.
    """

    chain: bytes
    key: bytes = field(repr=False)


def key_store(values: Mapping[str, str], read: Callable[[str], bytes]) -> KeyStore | None:
    """Return the key store of the properties `ssl.keystore.*`, or None if none is set.

    `values` has the properties that are set. `read` returns the content of a file, or raises OSError. Raise
    StoreUnusable if a value is invalid or contradicts another.
    """
    kind = _type_of(values, KEY_STORE_TYPE)
    location, chain, key = values.get(KEY_STORE_LOCATION), values.get(KEY_STORE_CHAIN), values.get(KEY_STORE_KEY)
    if chain is None and key is None and location is None:
        _refuse(values, KEY_STORE_PASSWORD, f"without {KEY_STORE_LOCATION}")
        return None
    if chain is not None or key is not None:
        _require_inline(values, kind, KEY_STORE_TYPE, KEY_STORE_LOCATION, KEY_STORE_PASSWORD)
        if key is None or chain is None:
            missing, present = (KEY_STORE_KEY, KEY_STORE_CHAIN) if key is None else (KEY_STORE_CHAIN, KEY_STORE_KEY)
            raise StoreUnusable(f"{missing} is not set, but {present} is; set both or neither")
        certificates = _certificates(KEY_STORE_CHAIN, chain.encode())
        return _pem_key_store(KEY_STORE_KEY, certificates, key.encode(), values.get(KEY_PASSWORD))
    assert location is not None
    content = _read(KEY_STORE_LOCATION, location, read)
    if kind == PEM:
        _refuse(values, KEY_STORE_PASSWORD, f"with {KEY_STORE_TYPE}=PEM; a PEM file has {KEY_PASSWORD} only")
        name = f"{KEY_STORE_LOCATION}: {location}"
        return _pem_key_store(name, _certificates(name, content), content, values.get(KEY_PASSWORD))
    password = values.get(KEY_STORE_PASSWORD)
    if password is None:
        raise StoreUnusable(f"{KEY_STORE_PASSWORD} is not set, but {KEY_STORE_LOCATION} is; set the password")
    store = _pkcs12(KEY_STORE_LOCATION, location, content, password)
    if store.key is None or store.cert is None:
        raise StoreUnusable(
            f"{KEY_STORE_LOCATION}: {location} has no private key with a certificate; export an entry with its key"
        )
    others = [entry.certificate for entry in store.additional_certs]
    return _checked(
        KEY_STORE_LOCATION,
        _chain_of(store.cert.certificate, others),
        store.key,  # the file has no order of its own
    )


def trust_store(values: Mapping[str, str], read: Callable[[str], bytes]) -> bytes | None:
    """Return the trusted certificates of the properties `ssl.truststore.*` in PEM, or None if none is set.

    `values` has the properties that are set. `read` returns the content of a file, or raises OSError. Raise
    StoreUnusable if a value is invalid or contradicts another.
    """
    kind = _type_of(values, TRUST_STORE_TYPE)
    location, inline = values.get(TRUST_STORE_LOCATION), values.get(TRUST_STORE_CERTIFICATES)
    if inline is not None:
        _require_inline(values, kind, TRUST_STORE_TYPE, TRUST_STORE_LOCATION, TRUST_STORE_PASSWORD)
        return _pem(_certificates(TRUST_STORE_CERTIFICATES, inline.encode()))
    if location is None:
        _refuse(values, TRUST_STORE_PASSWORD, f"without {TRUST_STORE_LOCATION}")
        return None
    content = _read(TRUST_STORE_LOCATION, location, read)
    if kind == PEM:
        _refuse(values, TRUST_STORE_PASSWORD, f"with {TRUST_STORE_TYPE}=PEM; certificates have no password")
        return _pem(_certificates(f"{TRUST_STORE_LOCATION}: {location}", content))
    store = _pkcs12(TRUST_STORE_LOCATION, location, content, values.get(TRUST_STORE_PASSWORD))
    entries = [*([] if store.cert is None else [store.cert]), *store.additional_certs]
    if not entries:
        raise StoreUnusable(f"{TRUST_STORE_LOCATION}: {location} has no certificate; import the certificate authority")
    return _pem([entry.certificate for entry in entries])


def _type_of(values: Mapping[str, str], name: str) -> str:
    kind = values.get(name, JKS).upper()
    if kind not in TYPES:
        raise StoreUnusable(f"{name}={values[name]} is unknown; set it to PEM or PKCS12")
    return kind


def _require_inline(values: Mapping[str, str], kind: str, type_name: str, location: str, password: str) -> None:
    if kind != PEM:
        raise StoreUnusable(f"{type_name} is {kind}, but a property has PEM text; set {type_name}=PEM")
    _refuse(values, location, "with PEM text in another property; remove one of them")
    _refuse(values, password, f"with {type_name}=PEM; remove it")


def _refuse(values: Mapping[str, str], name: str, why: str) -> None:
    if name in values:
        raise StoreUnusable(f"{name} cannot be set {why}")


def _read(name: str, location: str, read: Callable[[str], bytes]) -> bytes:
    try:
        return read(location)
    except OSError as error:
        raise StoreUnusable(f"{name}: {location} cannot be read ({error.strerror or error}); check the path") from error


def _certificates(name: str, content: bytes) -> list[Certificate]:
    from cryptography import x509

    texts = [match[0] for match in CERTIFICATE_PATTERN.finditer(content)]
    if not texts:
        kind = "a Java key store; set its type to PKCS12" if content.startswith((JKS_MAGIC, b"\x30")) else "no PEM text"
        raise StoreUnusable(f"{name} has no certificate between BEGIN CERTIFICATE and END CERTIFICATE: it is {kind}")
    if len(texts) > CERTIFICATES_MAX:
        raise StoreUnusable(f"{name} has {len(texts)} certificates; at most {CERTIFICATES_MAX} are possible")
    try:
        return [x509.load_pem_x509_certificate(text) for text in texts]
    except ValueError as error:
        raise StoreUnusable(f"{name} has an invalid certificate ({error}); export it again") from error


def _pem_key_store(name: str, chain: list[Certificate], content: bytes, password: str | None) -> KeyStore:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    found = KEY_PATTERN.search(content)
    if found is None:
        raise StoreUnusable(f"{name} has no private key; append it between BEGIN PRIVATE KEY and END PRIVATE KEY")
    text = found[0]
    encrypted = found[1] == b"ENCRYPTED PRIVATE KEY" or b"\nProc-Type: 4,ENCRYPTED" in text
    if encrypted and password is None:
        raise StoreUnusable(f"{name}: the private key is encrypted; set {KEY_PASSWORD}")
    try:
        key = load_pem_private_key(text, password.encode() if encrypted and password is not None else None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        if encrypted:
            raise StoreUnusable(f"{name}: the private key cannot be decrypted; check {KEY_PASSWORD}") from None
        raise StoreUnusable(f"{name}: the private key is invalid or of an unknown type; export it again") from error
    return _checked(name, chain, key)


def _pkcs12(name: str, location: str, content: bytes, password: str | None) -> pkcs12.PKCS12KeyAndCertificates:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import pkcs12

    if content.startswith(JKS_MAGIC):
        raise StoreUnusable(
            f"{name}: {location} has the format JKS, which only Java reads; convert it with: keytool -importkeystore "
            f"-srckeystore {location} -destkeystore {location}.p12 -deststoretype PKCS12"
        )
    if content.lstrip().startswith(b"-----BEGIN"):
        raise StoreUnusable(f"{name}: {location} has the format PEM; set {name.replace('location', 'type')}=PEM")
    try:
        return pkcs12.load_pkcs12(content, None if password is None else password.encode())
    except (ValueError, TypeError, UnsupportedAlgorithm):
        password_name = name.replace("location", "password")
        raise StoreUnusable(
            f"{name}: {location} cannot be opened; check {password_name}, and that its format is PKCS12"
        ) from None


def _chain_of(leaf: Certificate, others: Sequence[Certificate]) -> list[Certificate]:
    """Return the certificates from the leaf to the last issuer that the store has."""
    by_subject = {certificate.subject: certificate for certificate in others}
    chain = [leaf]
    while (issuer := by_subject.pop(chain[-1].issuer, None)) is not None:
        chain.append(issuer)
    return chain


def _checked(name: str, chain: list[Certificate], key: PrivateKeyTypes) -> KeyStore:
    """Return the key store. Raise StoreUnusable if the key does not belong to the first certificate."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    try:
        certified = chain[0].public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    except (ValueError, UnsupportedAlgorithm):
        certified = b""  # a key of an unknown type
    if public != certified:
        raise StoreUnusable(
            f"{name}: the private key does not belong to the first certificate; put the certificate of the key first"
        )
    return KeyStore(_pem(chain), key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def _pem(certificates: Sequence[Certificate]) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)
