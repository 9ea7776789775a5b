"""Failure detection as SWIM does it (Das, Gupta, Motivala 2002, with Lifeguard's care for the detector's own health): a value
machine without clock, network or randomness of its own.

    step(message, now_ms)          a datagram has come              lost(node_id, now_ms)      a TCP connection was reset or ended
    tick(now_ms)                   time has passed                  knocked(node_id, ...)      the answer to a knock
    take_ready() -> Ready          what is to be sent, asked and told

Each node pings one other each interval, in an order drawn anew each round. Who does not answer is pinged by others, too, and
asked by TCP; if all that brings nothing it is a suspect, which everybody is told. A suspect is pinged each interval, and every
ping says what it is suspected of, so that an answer refutes it with a higher counter. A suspicion that nothing ends in its time
is a verdict. Dead nodes are pinged slowly, so that they come back by themselves.

A verdict is about one life: the process that registered under a broker epoch. An answer from another process in its place
proves that life over at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.cluster.membership.gossip import Rumours
from odradek.cluster.membership.members import Change, Counters, Member, MembershipConfig, MemberSpec, MemberView, Ready
from odradek.cluster.membership.messages import UNKNOWN_LIFE, Ack, Message, Ping, PingRequest, Rumour
from odradek.cluster.membership.own_time import Lateness, OwnTime
from odradek.cluster.membership.relays import Relay, Relays
from odradek.cluster.membership.transitions import TRANSITIONS, Event, State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from odradek.cluster.randomness import Randomness

COUNTER_MAX: Final = 2**32 - 1
SEQUENCES: Final = 2**32
DEFAULT_CONFIG: Final = MembershipConfig()


class MembershipCore:
    """The view of one node. Attributes without underscore may be read by anybody."""

    def __init__(
        self,
        node_id: int,
        life: int,
        *,
        rng: Randomness,
        heard_ms: Callable[[int], int],
        now_ms: int,
        config: MembershipConfig = DEFAULT_CONFIG,
    ) -> None:
        """`life`: 64 bits of this process's incarnation id. `heard_ms(node id)`: when it was last heard by TCP."""
        self.node_id = node_id
        self.life = life
        self.counter = 0
        self.config = config
        self.counters = Counters()
        self._rng = rng
        self._heard_ms = heard_ms
        self._members: dict[int, Member] = {}
        self._round: list[int] = []
        self._next_round_at = now_ms
        self._time = OwnTime(2 * config.probe_timeout_ms)
        self._rumours = Rumours()
        self._relays = Relays()
        self._sequence = rng.randrange(SEQUENCES)
        self._messages: list[Message] = []
        self._knocks: list[int] = []
        self._changes: list[Change] = []

    # ---- what is known ----------------------------------------------------------------------------------------------

    def view(self) -> list[MemberView]:
        """The other nodes, in order of their id."""
        return [member.view for member in self._members.values()]

    def set_members(self, specs: Iterable[MemberSpec], now_ms: int) -> None:
        """Who belongs to the cluster. A new life of a node begins with a clean slate."""
        wanted = {spec.node_id: spec for spec in specs if spec.node_id != self.node_id}
        before, self._members = self._members, {}
        if not before:
            self._next_round_at = self._time.at(now_ms)
        for node_id in sorted(wanted):
            spec = wanted[node_id]
            member = before.get(node_id)
            if member is None or member.life != spec.life:
                self._rumours.forget(node_id)
                member = Member(node_id, spec.broker_epoch, spec.life, now_ms)
            member.broker_epoch = spec.broker_epoch
            self._members[node_id] = member
        for node_id in before:
            if node_id not in self._members:
                self._rumours.forget(node_id)

    # ---- input ------------------------------------------------------------------------------------------------------

    def step(self, message: Message, now_ms: int) -> None:
        """Take one authenticated message. What is not for this node, or from it, is nothing."""
        if message.target != self.node_id or message.source == self.node_id:
            return
        own = self._time.at(now_ms)
        sender = self._members.get(message.source)
        if sender is not None and sender.state is State.DEAD:
            sender.next_probe_at = min(sender.next_probe_at, own)
        self._learn(Rumour(message.source, message.life, message.counter, State.ALIVE), now_ms)
        for rumour in message.rumours:
            self._learn(rumour, now_ms)
        if isinstance(message, Ping):
            self._answer(message.source, message.sequence, self.node_id, self.life, self.counter)
        elif isinstance(message, PingRequest):
            self._help(message, own)
        else:
            self._on_ack(message, now_ms)

    def lost(self, node_id: int, now_ms: int, *, refused: bool = False) -> None:
        """A connection to the node was ended by it, reset, or refused: if the process is gone, that is how it shows first."""
        member = self._members.get(node_id)
        if member is None or member.state is State.DEAD:
            return
        if refused:
            member.refused_ms = now_ms
        self._on(member, Event.LOST, now_ms)

    def knocked(self, node_id: int) -> None:
        """A knock has ended, in whatever way: an answer shows in `heard_ms`, a refusal in `lost`."""
        member = self._members.get(node_id)
        if member is not None:
            member.knocking = False

    def tick(self, now_ms: int) -> None:
        """Act on every deadline that has passed, unless this node itself was late."""
        if not self._members:
            return
        lateness = self._time.wake(self._first_deadline(), now_ms)
        if lateness is Lateness.LATE:
            self.counters.late_ticks += 1
            return
        if lateness is Lateness.STANDSTILL:
            self.counters.standstills += 1
            self._forget(now_ms)
        own = self._time.at(now_ms)
        for member in self._members.values():
            self._judge(member, own, now_ms)
        if own >= self._next_round_at:
            self._next_round_at = own + self.config.probe_interval_ms
            self._relays.expire(own)
            self._probe_round(own, now_ms)

    @property
    def next_deadline_ms(self) -> int | None:
        """When `tick` has to be called next; None: not before there are members."""
        return self._time.waking_ms(self._first_deadline()) if self._members else None

    def take_ready(self) -> Ready | None:
        """What has to be done, or None. It counts as done when it was taken."""
        if not (self._messages or self._knocks or self._changes):
            return None
        ready = Ready(tuple(self._messages), tuple(self._knocks), tuple(self._changes))
        self._messages, self._knocks, self._changes = [], [], []
        return ready

    # ---- time -------------------------------------------------------------------------------------------------------

    def _first_deadline(self) -> int:
        first = self._next_round_at
        for member in self._members.values():
            first = min([first, *member.deadlines(self.config.probe_timeout_ms)])
        return first

    def _forget(self, now_ms: int) -> None:
        """This node stood still: what it was waiting for is asked again, and suspicions begin anew."""
        own = self._time.at(now_ms)
        for member in self._members.values():
            member.settle()
            if member.state is State.SUSPECT:
                self._suspect_from(member, own, now_ms)

    def _judge(self, member: Member, own: int, now_ms: int) -> None:
        timeout_ms = self.config.probe_timeout_ms
        if member.ask_helpers_at is not None and own >= member.ask_helpers_at:
            member.ask_helpers_at = None
            member.suspect_at = own + timeout_ms
            self._ask_others(member, own)
        if member.suspect_at is not None and own >= member.suspect_at:
            member.suspect_at = None
            self._on(member, Event.SILENT, now_ms)
        gone_at = member.gone_at(timeout_ms)
        if gone_at is not None and own >= gone_at:
            assert member.refused_ms is not None
            if self._heard_ms(member.node_id) > member.refused_ms:
                member.refused_ms = None
            else:
                self._on(member, Event.GONE, now_ms)
        if member.dead_at is not None and own >= member.dead_at:
            heard = self._heard_ms(member.node_id) > member.suspected_ms
            self._on(member, Event.HEARD if heard else Event.EXPIRED, now_ms)

    # ---- probing ----------------------------------------------------------------------------------------------------

    def _probe_round(self, own: int, now_ms: int) -> None:
        """One node in its turn, every suspect, and the dead ones whose time has come."""
        self._probe_next(own)
        for member in self._members.values():
            if member.state is State.SUSPECT:
                self._ping(member, own)
                if member.silent_since is not None and own - member.silent_since >= self.config.probe_timeout_ms:
                    self._ask_others(member, own)
            elif member.state is State.DEAD:
                self._probe_dead(member, own, now_ms)

    def _probe_next(self, own: int) -> None:
        for _ in range(2 * len(self._members)):
            if not self._round:
                self._round = list(self._members)
                self._rng.shuffle(self._round)
            member = self._members.get(self._round.pop())
            if member is not None and member.state is State.ALIVE:
                if member.silent_since is None:
                    member.ask_helpers_at = own + self.config.probe_timeout_ms
                self._ping(member, own)
                return

    def _probe_dead(self, member: Member, own: int, now_ms: int) -> None:
        # What lay unread when the verdict fell is no sign of life: only what is heard well after it.
        heard_from_ms = member.since_ms + self.config.suspicion_timeout_ms
        if not member.is_over and self._heard_ms(member.node_id) > heard_from_ms:
            self._on(member, Event.HEARD, now_ms)
        elif own >= member.next_probe_at:
            member.next_probe_at = own + self.config.dead_probe_interval_ms
            self._ping(member, own)

    def _ping(self, member: Member, own: int) -> int:
        """The sequence number under which it is asked."""
        sequence = self._new_sequence()
        member.asked.append(sequence)
        if member.silent_since is None:
            member.silent_since = own
        self.counters.probes += 1
        rumours = self._rumours.take(None if member.state is State.ALIVE else member.rumour)
        self._messages.append(Ping(self.node_id, member.node_id, self.life, self.counter, sequence, rumours))
        return sequence

    def _ask_others(self, member: Member, own: int) -> None:
        """Have it pinged by others, and knock at its door."""
        helpers = [each.node_id for each in self._members.values() if each.state is State.ALIVE and each is not member]
        self._rng.shuffle(helpers)
        for helper in helpers[: self.config.helpers]:
            sequence = self._new_sequence()
            member.asked.append(sequence)
            self.counters.indirect_probes += 1
            rumours = self._rumours.take(None if member.state is State.ALIVE else member.rumour)
            self._messages.append(
                PingRequest(self.node_id, helper, self.life, self.counter, sequence, member.node_id, rumours)
            )
        self._knock(member, own)

    def _knock(self, member: Member, own: int) -> None:
        if not member.knocking and own >= member.next_knock_at:
            member.knocking = True
            member.next_knock_at = own + self.config.probe_timeout_ms
            self.counters.knocks += 1
            self._knocks.append(member.node_id)

    def _help(self, request: PingRequest, own: int) -> None:
        member = self._members.get(request.subject)
        if member is None or self._relays.full:
            return
        until = own + self.config.suspicion_timeout_ms
        self._relays.add(self._ping(member, own), Relay(request.source, request.sequence, member.node_id, until))

    def _new_sequence(self) -> int:
        self._sequence = (self._sequence + 1) % SEQUENCES
        return self._sequence

    # ---- answers ----------------------------------------------------------------------------------------------------

    def _answer(self, target: int, sequence: int, subject: int, subject_life: int, subject_counter: int) -> None:
        rumours = self._rumours.take(None)
        self._messages.append(
            Ack(
                self.node_id,
                target,
                self.life,
                self.counter,
                sequence,
                subject,
                subject_life,
                subject_counter,
                rumours,
            )
        )

    def _on_ack(self, ack: Ack, now_ms: int) -> None:
        relay = self._relays.take(ack.sequence, ack.subject)
        if relay is not None:
            self._answer(relay.asker, relay.sequence, ack.subject, ack.subject_life, ack.subject_counter)
        member = self._members.get(ack.subject)
        if member is None or ack.sequence not in member.asked:
            return
        if UNKNOWN_LIFE not in {member.life, ack.subject_life} and member.life != ack.subject_life:
            # Asked after its registration was known, and answered by somebody else: that registration's process is gone.
            if not member.is_over:
                self._on(member, Event.REPLACED, now_ms)
            return
        self._learn(Rumour(ack.subject, member.life, ack.subject_counter, State.ALIVE), now_ms)
        self._on(member, Event.ANSWERED, now_ms)

    # ---- rumours ----------------------------------------------------------------------------------------------------

    def _learn(self, rumour: Rumour, now_ms: int) -> None:
        """SWIM's order: a higher counter wins; with equal counters dead is above suspect is above alive."""
        if rumour.node_id == self.node_id:
            self._refute(rumour)
            return
        member = self._members.get(rumour.node_id)
        if member is None or member.life not in {rumour.life, UNKNOWN_LIFE}:
            return  # of another life: what is said of it is of no use here
        if rumour.state is State.ALIVE:
            if rumour.counter > member.counter:
                member.counter = rumour.counter
                self._rumours.tell(rumour, len(self._members) + 1)
                self._on(member, Event.REFUTED, now_ms)
        elif rumour.counter >= member.counter:
            member.counter = rumour.counter
            self._on(member, Event.CONDEMNED if rumour.state is State.DEAD else Event.ACCUSED, now_ms)

    def _refute(self, rumour: Rumour) -> None:
        about_me = rumour.life in {self.life, UNKNOWN_LIFE}
        if about_me and rumour.state is not State.ALIVE and self.counter <= rumour.counter < COUNTER_MAX:
            self.counter = rumour.counter + 1
            self.counters.refutations += 1
            self._rumours.tell(Rumour(self.node_id, self.life, self.counter, State.ALIVE), len(self._members) + 1)

    # ---- states -----------------------------------------------------------------------------------------------------

    def _on(self, member: Member, event: Event, now_ms: int) -> None:
        """Everything that a change of state brings with it."""
        own = self._time.at(now_ms)
        before, member.state = member.state, TRANSITIONS.look_up(member.state, event)
        silent_ms = 0 if member.silent_since is None else own - member.silent_since
        if member.state is State.ALIVE:
            member.settle()
        elif member.state is State.SUSPECT:
            self._suspect(member, before, event, now_ms)
        elif before is not State.DEAD:
            self.counters.verdicts += 1
            member.settle()
            member.next_probe_at = own + self.config.dead_probe_interval_ms
        is_over = event is Event.REPLACED or (event is Event.GONE and member.life != UNKNOWN_LIFE)
        member.is_over = member.state is State.DEAD and (member.is_over or is_over)
        if member.state is before:
            return
        member.since_ms = now_ms
        if member.state is not State.ALIVE:
            self._rumours.tell(member.rumour, len(self._members) + 1)
        self._changes.append(
            Change(member.node_id, member.broker_epoch, member.counter, before, member.state, event, silent_ms)
        )

    def _suspect(self, member: Member, before: State, event: Event, now_ms: int) -> None:
        own = self._time.at(now_ms)
        if before is not State.SUSPECT:
            self.counters.suspicions += 1
            self._suspect_from(member, own, now_ms)
            if event is not Event.SILENT:  # then pings are under way already
                self._ping(member, own)
        if event in {Event.LOST, Event.CONDEMNED}:
            self._knock(member, own)
        if event is Event.HEARD:
            self.counters.vetoes += 1
            self._suspect_from(member, own, now_ms)
        elif event is Event.CONDEMNED:
            assert member.dead_at is not None
            member.dead_at = min(member.dead_at, own + self.config.suspicion_timeout_ms // 2)

    def _suspect_from(self, member: Member, own: int, now_ms: int) -> None:
        member.ask_helpers_at = member.suspect_at = None
        member.dead_at = own + self.config.suspicion_timeout_ms
        member.suspected_ms = now_ms
