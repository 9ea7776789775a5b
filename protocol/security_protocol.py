"""Security protocols of listeners: encryption by TLS and authentication by SASL, in each combination."""

from enum import IntEnum


class SecurityProtocol(IntEnum):
    """Kafka's security protocols, with their numbers in registrations of brokers and controllers."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def uses_tls(self) -> bool:
        """True if connections are encrypted by TLS."""
        return self in {SecurityProtocol.SSL, SecurityProtocol.SASL_SSL}

    @property
    def uses_sasl(self) -> bool:
        """True if clients authenticate by SASL."""
        return self in {SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL}
