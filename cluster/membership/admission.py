"""Admission of datagrams: which of them are new, from a running process of their sender, and from its address.

The tag of a datagram shows that a node of the cluster made it, but not when. A recorded datagram can be sent again,
also after a restart of its sender or of its receiver. The receiver therefore applies these rules:

1. Each process numbers its datagrams, from a random 63-bit number on. The receiver accepts each number of a process
   once, if it is not more than WINDOW behind the highest one.
2. A process is verified when it acknowledges a ping of the receiver. The ping has a random 64-bit sequence number, so
   the acknowledgment is not a recording. Until then, its pings are acknowledged, and nothing else of it has an effect.
3. When another process of the same node is verified, datagrams of the former one are dropped.
4. A datagram must come from the registered address of its sender. A node with several addresses, or behind a
   translation of addresses, sends from others. With a cluster secret, the receiver pings such an address. It accepts
   the address when the acknowledgment comes from there.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from odradek.cluster.membership.messages import UNKNOWN_INCARNATION, Ack, Ping, Rejected
from odradek.frozen import frozen_dataclass
from odradek.runtime.clock import NEVER_MS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from odradek.cluster.membership.members import MemberSpec
    from odradek.cluster.membership.messages import Datagram, Message
    from odradek.cluster.randomness import Randomness

FIRST_NUMBERS: Final = 2**63
"""Number of possible first numbers of a process. They are u64 on the wire, so a process never reaches the maximum."""
WINDOW: Final = 1_024
"""Numbers below the highest one of a process that are still accepted. The network may reorder as many datagrams."""
SENT_MAX: Final = 1_024
"""Maximum pings and ping requests that are remembered. A node sends about 30 per second."""
ADDRESSES_MAX: Final = 4
"""Maximum further addresses per node. The oldest one is forgotten."""
ENDED_MAX: Final = 8
"""Maximum ended processes per node whose datagrams are counted as EARLIER. Those of others are UNVERIFIED."""


@frozen_dataclass(frozen=True, slots=True)
class Admitted:
    """Outcome of an admission. `rejected`: None if the datagram may take effect."""

    rejected: Rejected | None
    acknowledge_only: bool = False
    """True if the datagram is a ping of a process that is not verified: acknowledge it and ignore its gossip."""
    challenge: bool = False
    """True if the receiver should ping the source address."""


ACCEPTED: Final = Admitted(None)


@dataclass(slots=True)
class _Sender:
    """One other node: its verified process, and the numbers and addresses of it."""

    incarnation: int = UNKNOWN_INCARNATION
    highest: int = 0
    seen: int = 0
    """Bit i: number `highest` - i was received."""
    addresses: deque[Any] = field(default_factory=lambda: deque(maxlen=ADDRESSES_MAX))
    ended: deque[int] = field(default_factory=lambda: deque(maxlen=ENDED_MAX))
    challenged_ms: int = NEVER_MS

    def take(self, number: int) -> bool:
        """Mark a number as received. Return False if it was received before, or is below the window."""
        ahead = number - self.highest
        if ahead > 0:
            self.seen = (self.seen << min(ahead, WINDOW) | 1) & (1 << WINDOW) - 1
            self.highest = number
            return True
        bit = 1 << -ahead if -ahead < WINDOW else 0
        if not bit or self.seen & bit:
            return False
        self.seen |= bit
        return True

    def verify(self, incarnation: int, number: int) -> None:
        """Begin with another process. Its earlier datagrams were not checked, so they count as received."""
        if self.incarnation != UNKNOWN_INCARNATION:
            self.ended.append(self.incarnation)
        self.incarnation, self.highest, self.seen = incarnation, number, (1 << WINDOW) - 1
        self.addresses.clear()


class Admission:
    """Admission at one node. It keeps a bounded state per member."""

    def __init__(self, node_id: int, rng: Randomness, *, challenge_pause_ms: int, verifies_addresses: bool) -> None:
        """`challenge_pause_ms`: minimum time between two challenges of one node.

        `verifies_addresses`: True if unregistered addresses can be verified, which needs a cluster secret.
        """
        self._node_id = node_id
        self._number = rng.randrange(FIRST_NUMBERS)
        self._challenge_pause_ms = challenge_pause_ms
        self._verifies_addresses = verifies_addresses
        self._registered: dict[int, int] = {}
        self._senders: dict[int, _Sender] = {}
        self._sent: dict[int, tuple[int, Any]] = {}

    def next_number(self) -> int:
        """Return the number of the next datagram of this node."""
        self._number += 1
        return self._number

    def set_members(self, specs: Iterable[MemberSpec]) -> None:
        """Replace the members, and forget the nodes that are none."""
        self._registered = {spec.node_id: spec.incarnation for spec in specs}
        self._senders = {node_id: one for node_id, one in self._senders.items() if node_id in self._registered}

    def sent(self, message: Message, address: Any) -> None:
        """Remember the sequence number of a ping or ping request, and where it was sent."""
        if not isinstance(message, Ack):
            while len(self._sent) >= SENT_MAX:
                del self._sent[next(iter(self._sent))]
            self._sent[message.sequence] = message.target, address

    def admit(self, datagram: Datagram, source: Any, now_ms: int, *, from_registered: bool) -> Admitted:
        """Decide about a datagram with a valid tag. `from_registered`: its sender is registered at `source`."""
        message = datagram.message
        node_id, incarnation = message.source, message.incarnation
        if message.target != self._node_id or node_id == self._node_id:
            return Admitted(Rejected.MISDIRECTED)
        registered = self._registered.get(node_id)
        if registered is None:  # the metadata may not have the node yet
            return Admitted(None, True) if isinstance(message, Ping) else Admitted(Rejected.UNVERIFIED)
        sender = self._senders.setdefault(node_id, _Sender())
        if incarnation in sender.ended and incarnation != registered:
            return Admitted(Rejected.EARLIER)
        if not from_registered and not self._verifies_addresses:
            return Admitted(Rejected.ADDRESS)
        is_verified = incarnation == sender.incarnation
        if is_verified and (from_registered or source in sender.addresses):
            return ACCEPTED if sender.take(datagram.number) else Admitted(Rejected.REPLAYED)
        if self._is_response(message, source, from_registered=from_registered):
            if is_verified:
                if not sender.take(datagram.number):
                    return Admitted(Rejected.REPLAYED)
            elif from_registered or incarnation == registered:
                sender.verify(incarnation, datagram.number)
            else:  # a duplicate of the node id at another address must not replace the registered process
                return Admitted(Rejected.ADDRESS)
            if not from_registered:
                sender.addresses.append(source)
            return ACCEPTED
        challenge = now_ms - sender.challenged_ms >= self._challenge_pause_ms
        if challenge:
            sender.challenged_ms = now_ms
        if not from_registered:
            return Admitted(Rejected.ADDRESS, challenge=challenge)
        if isinstance(message, Ping):
            return Admitted(None, True, challenge)
        return Admitted(Rejected.UNVERIFIED, challenge=challenge)

    def _is_response(self, message: Message, source: Any, *, from_registered: bool) -> bool:
        """Return True if the message acknowledges a ping or ping request that this node sent to its source."""
        if not isinstance(message, Ack):
            return False
        target, address = self._sent.get(message.sequence, (None, None))
        return target == message.source and (from_registered or address == source)
