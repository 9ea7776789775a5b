"""Logs that an audit can read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from odradek.pipeline.audit.evidence import LogRange, PartitionScan

Listed = dict[str, Any]
"""A partition and how a task reads it: `topic`, `partition`, and values of the source. JSON can represent them."""


class Source(Protocol):
    """Logs of a cluster. The driver lists the partitions, and tasks on any host read them."""

    def partitions(self) -> Sequence[Listed]:
        """Return all partitions."""
        ...

    @property
    def scan(self) -> Callable[[Listed], tuple[PartitionScan, LogRange]]:
        """Function that reads one partition. It is serialized for the tasks, with what it needs of the source."""
        ...
