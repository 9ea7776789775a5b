"""Settings of a client: its name, its time limits, its security, and the bound of a response."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from odradek.client.network.retry import RetryPolicy
from odradek.client.security.security import Security

BROKER_TIMEOUT_MS: Final = 25_000
"""Time-out in requests for which a broker waits, in milliseconds.

It is below the default `request_timeout_s`, so that the error code of the broker arrives before the client closes the
connection.
"""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings that hold for all connections of a `Cluster`.

    Attributes:
        client_id: Name in quotas, metrics and logs of the broker.
        connect_timeout_s: Seconds for the TCP connection with TLS, and for the version agreement. A broker that does
            not respond must not delay the attempt at the next address for long.
        request_timeout_s: Seconds from sending a request to its response.
        response_bytes_max: Maximum size of a response in bytes. Memory is allocated as bytes arrive, not by the
            announced size.
        retry: The retry policy.
        security: TLS and SASL.
    """

    client_id: str = "odradek-client"
    connect_timeout_s: float = 5.0
    request_timeout_s: float = 30.0
    response_bytes_max: int = 2**28
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    security: Security = field(default_factory=Security)
