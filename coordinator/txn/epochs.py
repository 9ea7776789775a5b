"""Producer epochs: an int16 that only rises, and what happens when it cannot.

All arithmetic on epochs is here, so that a simulation can make them end early (by one name, EPOCH_MAX).
"""

from typing import Final

NO_EPOCH: Final = -1
EPOCH_MAX = 32_767
"""Never given to a client: reserved for the bump with which a broker ends what runs at the epoch before it."""


def last_client_epoch() -> int:
    """The highest epoch that a client can have."""
    return EPOCH_MAX - 1


def is_exhausted(epoch: int) -> bool:
    """No epoch is left for a client: it needs another producer id."""
    return epoch >= EPOCH_MAX - 1


def is_highest(epoch: int) -> bool:
    """Met only in logs in which a classic fence was the last bump."""
    return epoch >= EPOCH_MAX


def raised(epoch: int) -> int:
    """The next epoch; the highest one stays."""
    return min(epoch + 1, EPOCH_MAX)
