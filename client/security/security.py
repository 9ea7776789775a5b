"""Security of a client's connections, as an immutable value that is made from Kafka's client properties."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.client.errors import InvalidArgument
from odradek.client.security.names import (
    ENABLED_VERSIONS,
    HOST_VERIFICATION,
    MECHANISM,
    REFUSED,
    SECURITY_PROPERTIES,
    SECURITY_PROTOCOL,
    VERSION,
)
from odradek.client.security.tls import VERSIONS, Tls, context_of, reason_of
from odradek.protocol.java_properties import MalformedEscape, parse_properties
from odradek.protocol.java_text import trimmed
from odradek.protocol.security_protocol import SecurityProtocol
from odradek.protocol.tls_stores import StoreUnusable, key_store, trust_store
from odradek.protocol.tls_suites import CIPHER_SUITES, SuitesUnusable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from odradek.client.security.credentials import Credentials


@dataclass(frozen=True, slots=True)
class Security:
    """Security of all connections of a client. The representation contains no secret.

    Attributes:
        protocol: Encryption and authentication that the listeners of the brokers require.
        tls: Settings of TLS, if the protocol uses it.
        credentials: Credentials of SASL, if the protocol uses it.
    """

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    tls: Tls | None = None
    credentials: Credentials | None = None

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Security:
        """Return the security of Kafka's client properties. Other properties are ignored.

        The files that the properties name are read. A token file is read at each login.

        Raises:
            InvalidArgument: A property is missing, invalid or not supported. The message contains no secret.
        """
        given = {name: value for name, value in properties.items() if value or name == HOST_VERIFICATION}
        name = given.get(SECURITY_PROTOCOL, SecurityProtocol.PLAINTEXT.name).upper()
        if name not in SecurityProtocol.__members__:
            raise InvalidArgument(
                f"{SECURITY_PROTOCOL} is {name}, which does not exist",
                f"set it to {', '.join(SecurityProtocol.__members__)}",
            )
        protocol = SecurityProtocol[name]
        for prefix, used in (("ssl.", protocol.uses_tls), ("sasl.", protocol.uses_sasl)):
            for refused in sorted(given.keys() & REFUSED.keys()):
                if used and refused.startswith(prefix):
                    raise InvalidArgument(f"{refused} is not supported", REFUSED[refused])
        return cls(
            protocol,
            _tls_of(given, _read) if protocol.uses_tls else None,
            _credentials_of(given, _read) if protocol.uses_sasl else None,
        )


def read_security(path: Path | None, warn: Callable[[str], None]) -> Security:
    """Return the security of a file of client properties in Java's .properties format. None: that of no properties.

    Pass a warning to `warn` if the file has properties without effect. Raise InvalidArgument if the file is unreadable,
    or if a property is missing, invalid or not supported.
    """
    return Security.of(_properties_of(path, warn))


def read_security_of_logins(path: Path | None, warn: Callable[[str], None]) -> tuple[Security, str | None]:
    """Return the security of a file of client properties without credentials, and its SASL mechanism.

    It is for programs whose users log in with their own credentials. The mechanism is None if the file has none. See
    `read_security` for the arguments and the exception.
    """
    properties = _properties_of(path, warn)
    name = properties.get(SECURITY_PROTOCOL, "").upper()
    if name not in SecurityProtocol.__members__ or not SecurityProtocol[name].uses_sasl:
        return Security.of(properties), None
    protocol = SecurityProtocol[name]
    transport = SecurityProtocol.SSL if protocol.uses_tls else SecurityProtocol.PLAINTEXT
    security = Security.of({**properties, SECURITY_PROTOCOL: transport.name})
    return replace(security, protocol=protocol), properties.get(MECHANISM)


def _properties_of(path: Path | None, warn: Callable[[str], None]) -> Mapping[str, str]:
    """Return the properties of a file, and warn of those without effect. None: no properties."""
    if path is None:
        return {}
    properties = read_properties(path)
    if unused := sorted(properties.keys() - SECURITY_PROPERTIES - REFUSED.keys()):
        warn(f"warning: properties in {path} without effect: {', '.join(unused)}")
    return properties


def read_properties(path: Path) -> dict[str, str]:
    """Return the properties of a file in Java's .properties format, without blanks at the ends of values.

    Kafka's clients trim values, too. Raise InvalidArgument if the file is unreadable.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidArgument(
            f"{path} cannot be read ({error.strerror})", "name a file with client properties"
        ) from None
    except UnicodeDecodeError:
        raise InvalidArgument(f"{path} is not UTF-8 text", "name a file with client properties") from None
    try:
        return {name: trimmed(value) for _, name, value in parse_properties(text)}
    except MalformedEscape as error:
        raise InvalidArgument(f"{path} {error.problem}", error.remedy) from None


def _read(location: str) -> bytes:
    return Path(location).read_bytes()


def _credentials_of(given: Mapping[str, str], read: Callable[[str], bytes]) -> Credentials:
    from odradek.client.security.credentials import credentials_of

    return credentials_of(given, read)


def _tls_of(given: Mapping[str, str], read: Callable[[str], bytes]) -> Tls:
    algorithm = given.get(HOST_VERIFICATION, "https").strip().lower()
    if algorithm not in {"", "https"}:
        raise InvalidArgument(
            f"{HOST_VERIFICATION} is {algorithm}", "set it to https, or leave it empty to disable the verification"
        )
    try:
        trusted, keys = trust_store(given, read), key_store(given, read)
        tls = Tls(trusted, keys, algorithm == "https", _versions(given), _suites(given))
        context_of(tls)  # connections use the same one
    except (StoreUnusable, SuitesUnusable) as error:
        problem, _, remedy = str(error).rpartition("; ")
        raise InvalidArgument(problem or remedy, remedy if problem else "") from None
    except ssl.SSLError as error:
        problem = f"OpenSSL refuses the certificates ({reason_of(error)})"
        raise InvalidArgument(problem, "replace those of ssl.keystore.* or ssl.truststore.*") from None
    return tls


def _suites(given: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(suite for name in given.get(CIPHER_SUITES, "").split(",") if (suite := name.strip()))


def _versions(given: Mapping[str, str]) -> tuple[str, ...]:
    """Return the versions to offer, up to `ssl.protocol`, as in Kafka's clients."""
    newest = given.get(VERSION, "TLSv1.3")
    names = [name.strip() for name in given.get(ENABLED_VERSIONS, ",".join(VERSIONS)).split(",")]
    unknown = [name for name in (newest, *names) if name not in VERSIONS]
    if unknown:
        raise InvalidArgument(f"TLS version {unknown[0]!r} is not supported", f"use {' and '.join(VERSIONS)}")
    versions = tuple(name for name in VERSIONS if name in names and VERSIONS[name] <= VERSIONS[newest])
    if not versions:
        raise InvalidArgument(f"{ENABLED_VERSIONS} and {VERSION} have no version in common", "remove one of them")
    return versions
