"""Addresses of a cluster with the security of one user's connections to it: one value for all clients of the demo."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Self

from odradek.client import Cluster, InvalidArgument, Security, Settings
from odradek.client.security.credentials import UserPassword
from odradek.client.security.names import (
    HOST_VERIFICATION,
    JAAS_CONFIG,
    MECHANISM,
    REFUSED,
    SECURITY_PROPERTIES,
    SECURITY_PROTOCOL,
)
from odradek.client.security.security import read_properties
from odradek.protocol.tls_stores import TRUST_STORE_CERTIFICATES, TRUST_STORE_TYPE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TRUST_PREFIX: Final = "ssl.truststore."
SCRAM_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


@dataclass(frozen=True, slots=True)
class Access:
    """Addresses of some brokers, and Kafka's client properties for TLS and SASL. The representation has no secret."""

    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of_file(cls, bootstrap: str, path: Path | None) -> Self:
        """Return the access with the properties for TLS and SASL of a file. None: without properties.

        Raise InvalidArgument if the file is unreadable.
        """
        properties = {} if path is None else read_properties(path)
        return cls(
            bootstrap,
            {name: value for name, value in properties.items() if name in SECURITY_PROPERTIES or name in REFUSED},
        )

    @classmethod
    def decode(cls, text: str) -> Self:
        """Return the access of a text that `encode` returned."""
        return cls(**json.loads(text))

    def encode(self) -> str:
        """Return the access as one line of JSON. It has the secrets, so it is passed by standard input alone."""
        return json.dumps(asdict(self))

    @property
    def security(self) -> Security:
        """Return the security of Odradek's client. Raise InvalidArgument if a property is missing or invalid."""
        return Security.of(self.properties)

    @property
    def user(self) -> str | None:
        """Return the user of the connections, or None if they have no user name."""
        credentials = self.security.credentials
        return credentials.user if isinstance(credentials, UserPassword) else None

    def cluster(self, settings: Settings | None = None) -> Cluster:
        """Return connections of Odradek's client."""
        return Cluster(self.bootstrap, self.settings(settings))

    def settings(self, settings: Settings | None = None) -> Settings:
        """Return settings of Odradek's client, with this security."""
        return replace(settings or Settings(), security=self.security)

    def confluent(self) -> dict[str, Any]:
        """Return the settings of confluent-kafka.

        Raise InvalidArgument if the mechanism has no user name and password.
        """
        security = self.security
        settings: dict[str, Any] = {"bootstrap.servers": self.bootstrap}
        if security.protocol.name != "PLAINTEXT":
            settings[SECURITY_PROTOCOL] = security.protocol.name
        if security.tls is not None:
            settings[HOST_VERIFICATION] = "https" if security.tls.verifies_host else "none"
            if security.tls.trusted is not None:
                settings["ssl.ca.pem"] = security.tls.trusted.decode()
            if security.tls.key_store is not None:
                settings["ssl.certificate.pem"] = security.tls.key_store.chain.decode()
                settings["ssl.key.pem"] = security.tls.key_store.key.decode()
        if security.credentials is not None:
            credentials = security.credentials
            if not isinstance(credentials, UserPassword):
                raise InvalidArgument(f"{MECHANISM} is {credentials.mechanism}", "set it to PLAIN or SCRAM-SHA-256")
            settings[MECHANISM] = credentials.mechanism
            settings["sasl.username"], settings["sasl.password"] = credentials.user, credentials.password
        return settings

    def spark(self) -> dict[str, str]:
        """Return the options of Spark's connector, and of Odradek's source and sink."""
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            **{f"kafka.{name}": value for name, value in self.properties.items()},
        }

    def with_user(self, user: str, password: str) -> Access:
        """Return the access of another user. Raise InvalidArgument if the mechanism is none of SCRAM."""
        mechanism = self.properties.get(MECHANISM, "none")
        if mechanism not in SCRAM_MECHANISMS:
            raise InvalidArgument(f"{MECHANISM} is {mechanism}", f"set it to {' or '.join(SCRAM_MECHANISMS)}")
        jaas = f'{SCRAM_MODULE} required username="{user}" password="{password}";'
        return replace(self, properties={**self.properties, JAAS_CONFIG: jaas})

    def through(self, bootstrap: str, trusted: str | None) -> Access:
        """Return the access through a relay: its addresses, and the certificate of its listeners in PEM, if any."""
        if trusted is None:
            return replace(self, bootstrap=bootstrap)
        kept = {name: value for name, value in self.properties.items() if not name.startswith(TRUST_PREFIX)}
        return Access(bootstrap, {**kept, TRUST_STORE_TYPE: "PEM", TRUST_STORE_CERTIFICATES: trusted})

    def describe(self) -> str:
        """Return protocol and mechanism, for example "SASL_SSL with SCRAM-SHA-256"."""
        security = self.security
        mechanism = "" if security.credentials is None else f" with {security.credentials.mechanism}"
        return f"{security.protocol.name}{mechanism}"
