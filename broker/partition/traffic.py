"""Count the traffic of one hosted partition."""

from dataclasses import dataclass


@dataclass(slots=True)
class Traffic:
    """Bytes and records that passed through one partition replica since this broker opened it."""

    bytes_in: int = 0
    """Bytes appended while this broker was the leader."""
    records_in: int = 0
    """Records appended while this broker was the leader."""
    bytes_out: int = 0
    """Bytes read by consumers; fetches of followers do not count."""
