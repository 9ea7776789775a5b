"""What is being told around: the latest of each node, told a number of times that grows with the logarithm of the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.cluster.membership.messages import RUMOURS_MAX

if TYPE_CHECKING:
    from odradek.cluster.membership.messages import Rumour

TELLINGS_PER_DOUBLING: Final = 3
"""A rumour is told so many times for each doubling of the cluster (SWIM, 4.1: lambda log n)."""


class Rumours:
    """At most one for each node: a later one about the same node takes the place of the earlier."""

    def __init__(self) -> None:
        """Nothing is told."""
        self._left: dict[int, tuple[Rumour, int]] = {}

    def __len__(self) -> int:
        """Rumours that are still told."""
        return len(self._left)

    def tell(self, rumour: Rumour, cluster_size: int) -> None:
        """Begin to tell `rumour` in a cluster of `cluster_size` nodes."""
        self._left[rumour.node_id] = (rumour, TELLINGS_PER_DOUBLING * cluster_size.bit_length())

    def forget(self, node_id: int) -> None:
        self._left.pop(node_id, None)

    def take(self, about: Rumour | None) -> tuple[Rumour, ...]:
        """For one datagram: `about`, which is not counted, then those that have been told least often."""
        first = () if about is None else (about,)
        chosen = sorted(
            (entry for entry in self._left.values() if about is None or entry[0].node_id != about.node_id),
            key=lambda entry: (-entry[1], entry[0].node_id),
        )[: RUMOURS_MAX - len(first)]
        for rumour, left in chosen:
            if left > 1:
                self._left[rumour.node_id] = (rumour, left - 1)
            else:
                del self._left[rumour.node_id]
        return (*first, *(rumour for rumour, _ in chosen))
