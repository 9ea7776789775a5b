"""The failure detector: SWIM (Das, Gupta, Motivala 2002), with TCP evidence, as a value machine.

    step(message, now_ms)          receive a datagram               lost(node_id, now_ms)      a TCP connection was lost
    tick(now_ms)                   act on expired deadlines         tcp_probe_ended(node_id)   a TCP probe has ended
    take_ready() -> Ready          messages, TCP probes, changes

The core has no clock, network or randomness of its own. In each interval it pings one member; the order is random in
each round. A member that does not acknowledge is pinged through other members and probed by TCP. If all of that fails,
it is a suspect, and gossip carries the suspicion. A suspect is pinged in each interval; the ping contains the
suspicion, so that the member can refute it with a higher counter. A suspicion that is not refuted ends in a failure
declaration. A failed member is pinged once a second, so that its return is detected.

A failure declaration is about one incarnation: the process that registered with a broker epoch. An acknowledgment by
another process proves that the registered incarnation has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.cluster.membership.gossip import Gossip
from odradek.cluster.membership.local_member import LocalMember
from odradek.cluster.membership.local_time import Lateness, LocalTime
from odradek.cluster.membership.members import Change, Counters, Member, MembershipConfig, MemberSpec, MemberView, Ready
from odradek.cluster.membership.messages import UNKNOWN_INCARNATION, Ack, GossipEntry, Message, Ping, PingRequest
from odradek.cluster.membership.prober import Prober
from odradek.cluster.membership.transitions import TRANSITIONS, Event, State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from odradek.cluster.randomness import Randomness

DEFAULT_CONFIG: Final = MembershipConfig()


class MembershipCore:
    """The members as one node sees them. Variables `local` are local times."""

    def __init__(
        self,
        node_id: int,
        incarnation: int,
        *,
        rng: Randomness,
        last_contact_ms: Callable[[int], int],
        now_ms: int,
        config: MembershipConfig = DEFAULT_CONFIG,
    ) -> None:
        """Start without members.

        `incarnation`: 64 bits of this process's incarnation id. `last_contact_ms(node id)`: the monotonic time at which
        the last bytes arrived from it by TCP.
        """
        self.config = config
        self.counters = Counters()
        self._local = LocalMember(node_id, incarnation)
        self._last_contact_ms = last_contact_ms
        self._members: dict[int, Member] = {}
        self._next_round_at = now_ms
        self._time = LocalTime(2 * config.probe_timeout_ms)
        self._gossip = Gossip()
        self._prober = Prober(self._local, self._gossip, self.counters, rng, config)
        self._changes: list[Change] = []

    # ---- members ----------------------------------------------------------------------------------------------------

    @property
    def node_id(self) -> int:
        return self._local.node_id

    @property
    def counter(self) -> int:
        """The refutation counter of this node."""
        return self._local.counter

    def view(self) -> list[MemberView]:
        """Return the other nodes in the order of their ids."""
        return [member.view for member in self._members.values()]

    def set_members(self, specs: Iterable[MemberSpec], now_ms: int) -> None:
        """Replace the members of the cluster. A new incarnation of a node starts as ALIVE."""
        wanted = {spec.node_id: spec for spec in specs if spec.node_id != self.node_id}
        before = self._members
        self._members = {}
        if not before:
            self._next_round_at = self._time.at(now_ms)
        for node_id in sorted(wanted):
            spec = wanted[node_id]
            member = before.get(node_id)
            if member is None or member.incarnation != spec.incarnation:
                self._gossip.forget(node_id)
                member = Member(node_id, spec.broker_epoch, spec.incarnation, now_ms)
            member.broker_epoch = spec.broker_epoch
            self._members[node_id] = member
        for node_id in before:
            if node_id not in self._members:
                self._gossip.forget(node_id)

    # ---- input ------------------------------------------------------------------------------------------------------

    def acknowledge(self, ping: Ping, now_ms: int) -> None:
        """Acknowledge the ping of a process that is not verified, and learn nothing from it."""
        if ping.target == self.node_id != ping.source:
            self._probe_if_failed(ping.source, self._time.at(now_ms))
            self._prober.acknowledge_alone(ping)

    def challenge(self, node_id: int) -> Ping:
        """Return a ping whose acknowledgment verifies the process and the address of a node."""
        return self._prober.challenge(node_id)

    def step(self, message: Message, now_ms: int) -> None:
        """Receive one admitted message. Ignore a message for another node, or from this node."""
        if message.target != self.node_id or message.source == self.node_id:
            return
        local = self._time.at(now_ms)
        self._probe_if_failed(message.source, local)
        self._learn(GossipEntry(message.source, message.incarnation, message.counter, State.ALIVE), now_ms)
        for entry in message.gossip:
            self._learn(entry, now_ms)
        if isinstance(message, Ping):
            self._prober.acknowledge(message)
        elif isinstance(message, PingRequest):
            self._prober.ping_for(message, self._members.get(message.subject), local)
        else:
            self._on_ack(message, now_ms)

    def _probe_if_failed(self, node_id: int, local: int) -> None:
        sender = self._members.get(node_id)
        if sender is not None and sender.state is State.FAILED:
            sender.next_probe_at = min(sender.next_probe_at, local)

    def lost(self, node_id: int, now_ms: int, *, refused: bool = False) -> None:
        """Note that the node has closed, reset or refused a connection: its process may have ended."""
        member = self._members.get(node_id)
        if member is None or member.state is State.FAILED:
            return
        if refused:
            member.refused_ms = now_ms
        self._on(member, Event.CONNECTION_LOST, now_ms)

    def tcp_probe_ended(self, node_id: int) -> None:
        """Note that a TCP probe has ended. Its response sets `last_contact_ms`; a refusal was reported to `lost`."""
        member = self._members.get(node_id)
        if member is not None:
            member.tcp_probe_pending = False

    def tick(self, now_ms: int) -> None:
        """Act on all expired deadlines, unless this node itself is late."""
        if not self._members:
            return
        lateness = self._time.wake(self._first_deadline(), now_ms)
        if lateness is Lateness.LATE:
            self.counters.late_ticks += 1
            return
        if lateness is Lateness.STANDSTILL:
            self.counters.standstills += 1
            self._restart_probes(now_ms)
        local = self._time.at(now_ms)
        for member in self._members.values():
            self._check_deadlines(member, local, now_ms)
        if local >= self._next_round_at:
            self._next_round_at = local + self.config.probe_interval_ms
            self._prober.expire_relays(local)
            self._probe_round(local, now_ms)

    @property
    def next_deadline_ms(self) -> int | None:
        """The monotonic time of the next `tick`. None: there are no members."""
        return self._time.wake_up_ms(self._first_deadline()) if self._members else None

    def take_ready(self) -> Ready | None:
        """Return the output since the last call, or None."""
        messages, tcp_probes = self._prober.take()
        if not (messages or tcp_probes or self._changes):
            return None
        changes = tuple(self._changes)
        self._changes = []
        return Ready(messages, tcp_probes, changes)

    # ---- time -------------------------------------------------------------------------------------------------------

    def _first_deadline(self) -> int:
        first = self._next_round_at
        for member in self._members.values():
            first = min([first, *member.deadlines(self.config.probe_timeout_ms)])
        return first

    def _restart_probes(self, now_ms: int) -> None:
        """Forget all outstanding probes after a standstill of this node. Suspicions start again."""
        local = self._time.at(now_ms)
        for member in self._members.values():
            member.clear_evidence()
            if member.state is State.SUSPECT:
                self._start_suspicion(member, local, now_ms)

    def _check_deadlines(self, member: Member, local: int, now_ms: int) -> None:
        timeout_ms = self.config.probe_timeout_ms
        if member.indirect_probe_at is not None and local >= member.indirect_probe_at:
            member.indirect_probe_at = None
            member.suspect_at = local + timeout_ms
            self._prober.probe_indirectly(member, self._members, local)
        if member.suspect_at is not None and local >= member.suspect_at:
            member.suspect_at = None
            self._on(member, Event.NO_ACK, now_ms)
        not_listening_at = member.not_listening_at(timeout_ms)
        if not_listening_at is not None and local >= not_listening_at:
            assert member.refused_ms is not None
            if self._contact_since(member, member.refused_ms):
                member.refused_ms = None
            else:
                self._on(member, Event.NOT_LISTENING, now_ms)
        if member.dead_at is not None and local >= member.dead_at:
            contact = self._contact_since(member, member.suspected_ms)
            self._on(member, Event.TCP_CONTACT if contact else Event.SUSPICION_TIMEOUT, now_ms)

    def _contact_since(self, member: Member, since_ms: int) -> bool:
        return self._last_contact_ms(member.node_id) > since_ms

    # ---- probes -----------------------------------------------------------------------------------------------------

    def _probe_round(self, local: int, now_ms: int) -> None:
        """Probe the next member of the round, every suspect, and the failed members whose ping interval is over."""
        self._prober.ping_next(self._members, local)
        for member in self._members.values():
            if member.state is State.SUSPECT:
                self._prober.ping(member, local)
                if member.silent_since is not None and local - member.silent_since >= self.config.probe_timeout_ms:
                    self._prober.probe_indirectly(member, self._members, local)
            elif member.state is State.FAILED:
                self._probe_failed(member, local, now_ms)

    def _probe_failed(self, member: Member, local: int, now_ms: int) -> None:
        # Bytes that were unread when the failure was declared prove nothing. Later ones do.
        contact_from_ms = member.since_ms + self.config.suspicion_timeout_ms
        if not member.is_confirmed and self._contact_since(member, contact_from_ms):
            self._on(member, Event.TCP_CONTACT, now_ms)
        elif local >= member.next_probe_at:
            member.next_probe_at = local + self.config.dead_probe_interval_ms
            self._prober.ping(member, local)

    def _on_ack(self, ack: Ack, now_ms: int) -> None:
        self._prober.relay(ack)
        member = self._members.get(ack.subject)
        if member is None or ack.sequence not in member.sequences:
            return
        known = UNKNOWN_INCARNATION not in {member.incarnation, ack.subject_incarnation}
        if known and member.incarnation != ack.subject_incarnation:
            # The ping was sent after the registration. Another process has acknowledged it: that one has ended.
            if not member.is_confirmed:
                self._on(member, Event.REPLACED, now_ms)
            return
        self._learn(GossipEntry(ack.subject, member.incarnation, ack.subject_counter, State.ALIVE), now_ms)
        self._on(member, Event.ACKNOWLEDGED, now_ms)

    # ---- gossip -----------------------------------------------------------------------------------------------------

    def _learn(self, entry: GossipEntry, now_ms: int) -> None:
        """Apply SWIM's order: a higher counter wins; with equal counters, failed precedes suspect precedes alive."""
        if entry.node_id == self.node_id:
            self._refute(entry)
            return
        member = self._members.get(entry.node_id)
        if member is None or member.incarnation not in {entry.incarnation, UNKNOWN_INCARNATION}:
            return  # the entry is about another incarnation
        if entry.state is State.ALIVE:
            if entry.counter > member.counter:
                member.counter = entry.counter
                self._spread(entry)
                self._on(member, Event.REFUTED, now_ms)
        elif entry.counter >= member.counter:
            member.counter = entry.counter
            is_failure = entry.state is State.FAILED
            self._on(member, Event.FAILURE_RECEIVED if is_failure else Event.SUSPICION_RECEIVED, now_ms)

    def _refute(self, entry: GossipEntry) -> None:
        refutation = self._local.refute(entry)
        if refutation is not None:
            self.counters.refutations += 1
            self._spread(refutation)

    def _spread(self, entry: GossipEntry) -> None:
        self._gossip.spread(entry, len(self._members) + 1)

    # ---- states -----------------------------------------------------------------------------------------------------

    def _on(self, member: Member, event: Event, now_ms: int) -> None:
        """Carry out the transition of `member`, and its consequences."""
        local = self._time.at(now_ms)
        before = member.state
        member.state = TRANSITIONS.look_up(before, event)
        silent_ms = 0 if member.silent_since is None else local - member.silent_since
        if member.state is State.ALIVE:
            member.clear_evidence()
        elif member.state is State.SUSPECT:
            self._suspect(member, before, event, now_ms)
        elif before is not State.FAILED:
            self.counters.failure_declarations += 1
            member.clear_evidence()
            member.next_probe_at = local + self.config.dead_probe_interval_ms
        not_listening = event is Event.NOT_LISTENING and member.incarnation != UNKNOWN_INCARNATION
        is_proof = event is Event.REPLACED or not_listening
        member.is_confirmed = member.state is State.FAILED and (member.is_confirmed or is_proof)
        if member.state is before:
            return
        member.since_ms = now_ms
        if member.state is not State.ALIVE:
            self._spread(member.gossip_entry)
        self._changes.append(
            Change(member.node_id, member.broker_epoch, member.counter, before, member.state, event, silent_ms)
        )

    def _suspect(self, member: Member, before: State, event: Event, now_ms: int) -> None:
        local = self._time.at(now_ms)
        if before is not State.SUSPECT:
            self.counters.suspicions += 1
            self._start_suspicion(member, local, now_ms)
            if event is not Event.NO_ACK:  # after NO_ACK, pings are already outstanding
                self._prober.ping(member, local)
        if event in {Event.CONNECTION_LOST, Event.FAILURE_RECEIVED}:
            self._prober.probe_by_tcp(member, local)
        if event is Event.TCP_CONTACT:
            self.counters.vetoes += 1
            self._start_suspicion(member, local, now_ms)
        elif event is Event.FAILURE_RECEIVED:
            assert member.dead_at is not None
            member.dead_at = min(member.dead_at, local + self.config.suspicion_timeout_ms // 2)

    def _start_suspicion(self, member: Member, local: int, now_ms: int) -> None:
        member.indirect_probe_at = None
        member.suspect_at = None
        member.dead_at = local + self.config.suspicion_timeout_ms
        member.suspected_ms = now_ms
