"""Member states that travel with pings and acknowledgments.

Each entry is sent a number of times that grows with the logarithm of the cluster size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.cluster.membership.messages import GOSSIP_ENTRIES_MAX

if TYPE_CHECKING:
    from odradek.cluster.membership.messages import GossipEntry

TRANSMISSIONS_PER_DOUBLING: Final = 3
"""Transmissions of one entry for each doubling of the cluster size (SWIM 4.1: lambda log n)."""


class Gossip:
    """The entries that this node still sends: at most one for each member, the latest."""

    def __init__(self) -> None:
        self._remaining: dict[int, tuple[GossipEntry, int]] = {}

    def __len__(self) -> int:
        """Return the number of entries that are still sent."""
        return len(self._remaining)

    def spread(self, entry: GossipEntry, cluster_size: int) -> None:
        """Start to send `entry`, in a cluster of `cluster_size` nodes.

        It replaces an earlier one about the same member.
        """
        self._remaining[entry.node_id] = (entry, TRANSMISSIONS_PER_DOUBLING * cluster_size.bit_length())

    def forget(self, node_id: int) -> None:
        self._remaining.pop(node_id, None)

    def take(self, first: GossipEntry | None) -> tuple[GossipEntry, ...]:
        """Return the entries of one datagram:

        `first`, which is not counted, then those with the fewest transmissions.
        """
        head = () if first is None else (first,)
        chosen = sorted(
            (each for each in self._remaining.values() if first is None or each[0].node_id != first.node_id),
            key=lambda each: (-each[1], each[0].node_id),
        )[: GOSSIP_ENTRIES_MAX - len(head)]
        for entry, remaining in chosen:
            if remaining > 1:
                self._remaining[entry.node_id] = (entry, remaining - 1)
            else:
                del self._remaining[entry.node_id]
        return (*head, *(entry for entry, _ in chosen))
