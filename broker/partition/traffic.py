"""What has gone through a partition here since this broker hosts it."""

from dataclasses import dataclass


@dataclass(slots=True)
class Traffic:
    """`bytes_in` and `records_in` were appended as the leader, `bytes_out` were read by consumers."""

    bytes_in: int = 0
    records_in: int = 0
    bytes_out: int = 0
