"""This node's own entry in the gossip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from odradek.cluster.membership.messages import UNKNOWN_INCARNATION, GossipEntry
from odradek.cluster.membership.transitions import State

COUNTER_MAX: Final = 2**32 - 1
"""Maximum of the refutation counter on the wire (u32)."""


@dataclass(slots=True)
class LocalMember:
    """The identity that this node's messages carry. `counter` increases with each refutation."""

    node_id: int
    incarnation: int
    counter: int = 0

    def refute(self, entry: GossipEntry) -> GossipEntry | None:
        """Return the refutation of `entry`, which is about this node. None: there is nothing to refute."""
        is_mine = entry.incarnation in {self.incarnation, UNKNOWN_INCARNATION}
        if not is_mine or entry.state is State.ALIVE or not self.counter <= entry.counter < COUNTER_MAX:
            return None
        self.counter = entry.counter + 1
        return GossipEntry(self.node_id, self.incarnation, self.counter, State.ALIVE)
