"""Reasons for which a broker loses its leaders."""

from enum import Enum


class Removal(Enum):
    """Reason for which a broker loses its leaders and its ISR memberships."""

    INACTIVE = "inactive"
    """Failure, shutdown or unregistration: the broker leaves all ISRs."""
    UNCLEAN = "unclean"
    """Possible loss of records: the broker leaves all ISRs and ELRs, until it has caught up again (KIP-966)."""
