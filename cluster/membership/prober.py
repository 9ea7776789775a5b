"""The probes of the failure detector: pings, ping requests to other nodes, TCP probes, and acknowledgments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.cluster.membership.messages import Ack, Ping, PingRequest
from odradek.cluster.membership.relays import Relay, Relays
from odradek.cluster.membership.transitions import State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from odradek.cluster.membership.gossip import Gossip
    from odradek.cluster.membership.local_member import LocalMember
    from odradek.cluster.membership.members import Counters, Member, MembershipConfig
    from odradek.cluster.membership.messages import GossipEntry, Message
    from odradek.cluster.randomness import Randomness

FIRST_SEQUENCES: Final = 2**63
"""Number of possible first sequence numbers. They are u64 on the wire, so a process never reaches the maximum."""


class Prober:
    """Create messages and TCP probes, which the driver takes with the next Ready.

    Parameters `now` are in local time.
    """

    def __init__(
        self, local: LocalMember, gossip: Gossip, counters: Counters, rng: Randomness, config: MembershipConfig
    ) -> None:
        self._local = local
        self._gossip = gossip
        self._counters = counters
        self._rng = rng
        self._config = config
        self._round: list[int] = []
        """The members of the current round that have not been pinged yet."""
        self._relays = Relays()
        self._sequence = rng.randrange(FIRST_SEQUENCES)
        self._messages: list[Message] = []
        self._tcp_probes: list[int] = []

    def take(self) -> tuple[tuple[Message, ...], tuple[int, ...]]:
        """Return and forget (messages to send, node ids to probe by TCP)."""
        taken = tuple(self._messages), tuple(self._tcp_probes)
        self._messages = []
        self._tcp_probes = []
        return taken

    # ---- probes -----------------------------------------------------------------------------------------------------

    def ping_next(self, members: Mapping[int, Member], now: int) -> None:
        """Ping the next member of the round that has not failed. The order is random in each round."""
        for _ in range(2 * len(members)):
            if not self._round:
                self._round = list(members)
                self._rng.shuffle(self._round)
            member = members.get(self._round.pop())
            if member is not None and member.state is State.ALIVE:
                if member.silent_since is None:
                    member.indirect_probe_at = now + self._config.probe_timeout_ms
                self.ping(member, now)
                return

    def ping(self, member: Member, now: int) -> int:
        """Ping `member` and return the sequence number."""
        sequence = self._new_sequence(member)
        if member.silent_since is None:
            member.silent_since = now
        self._counters.probes += 1
        local = self._local
        self._messages.append(
            Ping(local.node_id, member.node_id, local.incarnation, local.counter, sequence, self._gossip_for(member))
        )
        return sequence

    def probe_indirectly(self, member: Member, members: Mapping[int, Member], now: int) -> None:
        """Request members that have not failed to ping `member`, and probe it by TCP."""
        helpers = [each.node_id for each in members.values() if each.state is State.ALIVE and each is not member]
        self._rng.shuffle(helpers)
        local = self._local
        for helper in helpers[: self._config.helpers]:
            sequence = self._new_sequence(member)
            self._counters.indirect_probes += 1
            self._messages.append(
                PingRequest(
                    local.node_id,
                    helper,
                    local.incarnation,
                    local.counter,
                    sequence,
                    member.node_id,
                    self._gossip_for(member),
                )
            )
        self.probe_by_tcp(member, now)

    def probe_by_tcp(self, member: Member, now: int) -> None:
        """Start a TCP probe, unless one is pending or has just ended."""
        if not member.tcp_probe_pending and now >= member.next_tcp_probe_at:
            member.tcp_probe_pending = True
            member.next_tcp_probe_at = now + self._config.probe_timeout_ms
            self._counters.tcp_probes += 1
            self._tcp_probes.append(member.node_id)

    def _new_sequence(self, member: Member) -> int:
        self._sequence += 1
        member.sequences.append(self._sequence)
        return self._sequence

    def _gossip_for(self, member: Member) -> tuple[GossipEntry, ...]:
        """Return gossip that includes the suspicion of `member`, so that the member can refute it."""
        return self._gossip.take(None if member.state is State.ALIVE else member.gossip_entry)

    def challenge(self, node_id: int) -> Ping:
        """Return a ping that is no evidence about the node's state: its acknowledgment verifies process and address."""
        self._sequence += 1
        local = self._local
        return Ping(local.node_id, node_id, local.incarnation, local.counter, self._sequence)

    # ---- acknowledgments --------------------------------------------------------------------------------------------

    def acknowledge(self, ping: Ping) -> None:
        """Acknowledge a ping of this node."""
        self._messages.append(self._ack(ping, self._gossip.take(None)))

    def acknowledge_alone(self, ping: Ping) -> None:
        """Acknowledge a ping of this node without gossip. Each entry of gossip is sent a limited number of times."""
        self._messages.append(self._ack(ping, ()))

    def _ack(self, ping: Ping, gossip: tuple[GossipEntry, ...]) -> Ack:
        me = self._local
        return Ack(
            me.node_id,
            ping.source,
            me.incarnation,
            me.counter,
            ping.sequence,
            me.node_id,
            me.incarnation,
            me.counter,
            gossip,
        )

    def ping_for(self, request: PingRequest, member: Member | None, now: int) -> None:
        """Ping `member` for the sender of `request`.

        Ignore the request if the member is unknown or too many are outstanding.
        """
        if member is None or self._relays.full:
            return
        until = now + self._config.suspicion_timeout_ms
        self._relays.add(self.ping(member, now), Relay(request.source, request.sequence, member.node_id, until))

    def relay(self, ack: Ack) -> None:
        """Relay the acknowledgment if another node has requested the ping."""
        relay = self._relays.take(ack.sequence, ack.subject)
        if relay is not None:
            local = self._local
            self._messages.append(
                Ack(
                    local.node_id,
                    relay.requester,
                    local.incarnation,
                    local.counter,
                    relay.sequence,
                    ack.subject,
                    ack.subject_incarnation,
                    ack.subject_counter,
                    self._gossip.take(None),
                )
            )

    def expire_relays(self, now: int) -> None:
        self._relays.expire(now)
