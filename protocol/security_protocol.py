"""Security protocols of listeners: encryption by TLS and authentication by SASL, in each combination."""

from enum import IntEnum
from typing import Final

# The properties are read with each request. A comparison of bits needs no look-up of the members.
_TLS_BIT: Final = 1
_SASL_BIT: Final = 2


class SecurityProtocol(IntEnum):
    """Kafka's security protocols, with their numbers in registrations of brokers and controllers."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def uses_tls(self) -> bool:
        """True if connections are encrypted by TLS."""
        return bool(self & _TLS_BIT)

    @property
    def uses_sasl(self) -> bool:
        """True if clients authenticate by SASL."""
        return bool(self & _SASL_BIT)
