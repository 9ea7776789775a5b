"""Settings of a console."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from odradek.client import RetryPolicy, Security
from odradek.client import Settings as ClientSettings
from odradek.client.security.credentials import PLAIN, SCRAM_256, SCRAM_512, UserPassword

CLIENT_ID: Final = "odradek-console"
"""Client id of the console in quotas, metrics and logs of brokers."""
MECHANISMS: Final = (SCRAM_512, SCRAM_256, PLAIN)
"""SASL mechanisms of the login form: those with a user and a password."""
CONNECT_TIMEOUT_S: Final = 2.0
REQUEST_TIMEOUT_S: Final = 5.0
"""Seconds for a response. A page shows the part that failed as an error, so it must not wait for long."""
RETRY: Final = RetryPolicy(deadline_s=1.0)
"""The next refresh of a page is the next attempt."""
RESPONSE_BYTES_MAX: Final = 64 * 2**20
"""Maximum size of a response of a broker, in bytes. Metadata of 100,000 partitions has about 8 MiB."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a console.

    Attributes:
        bootstrap: Addresses of some brokers, `host:port,...`.
        security: TLS and SASL of the connections. With SASL, the credentials are those of each session's login, and
            these are ignored.
        mechanism: SASL mechanism that the login form offers first.
        host: Address to listen on.
        port: Port to listen on. 0: any free port.
        allow_actions: Serve the routes that change the cluster.
        schema_registry: Address of a schema registry, for values in Avro. None: such values are shown as bytes.
        prometheus: Addresses of the metrics of brokers.
        allowed_hosts: Names, besides IP addresses and localhost, that the header Host may have.
    """

    bootstrap: str
    security: Security = field(default_factory=Security)
    mechanism: str = SCRAM_512
    host: str = "127.0.0.1"
    port: int = 8080
    allow_actions: bool = False
    schema_registry: str | None = None
    prometheus: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()

    @property
    def needs_login(self) -> bool:
        """Return True if each session logs in to the brokers with its own user."""
        return self.security.protocol.uses_sasl

    def client_settings(self, credentials: UserPassword | None) -> ClientSettings:
        """Return the client settings of a session with these credentials."""
        return ClientSettings(
            client_id=CLIENT_ID,
            connect_timeout_s=CONNECT_TIMEOUT_S,
            request_timeout_s=REQUEST_TIMEOUT_S,
            response_bytes_max=RESPONSE_BYTES_MAX,
            retry=RETRY,
            security=replace(self.security, credentials=credentials),
        )
