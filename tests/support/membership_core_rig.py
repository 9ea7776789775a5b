"""One membership core without a network. The test makes its received messages and reads the sent ones."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from odradek.cluster.membership.core import MembershipCore
from odradek.cluster.membership.members import Change, MemberSpec, Ready
from odradek.cluster.membership.messages import GossipEntry, Ping

if TYPE_CHECKING:
    from odradek.cluster.membership.transitions import State

INCARNATION: Final = 1_000


def specs(*node_ids: int) -> list[MemberSpec]:
    return [MemberSpec(node_id, 10 + node_id, INCARNATION + node_id) for node_id in node_ids]


class MembershipCoreRig:
    """Membership core of node 1 in a cluster with `others`."""

    def __init__(self, *others: int) -> None:
        self.now_ms = 5_000
        self.last_contacts: dict[int, int] = {}
        self.changes: list[Change] = []
        self.core = MembershipCore(
            1,
            INCARNATION + 1,
            rng=Random(7),
            last_contact_ms=lambda node: self.last_contacts.get(node, -(10**9)),
            now_ms=self.now_ms,
        )
        self.core.set_members(specs(1, *others), self.now_ms)

    def take(self) -> Ready:
        ready = self.core.take_ready() or Ready((), (), ())
        self.changes += ready.changes
        return ready

    def run(self, ms: int) -> list[Ready]:
        until_ms = self.now_ms + ms
        taken = []
        while (at := self.core.next_deadline_ms) is not None and at <= until_ms:
            self.now_ms = max(self.now_ms, at)
            self.core.tick(self.now_ms)
            taken.append(self.take())
        self.now_ms = until_ms
        return taken

    def receive_gossip(self, entry: GossipEntry, *, source: int = 2) -> Ready:
        self.core.step(Ping(source, 1, INCARNATION + source, 0, 99, (entry,)), self.now_ms)
        return self.take()

    def state(self, node_id: int) -> State:
        return next(member.state for member in self.core.view() if member.node_id == node_id)
