"""Options for TLS and SASL, with the names of Spark's own connector: `kafka.` and a property of Kafka's clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.client import InvalidArgument, Security
from odradek.client.security.names import SECURITY_PROPERTIES
from odradek.spark.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX: Final = "kafka."
SECURITY_NAMES: Final = tuple(sorted(PREFIX + name for name in SECURITY_PROPERTIES))
"""Supported options, in lower case."""


def security_of(given: Mapping[str, str]) -> Security:
    """Return the security of the options, whose names are in lower case. Files are read here, in the driver.

    Raise InvalidInput if an option is missing or invalid. The message contains no secret.
    """
    try:
        return Security.of({name.removeprefix(PREFIX): given[name] for name in SECURITY_NAMES if name in given})
    except InvalidArgument as error:
        raise InvalidInput(f"options {PREFIX}*: {error}") from None
