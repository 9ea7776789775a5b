"""Arithmetic on producer epochs, which are int16 numbers that only rise.

All of it is in this module, so that a simulation can reach the last epoch early: it sets EPOCH_MAX.
"""

EPOCH_MAX = 32_767
"""Last epoch. No client gets it: it is reserved for the abort by the broker of a transaction with the epoch before."""


def last_client_epoch() -> int:
    """Return the highest epoch that a client can have."""
    return EPOCH_MAX - 1


def is_exhausted(epoch: int) -> bool:
    """Return True if no higher epoch is left for a client, so it needs a new producer id."""
    return epoch >= EPOCH_MAX - 1


def is_highest(epoch: int) -> bool:
    """Return True if the epoch cannot rise. Such an epoch comes from a classic abort by the broker."""
    return epoch >= EPOCH_MAX


def next_epoch(epoch: int) -> int:
    """Return the next epoch; EPOCH_MAX for EPOCH_MAX."""
    return min(epoch + 1, EPOCH_MAX)
